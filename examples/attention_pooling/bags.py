"""Bags of feature sequences: what a feature extractor found in each of many recordings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import Dataset

FEATURES, CLASSES = 8, 3
UNLABELLED = -100


@dataclass
class Bag:
    features: np.ndarray  # one row per instance
    label: int


def make_bags(count: int, seed: int) -> list[Bag]:
    """A few instances of each bag show its class; the others are background."""
    random = np.random.default_rng(seed)
    patterns = np.random.default_rng(0).normal(size=(CLASSES, FEATURES))
    bags = []
    for _ in range(count):
        label = int(random.integers(CLASSES))
        features = random.normal(size=(int(random.integers(2, 13)), FEATURES))
        features[: max(1, len(features) // 3)] += 2 * patterns[label]
        bags.append(Bag(features.astype(np.float32), label))
    return bags


class BagDataset(Dataset):
    """`keep`: the share of a bag's instances that an epoch sees, drawn anew each time."""

    def __init__(self, bags: list[Bag], keep: float = 1.0) -> None:
        self.bags = bags
        self.keep = keep

    def __len__(self) -> int:
        return len(self.bags)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        bag = self.bags[index]
        features = torch.from_numpy(bag.features)
        features = (features - features.mean()) / features.std()
        if self.keep < 1:
            features = features[torch.rand(len(features)) < self.keep]
        return features, bag.label


def collate(items: list[tuple[torch.Tensor, int]]) -> dict[str, torch.Tensor]:
    features = torch.nn.utils.rnn.pad_sequence([features for features, _ in items], batch_first=True)
    lengths = torch.tensor([len(features) for features, _ in items])
    return {
        "features": features,
        "mask": torch.arange(features.shape[1]) < lengths[:, None],
        "labels": torch.tensor([label for _, label in items]),
    }
