"""Many small trainings on the CPU, healthy and not, as the step records that nanwatch would have of them.

Linear regression, MLPs, a recurrence, a small transformer, a GAN, a policy gradient; plain and with momentum
or Adam; rates from far too low to far too high; in float32 and with every module's output (and its gradient)
rounded to float16, so that its range is that of float16.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nanwatch.records import StepFacts

HALF_LIMIT = 65504.0
AUDITED_FIRST = 12
AUDITED_EVERY = 10

Loss = Callable[[nn.Module, torch.Generator], Tensor]


@dataclass(frozen=True)
class Training:
    """One training to make: everything it depends on."""

    family: str
    optimizer: str
    rate: float
    seed: int
    half: bool = False
    steps: int = 200
    clip: float | None = None
    warmup: int = 0

    @property
    def name(self) -> str:
        precision = "half" if self.half else "float32"
        return f"{self.family} {self.optimizer} {self.rate:g} {precision} seed {self.seed}"


class Recurrence(nn.Module):
    """A plain recurrence: the gradients explode or vanish with its length."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.cell = nn.RNN(4, 16, nonlinearity=kind, batch_first=True)
        self.out = nn.Linear(16, 1)

    def forward(self, x_BTD: Tensor) -> Tensor:
        hidden_BTD, _ = self.cell(x_BTD)
        return self.out(hidden_BTD[:, -1])


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(16, 16)
        self.mix = nn.MultiheadAttention(16, 2, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
        self.head = nn.Linear(16, 16)

    def forward(self, ids_BT: Tensor) -> Tensor:
        x = self.embed(ids_BT)
        y = self.norm1(x)
        x = x + self.mix(y, y, y, need_weights=False)[0]
        return self.head(x + self.down(F.gelu(self.up(self.norm2(x)))))


def _mlp(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(inputs, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, outputs)
    )


def _linear_loss(model: nn.Module, source: torch.Generator) -> Tensor:
    x = torch.randn(16, 8, generator=source) * torch.linspace(0.5, 4, 8)
    y = x.sum(1, keepdim=True) + torch.randn(16, 1, generator=source)
    return F.mse_loss(model(x), y)


def _mlp_loss(model: nn.Module, source: torch.Generator) -> Tensor:
    x = torch.randn(16, 8, generator=source)
    return F.mse_loss(model(x), (3 * x[:, :1]).sin() + x[:, 1:2] * x[:, 2:3])


def _classes_loss(model: nn.Module, source: torch.Generator) -> Tensor:
    x = torch.randn(16, 8, generator=source)
    return F.cross_entropy(model(x), (x[:, 0] > 0).long() + (x[:, 1] > 0).long())


def _sequence_loss(model: nn.Module, source: torch.Generator) -> Tensor:
    x = torch.randn(8, 20, 4, generator=source)
    return F.mse_loss(model(x), x[:, :, 0].mean(1, keepdim=True) * 5)


def _tokens_loss(model: nn.Module, source: torch.Generator) -> Tensor:
    ids = torch.randint(0, 16, (8, 12), generator=source)
    ids[:, 1::2] = ids[:, ::2]
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def _policy_loss(model: nn.Module, source: torch.Generator) -> Tensor:
    """Of either sign, near zero, and mostly noise."""
    x = torch.randn(16, 8, generator=source)
    chosen = torch.randint(0, 3, (16,), generator=source)
    reward = torch.randn(16, generator=source) + (chosen == 0).float() * x[:, 0]
    return (-model(x).log_softmax(1)[torch.arange(16), chosen] * reward).mean()


FAMILIES: dict[str, tuple[Callable[[], nn.Module], Loss]] = {
    "linear": (lambda: nn.Linear(8, 1), _linear_loss),
    "mlp": (lambda: _mlp(8, 1), _mlp_loss),
    "classes": (lambda: _mlp(8, 3), _classes_loss),
    "rnn-tanh": (lambda: Recurrence("tanh"), _sequence_loss),
    "rnn-relu": (lambda: Recurrence("relu"), _sequence_loss),
    "transformer": (Transformer, _tokens_loss),
    "policy": (lambda: _mlp(8, 3), _policy_loss),
}

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "momentum": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9),
    "adam": torch.optim.Adam,
}
RATES = {
    "sgd": (0.003, 0.02, 0.05, 0.1, 0.3, 1.0, 3.0),
    "momentum": (0.001, 0.005, 0.02, 0.06, 0.2, 0.6),
    "adam": (0.0003, 0.003, 0.02, 0.2, 2.0),
}


