"""One layer of experts on the CPU: stack the tokens, w1 and w3, activation, product, w2, scatter."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from link import Link
from router import Group, Router, group_by_expert
from settings import Settings
from shared_weights import GroupedWeights
from torch import nn
from workers import Workers


def swish(gate: torch.Tensor) -> torch.Tensor:
    """SiLU from one exponential, which is cheaper here than sigmoid."""
    power = torch.exp(gate)
    return gate * power / (1 + power)


ACTIVATIONS = {"silu": F.silu, "swish": swish}


class CpuExperts(nn.Module):
    """The router is on the device; the experts' weights belong to the shared segment, not to this module."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.router = Router(settings.hidden, settings.experts, settings.experts_per_token)
        self.settings = settings
        self.activation = ACTIVATIONS[settings.activation]

    def serve_from(self, weights: GroupedWeights, workers: Workers, link: Link) -> None:
        self.weights, self.workers, self.link = weights, workers, link

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        tokens = hidden.flatten(0, 1)
        groups = group_by_expert(*self.router(tokens), self.settings)
        self.link.send_to_host(tokens)
        total = torch.zeros(tokens.shape, dtype=self.settings.transfer_dtype, device=tokens.device)
        for group, made in zip(groups, self.workers.run(self.compute, groups), strict=True):
            self.scatter(total, group, self.link.to_device(made))
        return total.to(hidden.dtype).view_as(hidden)

    def compute(self, group: Group) -> torch.Tensor:
        """The outputs (e, t, h) of the experts of a group. Runs in a worker."""
        stacked = self.stack(group)
        size = stacked.abs().sum(dim=(1, 2)) / (group.counts * stacked.shape[2])
        scale = size[:, None, None]
        x = (stacked / scale).to(self.settings.compute_dtype)
        w1, w3, w2 = self.weights_of(group.experts)
        gate = torch.einsum("eth,eih->eti", x, w1)
        up = torch.einsum("eth,eih->eti", x, w3)
        activated = self.activation(gate)
        product = activated * up
        made = torch.einsum("eti,ehi->eth", product, w2)
        return made.float() * scale

    def stack(self, group: Group) -> torch.Tensor:
        """The inputs (e, t, h): the tokens of each expert, zeros after the last one."""
        stacked = self.workers.scratch(*group.token_ids.shape)
        stacked.zero_()
        for slot, (count, token_ids) in enumerate(zip(group.counts.tolist(), group.token_ids, strict=True)):
            stacked[slot, :count] = self.link.rows(token_ids[:count])
        return stacked

    def weights_of(self, experts: list[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        dtype = self.settings.compute_dtype
        all_of = self.weights
        return all_of.w1[experts].to(dtype), all_of.w3[experts].to(dtype), all_of.w2[experts].to(dtype)

    def scatter(self, total: torch.Tensor, group: Group, made: torch.Tensor) -> None:
        """Adds what the experts made to the tokens it belongs to."""
        token_ids = group.token_ids.flatten().to(total.device)
        weights = (group.weights * self.settings.routed_scale).flatten().to(made)
        total.index_add_(0, token_ids, made.flatten(0, 1) * weights[:, None])
