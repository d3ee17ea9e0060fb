"""What can go wrong in this training: settings that do not hold, and data that is not what it should be."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from bags import UNLABELLED, Bag
from model import BagClassifier
from settings import Settings


@dataclass(frozen=True)
class Fault:
    what: str
    change: Callable[[Settings], Settings] = lambda s: s
    damage: Callable[[list[Bag]], None] = lambda bags: None


def failed_extraction(bags: list[Bag]) -> None:
    bags[37].features[2] = np.nan


def nothing_recorded(bags: list[Bag]) -> None:
    bags[50].features[:] = 0


def few_labels(bags: list[Bag]) -> None:
    for bag in bags[10:]:
        bag.label = UNLABELLED


def of_a_run_that_broke(s: Settings) -> Path:
    """A file as a training leaves it that went on after its parameters had become NaN."""
    weights = BagClassifier(s).state_dict()
    weights["pool.score.weight"].fill_(float("nan"))
    buffer = io.BytesIO()
    torch.save(weights, buffer)
    path = Path(tempfile.mkdtemp(), "weights.pt")
    path.write_bytes(buffer.getvalue())
    return path


FAULTS = {
    "empty-bag": Fault(
        "Bags are thinned at random, and a short one loses all its instances: nothing is left to attend to.",
        change=lambda s: replace(s, keep=0.75),
    ),
    "nan-features": Fault(
        "The feature extractor failed on one instance of one bag and wrote NaN.",
        damage=failed_extraction,
    ),
    "blank-bag": Fault(
        "All features of one bag are equal, and each bag is divided by its standard deviation.",
        damage=nothing_recorded,
    ),
    "unlabelled-batch": Fault(
        "Only ten bags have a label, so that a batch may have none: the loss is a mean over nothing.",
        damage=few_labels,
    ),
    "batch-of-one": Fault(
        "The last batch of the epoch is a single bag, and the normalisation takes its variance.",
        change=lambda s: replace(s, bags=97, drop_last=False),
    ),
    "high-rate": Fault(
        "The learning rate is far too high and nothing clips the gradients.",
        change=lambda s: replace(s, optimizer="sgd", rate=30.0, clip=0.0),
    ),
    "unbounded-attention": Fault(
        "Attention scores are not bounded, and long bags are pooled with exp(score) as it is.",
        change=lambda s: replace(s, chunked=True, score_bound=None, temperature=0.004),
    ),
    "entropy-penalty": Fault(
        "The entropy of the attention weights takes the logarithm of the padding's weights, which are 0.",
        change=lambda s: replace(s, entropy_weight=0.01),
    ),
    "bf16-probabilities": Fault(
        "In bfloat16 a probability near 1 is 1, and the loss takes the logarithm of 1 - p.",
        change=lambda s: replace(s, one_vs_rest=True, precision="bf16", rate=0.05),
    ),
    "zero-warmup": Fault(
        "The warm-up is switched off by 0 steps, and the schedule divides by them: the first rate is 0/0.",
        change=lambda s: replace(s, warmup=0),
    ),
    "bad-checkpoint": Fault(
        "Training is resumed from weights that were saved after they had become NaN.",
        change=lambda s: replace(s, resume=of_a_run_that_broke(s)),
    ),
}
NO_FAULT = Fault("Nothing is wrong.")
