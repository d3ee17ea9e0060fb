"""Which token goes to which expert, and the tokens of each expert together."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from settings import Settings
from torch import nn


class Router(nn.Module):
    """The best experts of each token, and what their outputs are weighted with."""

    def __init__(self, hidden: int, experts: int, per_token: int) -> None:
        super().__init__()
        self.score = nn.Linear(hidden, experts, bias=False)
        self.per_token = per_token

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        probabilities = self.score(tokens).softmax(dim=-1)
        weights, chosen = probabilities.topk(self.per_token, dim=-1)
        return weights / weights.sum(dim=-1, keepdim=True), chosen


@dataclass(frozen=True)
class Group:
    """A few experts and their tokens, padded to the expert with the most tokens."""

    experts: list[int]
    counts: torch.Tensor
    """(e) how many tokens an expert has."""
    token_ids: torch.Tensor
    """(e, t)"""
    weights: torch.Tensor
    """(e, t)"""


def group_by_expert(weights: torch.Tensor, chosen: torch.Tensor, settings: Settings) -> list[Group]:
    """Experts without a token are left out, unless the groups are to be fixed."""
    experts, size = settings.experts, settings.experts_per_task
    of_expert: list[list[tuple[int, float]]] = [[] for _ in range(experts)]
    for token, (row, picked) in enumerate(zip(weights.tolist(), chosen.tolist(), strict=True)):
        for weight, expert in zip(row, picked, strict=True):
            of_expert[expert].append((token, weight))
    wanted = [expert for expert in range(experts) if of_expert[expert] or settings.fixed_groups]
    return [_group(wanted[i : i + size], of_expert, settings.padding_id) for i in range(0, len(wanted), size)]


def _group(experts: list[int], of_expert: list[list[tuple[int, float]]], padding_id: int) -> Group:
    counts = [len(of_expert[expert]) for expert in experts]
    padded = [of_expert[e] + [(padding_id, 0.0)] * (max(counts) - len(of_expert[e])) for e in experts]
    return Group(
        experts,
        torch.tensor(counts),
        torch.tensor([[token for token, _ in row] for row in padded]).view(len(experts), -1),
        torch.tensor([[weight for _, weight in row] for row in padded]).view(len(experts), -1),
    )
