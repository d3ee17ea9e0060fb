"""With nanwatch on and nothing wrong, the run is bit for bit the run without it."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from small_training import assert_same, state_of
from torch import nn
from workshop import Workshop

import nanwatch

ROWS, TIME, WIDTH, WORDS = 4, 5, 8, 11
STEPS = 20
Block = Callable[[], nn.Module]


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Conv1d(WIDTH, WIDTH, 3, padding=1)
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.inner(x.transpose(1, 2))).transpose(1, 2)


class Recurrence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.LSTM(WIDTH, WIDTH, num_layers=2, dropout=0.2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)[0]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(WIDTH, 2, dropout=0.1, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = torch.full((TIME, TIME), float("-inf")).triu(1)
        return x + self.inner(x, x, x, attn_mask=mask)[0]


class Changing(nn.Module):
    """A buffer that each call changes, and noise of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.calls: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x + torch.rand_like(x) / (1 + self.calls)


BLOCKS: dict[str, Block] = {
    "linear": lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()),
    "convolution": Convolution,
    "layernorm": lambda: nn.LayerNorm(WIDTH),
    "dropout": lambda: nn.Dropout(0.3),
    "recurrence": Recurrence,
    "attention": Attention,
    "encoder": lambda: nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True, dropout=0.1),
    "changing": Changing,
}
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.001),
    "fused adamw": lambda p: torch.optim.AdamW(p, lr=0.001, fused=True),
    "fused sgd": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, fused=True),
    "foreach adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01, foreach=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.001),
}
WATCHING: dict[str, dict[str, Any]] = {
    "audit": {"mode": "host"},
    "a little audit": {"mode": "host", "audit_seconds": 0.01, "audit_share": 0.2},
    "no audit": {"mode": "host", "audit_seconds": 0, "audit_share": 0},
    "device": {"mode": "device"},
    "device, no audit": {"mode": "device", "audit_seconds": 0, "audit_share": 0},
}


class Network(nn.Module):
    def __init__(self, blocks: list[str]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.Sequential(*(BLOCKS[name]() for name in blocks))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.embedding(words)))


def train(
    blocks: list[str], optimizer_name: str, clip: bool, parts: int, half: bool, compiled: bool = False
) -> list[Any]:
    """20 steps from one seed; everything that could differ."""
    torch.manual_seed(3)
    random.seed(3)
    numpy.random.seed(3)
    model = Network(blocks)
    run: Any = torch.compile(model, backend="aot_eager") if compiled else model
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    seen: list[Any] = []
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        for _ in range(parts):
            words = torch.randint(WORDS, (ROWS, TIME))
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
                out = run(words)
                loss = nn.functional.cross_entropy(out.flatten(0, 1), words.flatten()) / parts
            loss.backward()
            seen += [loss.detach(), out.detach()]
        if clip:
            seen.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5))
        optimizer.step()
        schedule.step()
        if step % 7 == 0:
            run.eval()
            with torch.no_grad():
                seen.append(run(words))
            run.train()
    generators = [torch.get_rng_state(), random.getstate(), repr(numpy.random.get_state())]
    return [seen, *state_of(model, optimizer, schedule), generators]


def assert_unchanged_by(watching: str, *training: Any, **options: Any) -> None:
    plain = train(*training, **options)
    with (
        tempfile.TemporaryDirectory() as folder,
        nanwatch.watch(dir=folder, **WATCHING[watching]) as session,
    ):
        watched = train(*training, **options)
    assert session.incidents == []
    assert not session.watcher.shield.broken
    assert_same(watched, plain)


@settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(
    blocks=st.lists(st.sampled_from(sorted(BLOCKS)), min_size=1, max_size=3),
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    watching=st.sampled_from(sorted(WATCHING)),
    clip=st.booleans(),
    parts=st.sampled_from([1, 1, 2]),
    half=st.booleans(),
)
def test_random_networks(
    blocks: list[str], optimizer: str, watching: str, clip: bool, parts: int, half: bool
) -> None:
    half = half and "recurrence" not in blocks
    assert_unchanged_by(watching, blocks, optimizer, clip, parts, half)


@pytest.mark.parametrize("watching", WATCHING)
def test_every_block_at_once(watching: str) -> None:
    optimizer = "fused adamw" if "device" in watching else "adam"
    assert_unchanged_by(watching, sorted(BLOCKS), optimizer, True, 2, False)


@pytest.mark.parametrize("watching", ["audit", "no audit"])
def test_a_compiled_model(watching: str) -> None:
    assert_unchanged_by(watching, ["linear", "layernorm", "dropout"], "adam", True, 1, False, compiled=True)


