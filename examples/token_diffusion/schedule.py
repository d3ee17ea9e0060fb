"""The noise schedule: how much of the image is left, and how much is noise, after each step."""

from __future__ import annotations

import torch


class Schedule:
    """The share of the signal falls evenly, from `first` to `last`.

    Neither is whole: an image without any noise, or noise without any image, teaches nothing.
    """

    def __init__(self, steps: int, first: float, last: float, evenly: bool) -> None:
        self.steps, self.first, self.last = steps, first, last
        self.evenly = evenly

    def draw(self, count: int) -> torch.Tensor:
        """The share of the signal for each image of a batch, at a random step."""
        if self.evenly:  # from one random place on, at even distances: the loss is less noisy
            time = torch.rand(1) + torch.arange(count) / count
        else:
            time = torch.rand(count)
        part = (time * self.steps).floor() / (self.steps - 1)
        return self.first * (1 - part) + self.last * part


def add_noise(image: torch.Tensor, noise: torch.Tensor, signal: torch.Tensor) -> torch.Tensor:
    kept, added = signal.sqrt(), (1 - signal).sqrt()
    return kept[:, None, None] * image + added[:, None, None] * noise


def remove_noise(noisy: torch.Tensor, noise: torch.Tensor, signal: torch.Tensor) -> torch.Tensor:
    kept, added = signal.sqrt(), (1 - signal).sqrt()
    return (noisy - added[:, None, None] * noise) / kept[:, None, None]


def log_ratio(signal: torch.Tensor) -> torch.Tensor:
    """The logarithm of signal to noise, by which the model knows the step."""
    return torch.log(signal / (1 - signal))
