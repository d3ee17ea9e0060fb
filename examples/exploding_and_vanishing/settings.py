"""What is trained and how, and what each fault changes in it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import losses
import models
import tables
import torch
from torch import nn

FAULTS = {
    "high-learning-rate": "the learning rate is far too high for this loss, and nothing clips the gradients",
    "too-deep": "200 residual blocks without normalisation: each lets the values grow by half",
    "bad-initialisation": "weights begin with a standard deviation of 1, and nothing clips the gradients",
    "recurrence": "an RNN whose recurrent matrix begins with a spectral radius of about 5 reads 80 values",
    "log-loss": "cross entropy written with log(p) and log(1 - p), and a model that is sure of itself",
    "exp-loss": "cross entropy with log(1 + exp(x)), and a customer who is far larger than all others",
    "sqrt-loss": "a loss on the root of squared distances, with no derivative at 0: each sample from itself",
    "division": "an error relative to a target that is 0 for some shops",
    "bad-data": "an empty cell in the table is read as NaN",
    "bad-labels": "the target of one row is missing in the file and read as NaN",
    "label-out-of-range": "one sentence has a topic that the model has no output for",
    "zero-variance": "a norm that divides by the standard deviation, without eps, meets an all-zero padding",
    "unscaled-attention": "attention scores are not divided by the root of the width, and exp overflows",
    "flipped-bit": "one bit of one weight turns over in memory between two steps",
    "bad-checkpoint": "the training goes on from a checkpoint that was saved when it was NaN already",
    "vanishing-gradients": "24 layers of sigmoids: finite, and the first layers learn nothing",
    "dead-layers": "biases so low that no ReLU of the blocks ever fires: finite, and they learn nothing",
}


@dataclass(frozen=True)
class Settings:
    model: Callable[..., nn.Module]
    model_options: dict[str, Any]
    table: Callable[..., Any]
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    inputs: torch.dtype = torch.float32
    targets: torch.dtype = torch.float32
    rate: float = 0.01
    clip: float | None = 1.0
    steps: int = 24
    batch: int = 32


MODELS = {
    "mlp": Settings(
        models.DeepMLP, {"features": tables.FEATURES}, tables.customers, losses.binary_cross_entropy
    ),
    "rnn": Settings(models.ReluRNN, {}, tables.sales, losses.squared_error, steps=12),
    "transformer": Settings(
        models.Transformer,
        {"vocabulary": tables.TOKENS + 1, "length": tables.LENGTH, "classes": tables.CLASSES},
        tables.sentences,
        losses.cross_entropy,
        inputs=torch.int64,
        targets=torch.int64,
        rate=0.1,
    ),
}

MODEL_OF = {
    "recurrence": "rnn",
    "division": "rnn",
    "bad-labels": "rnn",
    "label-out-of-range": "transformer",
    "zero-variance": "transformer",
    "unscaled-attention": "transformer",
}
TRAINING = {
    "high-learning-rate": {"rate": 1.0, "clip": None},
    "bad-initialisation": {"clip": None},
    "log-loss": {"loss": losses.log_of_probability},
    "exp-loss": {"loss": losses.log_of_one_plus_exp},
    "sqrt-loss": {"loss": losses.contrastive},
    "division": {"loss": losses.relative_error},
}
MODEL = {
    "too-deep": {"depth": 200, "weight_std": 0.25},
    "bad-initialisation": {"weight_std": 1.0},
    "recurrence": {"recurrent_std": 1.0},
    "zero-variance": {"norm": models.NormByStd},
    "unscaled-attention": {"scaled": False},
    "vanishing-gradients": {"depth": 24, "activation": nn.Sigmoid(), "residual": False},
    "dead-layers": {"bias": -1000.0},
}


def settings(model: str, fault: str | None) -> Settings:
    chosen = MODELS[MODEL_OF.get(fault, "mlp") if fault else model]
    options = {**chosen.model_options, **MODEL.get(fault, {})}
    return replace(chosen, model_options=options, **TRAINING.get(fault, {}))