@pytest.mark.parametrize("audit", [True, False], ids=["audit", "no audit"])
@pytest.mark.parametrize("grad", ["no_grad", "inference_mode"])
def test_the_fast_path_of_attention_in_eval(tmp_path: Any, audit: bool, grad: str) -> None:
    """torch's fused path gives other bits than the plain one: watching must not switch it off."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    encoder = nn.TransformerEncoder(layer, 2).eval()
    attention = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    x = torch.randn(3, 7, 16)

    def outputs() -> list[torch.Tensor]:
        with getattr(torch, grad)():
            return [layer(x), encoder(x), *attention(x, x, x)]

    plain = outputs()
    options = {} if audit else {"audit_seconds": 0, "audit_share": 0}
    with nanwatch.watch(dir=tmp_path, **options) as session:
        watched = outputs()
    assert_same(watched, plain)
    assert session.incidents == []
    assert not session.watcher.shield.broken


@pytest.mark.parametrize(
    "audit",
    [
        pytest.param(True, id="audit"),
        pytest.param(False, id="no audit"),
    ],
)
def test_the_fast_path_with_padding_uses_nested_tensors(tmp_path: Any, audit: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2).eval()
    x = torch.randn(3, 7, 16)
    padding = torch.zeros(3, 7, dtype=torch.bool)
    padding[1, 4:] = True
    options = {} if audit else {"audit_seconds": 0, "audit_share": 0}
    with torch.no_grad():
        plain = encoder(x, src_key_padding_mask=padding)
        with nanwatch.watch(dir=tmp_path, **options) as session:
            watched = encoder(x, src_key_padding_mask=padding)
    assert_same(watched, plain)
    assert session.incidents == []
    assert not session.watcher.shield.broken


class Calling(nn.Module):
    """Calls a function from within a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def in_bfloat16(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return function(*args)

    return call


def cross_attention(x: torch.Tensor, y: torch.Tensor) -> Any:
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(64, 4, batch_first=True).eval()
    queries, keys = x.view(2, 32, 64)[:, :17], y.view(2, 32, 64)
    with torch.inference_mode():
        return attention(queries, keys, keys)


def derived(x: torch.Tensor, y: torch.Tensor) -> Any:
    """By an op of the program's own, of which torch knows no derivative but that of what it calls."""
    x = x.clone().requires_grad_()
    return torch.autograd.grad(torch.ops.nanwatch_tests.product(x, y).sum(), x)


@pytest.fixture
def op_of_the_program() -> Iterator[None]:
    library = torch.library.Library("nanwatch_tests", "FRAGMENT")
    library.define("product(Tensor x, Tensor y) -> Tensor")
    library.impl("product", lambda x, y: x * y, "CPU")
    yield
    library._destroy()  # type: ignore[no-untyped-call]


ASKS_FOR_MODES: dict[str, Callable[..., Any]] = {
    "svdvals": lambda x, y: torch.linalg.svdvals(x),
    "hfftn": torch.inference_mode()(lambda x, y: torch.fft.hfftn(torch.complex(x, y))),
    "bilinear in bfloat16": in_bfloat16(lambda x, y: nn.functional.bilinear(x, y, x.expand(3, 64, 64))),
    "pinv in bfloat16": in_bfloat16(lambda x, y: torch.linalg.pinv(x)),
    "cross attention": cross_attention,
    "a derivative": derived,
}


@pytest.mark.parametrize("place", ["outside", "in a module"])
@pytest.mark.parametrize("name", ASKS_FOR_MODES)
@pytest.mark.usefixtures("op_of_the_program")
def test_what_torch_would_compute_otherwise_under_a_mode(tmp_path: Any, name: str, place: str) -> None:
    call = ASKS_FOR_MODES[name] if place == "outside" else Calling(ASKS_FOR_MODES[name])
    torch.manual_seed(0)
    x, y = torch.randn(64, 64), torch.randn(64, 64)
    plain = call(x, y)
    with nanwatch.watch(dir=tmp_path, policy="observe") as session:
        watched = call(x, y)
    assert_same(watched, plain)
    assert not session.watcher.shield.broken


def test_the_comparison_can_fail() -> None:
    plain = train(["linear"], "sgd", False, 1, False)
    other = train(["linear"], "sgd", True, 1, False)
    with pytest.raises(AssertionError):
        assert_same(other, plain)
    with pytest.raises(AssertionError):
        assert_same(torch.tensor(0.0), torch.tensor(-0.0))


def test_a_compiled_training_step(workshop: Workshop) -> None:
    """Forward, backward and update inside one compiled function: Dynamo must not meet nanwatch."""
    workshop.write(
        "script.py",
        """
        import torch
        torch.manual_seed(0)
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        @torch.compile(backend="eager")
        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            optimizer.step()
            return loss

        for _ in range(3):
            print(step(torch.ones(1, 2)).item(), model.weight.tolist())
        """,
    )
    _, watched = workshop.same("script.py")
    assert "nanwatch" not in watched.stderr


def test_tensors_without_values(tmp_path: Any) -> None:
    """Meta and fake tensors hold no numbers: there is nothing to read in them."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with nanwatch.watch(dir=tmp_path) as session:
        with FakeTensorMode():
            assert nn.Linear(3, 4)(torch.ones(2, 3)).shape == (2, 4)
        assert nn.Linear(3, 4, device="meta")(torch.ones(2, 3, device="meta")).shape == (2, 4)
    assert session.incidents == []
    assert not session.watcher.shield.broken
