"""What can go wrong in this training: settings, texts and weights that are not what they should be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from model import Denoiser
from settings import Settings
from texts import Text


@dataclass(frozen=True)
class Fault:
    what: str
    change: Callable[[Settings], Settings] = lambda s: s
    damage: Callable[[list[Text]], None] = lambda texts: None
    load: Callable[[Denoiser], None] = lambda model: None


def added_token(texts: list[Text]) -> None:
    texts[21][1] = 5_003


def token_of_a_larger_vocabulary(texts: list[Text]) -> None:
    texts[21][-1] = 68_002


def no_text(texts: list[Text]) -> None:
    texts[33] = []


def only_a_prompt(texts: list[Text]) -> None:
    texts[30] = texts[30][:3]


@torch.no_grad()
def trained_in_bfloat16(model: Denoiser) -> None:
    for block in model.blocks:
        block.attention.query.weight.mul_(160)
        block.attention.key.weight.mul_(160)


@torch.no_grad()
def of_a_long_training(model: Denoiser) -> None:
    for block in model.blocks:
        _, scale, _ = block.modulation1.project.bias.chunk(3)
        scale.fill_(3000)


@torch.no_grad()
def with_one_loud_channel(model: Denoiser) -> None:
    model.encode.bias[5] = 400


FAULTS = {
    "id-beyond-vocabulary": Fault(
        "The tokenizer was given new tokens, the embedding was not: a prompt has an id beyond its end.",
        damage=added_token,
    ),
    "digit-overflow": Fault(
        "An id needs a third digit: the first of two is over 255, and its colour outside of all colours.",
        change=lambda s: replace(s, vocabulary=70_000),
        damage=token_of_a_larger_vocabulary,
    ),
    "no-eps": Fault(
        "RMSNorm has no eps, and the padding of an image is zero.",
        change=lambda s: replace(s, norm_eps=0.0),
    ),
    "lost-eps": Fault(
        "RMSNorm computes in half precision, in which its eps of 1e-8 is zero, as the padding is.",
        change=lambda s: replace(s, norm_eps=1e-8, norm_in_float32=False),
    ),
    "half-norm": Fault(
        "RMSNorm squares in half precision, and loaded weights make one channel larger than 256.",
        change=lambda s: replace(s, norm_in_float32=False, norm_eps=1e-3),
        load=with_one_loud_channel,
    ),
    "adaln-drift": Fault(
        "The scales of AdaLN-Zero drifted to thousands in a long training: too much for float16.",
        load=of_a_long_training,
    ),
    "empty-text": Fault(
        "A text has no tokens: every position of its image is masked.",
        damage=no_text,
    ),
    "late-scale": Fault(
        "Attention is scaled after the product, which leaves float16 with weights trained in bfloat16.",
        change=lambda s: replace(s, scale_before_product=False),
        load=trained_in_bfloat16,
    ),
    "schedule-start": Fault(
        "The schedule begins with a step without noise: signal to noise is a division by zero.",
        change=lambda s: replace(s, first_signal=1.0),
    ),
    "schedule-end": Fault(
        "The schedule ends with a step without signal: the logarithm of zero.",
        change=lambda s: replace(s, last_signal=0.0),
    ),
    "schedule-beyond": Fault(
        "Steps are drawn from a random one on and run beyond the last: the root of a negative number.",
        change=lambda s: replace(s, draw_evenly=True),
    ),
    "nothing-asked": Fault(
        "A text is shorter than the prompt: nothing of it is asked for, and its loss is a mean over nothing.",
        damage=only_a_prompt,
    ),
    "high-rate": Fault(
        "The learning rate is far too high.",
        change=lambda s: replace(s, rate=2.0),
    ),
    "clip-before-unscale": Fault(
        "Gradients are clipped while they carry the scale, and the optimizer steps past the scaler.",
        change=lambda s: replace(s, clip_first=True),
    ),
    "spread-by-clipping": Fault(
        "A distance has no gradient at zero, where the padding is; clipping spreads the NaN to all weights.",
        change=lambda s: replace(s, distance="euclidean", precision="bf16"),
    ),
}
NO_FAULT = Fault("Nothing is wrong.")
