"""Three networks without the safety belts of deep learning: each can explode or vanish."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int, activation: nn.Module, residual: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.activation = activation
        self.residual = residual

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.activation(self.linear(x))
        return x + y if self.residual else y


class DeepMLP(nn.Module):
    """Rows of a table -> one logit. No normalisation between the blocks."""

    def __init__(
        self,
        features: int,
        width: int = 32,
        depth: int = 8,
        activation: nn.Module | None = None,
        residual: bool = True,
        weight_std: float | None = None,
        bias: float | None = None,
    ) -> None:
        super().__init__()
        self.inp = nn.Linear(features, width)
        self.blocks = nn.ModuleList(Block(width, activation or nn.ReLU(), residual) for _ in range(depth))
        self.out = nn.Linear(width, 1)
        for block in self.blocks:
            if weight_std is not None:
                nn.init.normal_(block.linear.weight, std=weight_std)
            if bias is not None:
                nn.init.constant_(block.linear.bias, bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inp(x)
        for block in self.blocks:
            x = block(x)
        return self.out(x).squeeze(-1)


class ReluRNN(nn.Module):
    """A series -> its next value. One matrix is applied once for every element of the series."""

    def __init__(self, width: int = 32, recurrent_std: float | None = None) -> None:
        super().__init__()
        self.inp = nn.Linear(1, width)
        self.recur = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, 1)
        if recurrent_std is None:
            nn.init.eye_(self.recur.weight)
        else:
            nn.init.normal_(self.recur.weight, std=recurrent_std)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        inputs = 0.05 * self.inp(series.unsqueeze(-1))
        h = torch.zeros_like(inputs[:, 0])
        for x in inputs.unbind(dim=1):
            h = torch.relu(self.recur(h) + x)
        return self.out(h).squeeze(-1)


class Norm(nn.Module):
    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        centred = x - x.mean(dim=-1, keepdim=True)
        return self.gain * centred / torch.sqrt(centred.square().mean(dim=-1, keepdim=True) + self.eps)


class NormByStd(Norm):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        centred = x - x.mean(dim=-1, keepdim=True)
        return self.gain * centred / x.std(dim=-1, keepdim=True)


class Attention(nn.Module):
    def __init__(self, width: int, scale: float) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.scale = scale
        for linear in (self.q, self.k):
            nn.init.xavier_normal_(linear.weight, gain=2.5)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        scores = self.scale * self.q(x) @ self.k(x).transpose(-1, -2)
        weights = torch.exp(scores) * mask.unsqueeze(1)
        return weights / weights.sum(dim=-1, keepdim=True) @ self.v(x)


class Transformer(nn.Module):
    """Token ids, padded with 0 -> classes."""

    def __init__(
        self,
        vocabulary: int,
        length: int,
        classes: int,
        width: int = 64,
        depth: int = 2,
        norm: type[Norm] = Norm,
        scaled: bool = True,
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width, padding_idx=0)
        self.place = nn.Parameter(0.1 * torch.randn(length, width))
        self.norms = nn.ModuleList(norm(width) for _ in range(2 * depth))
        self.attentions = nn.ModuleList(
            Attention(width, width**-0.5 if scaled else 1.0) for _ in range(depth)
        )
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            for _ in range(depth)
        )
        self.head = nn.Linear(width, classes)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        mask = (ids != 0).float()
        x = (self.embed(ids) + self.place) * mask.unsqueeze(-1)
        for i, (attention, mlp) in enumerate(zip(self.attentions, self.mlps, strict=True)):
            x = x + attention(self.norms[2 * i](x), mask)
            x = x + mlp(self.norms[2 * i + 1](x))
        pooled = (x * mask.unsqueeze(-1)).sum(dim=1) / mask.sum(dim=1, keepdim=True)
        return self.head(pooled)
