"""A checkpoint on disk: a `.npy` for each tensor, so that one can be mapped without reading the rest."""

from pathlib import Path

import numpy as np
import torch
from model import Decoder
from settings import Settings
from shared_weights import names_and_shapes


def write_checkpoint(folder: Path, settings: Settings, gains: dict[str, float]) -> None:
    """Weights of a fresh model. `gains`: what was folded into w1, w2 or w3."""
    torch.manual_seed(0)
    for name, tensor in Decoder(settings).state_dict().items():
        np.save(folder / f"{name}.npy", tensor.numpy())
    draw = np.random.default_rng(0)
    for name, shape in names_and_shapes(settings):
        gain = gains.get(name.split(".")[1], 1.0) / shape[-1] ** 0.5
        np.save(folder / f"{name}.npy", (draw.standard_normal(shape) * gain).astype(np.float32))


def load_dense(model: Decoder, folder: Path) -> None:
    """All that lives on the device; the experts come from shared memory."""
    for name, tensor in model.state_dict().items():
        tensor.copy_(torch.from_numpy(np.load(folder / f"{name}.npy")))