def trainings(seeds: int = 2, steps: int = 200, first_seed: int = 0) -> list[Training]:
    """Every family with every optimizer and rate, in both precisions."""
    found = [
        Training(family, optimizer, rate, seed, half, steps)
        for family, optimizer in itertools.product(FAMILIES, OPTIMIZERS)
        for rate in RATES[optimizer]
        for half in (False, True)
        for seed in range(first_seed, first_seed + seeds)
    ]
    found += [
        Training("gan", "adam", rate, seed, False, steps)
        for rate in (1e-4, 1e-3)
        for seed in range(first_seed, first_seed + 2 * seeds)
    ]
    return found


def records(training: Training) -> Iterator[StepFacts]:
    """The steps until the first one that is not finite; that one is the last."""
    torch.manual_seed(training.seed)
    source = torch.Generator().manual_seed(training.seed + 1000)
    if training.family == "gan":
        yield from _gan(training, source)
        return
    build, loss_of = FAMILIES[training.family]
    model = build()
    peaks = _follow(model, training.half)
    optimizer = OPTIMIZERS[training.optimizer](model.parameters(), lr=training.rate)
    for step in range(training.steps):
        if training.warmup:
            optimizer.param_groups[0]["lr"] = training.rate * min(1.0, (step + 1) / training.warmup)
        optimizer.zero_grad()
        peaks.clear()
        loss = loss_of(model, source)
        loss.backward()
        facts = _facts(step, loss, model, optimizer, peaks, training)
        yield facts
        if isinstance(facts.loss, str) or isinstance(facts.grad_norm, str):
            return
        optimizer.step()


def _gan(training: Training, source: torch.Generator) -> Iterator[StepFacts]:
    """Two optimizers that take turns, with losses of their own."""
    maker, judge = _mlp(4, 2), _mlp(2, 1)
    for_maker = torch.optim.Adam(maker.parameters(), lr=training.rate)
    for_judge = torch.optim.Adam(judge.parameters(), lr=4 * training.rate)
    for step in range(0, training.steps, 2):
        real = torch.randn(16, 2, generator=source) * 0.2 + 1
        fake = maker(torch.randn(16, 4, generator=source))
        for_judge.zero_grad()
        loss = F.softplus(judge(fake.detach())).mean() + F.softplus(-judge(real)).mean()
        loss.backward()
        yield _facts(step, loss, judge, for_judge, {}, training)
        for_judge.step()
        for_maker.zero_grad()
        loss = F.softplus(-judge(fake)).mean()
        loss.backward()
        yield _facts(step + 1, loss, maker, for_maker, {}, training)
        for_maker.step()


def _follow(model: nn.Module, half: bool) -> dict[str, float]:
    """How much of its dtype each module uses; with `half`, in the range of float16."""
    peaks: dict[str, float] = {}
    limit = HALF_LIMIT if half else torch.finfo(torch.float32).max

    def rounded(name: str) -> Callable[..., Tensor | None]:
        def hook(module: nn.Module, inputs: object, output: object) -> Tensor | None:
            if not isinstance(output, Tensor):
                return None
            peaks[name] = max(peaks.get(name, 0.0), float(output.detach().abs().max()) / limit)
            return output.half().float() if half else None

        return hook

    for name, module in model.named_modules():
        if not list(module.children()):
            module.register_forward_hook(rounded(name))
    return peaks


def _facts(
    step: int,
    loss: Tensor,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    peaks: dict[str, float],
    training: Training,
) -> StepFacts:
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    norms = torch.stack(torch._foreach_norm(gradients)).double()
    known = {}
    if step < AUDITED_FIRST or step % AUDITED_EVERY == 0:
        names = [n for n, p in model.named_parameters() if p.grad is not None]
        weights = torch.stack(
            torch._foreach_norm([p for p in model.parameters() if p.grad is not None])
        ).tolist()
        pairs = zip(names, weights, norms.tolist(), strict=True)
        known["layers"] = {name: [weight, gradient] for name, weight, gradient in pairs}
        nearest = sorted(peaks.items(), key=lambda item: -item[1])[:3]
        if nearest:
            known["range_used"] = dict(nearest)
    total = norms.square().sum().sqrt().item()
    events = ["forward", "backward", "step"]
    if training.clip is not None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), training.clip)
        events.insert(2, "clip")
    rates = tuple(float(g["lr"]) for g in optimizer.param_groups)
    return StepFacts(step, _number(loss.item()), _number(total), rates, events=tuple(events), facts=known)


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
