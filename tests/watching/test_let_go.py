"""What a model returned is not held longer than the program holds it, large as it may be."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nanwatch
from nanwatch.watching.let_go import LARGE_BYTES, let_go
from nanwatch.watching.recorder import Recorder
from nanwatch.watching.tape import Entry, Tape, tensors_in

Watch = Callable[..., nanwatch.Session]
ROWS, COLUMNS = 1024, LARGE_BYTES // 4 // 1024


class Wide(nn.Module):
    """Returns something large, in a container of the kind it is told."""

    def __init__(self, container: Callable[[Tensor], Any] = lambda t: t) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(4, 8)
        self.wide = nn.Linear(8, COLUMNS)
        self.container = container

    def forward(self, x: Tensor) -> Any:
        return self.container(self.wide(torch.tanh(self.first(x))))


def batch(step: int) -> Tensor:
    return torch.randn(ROWS, 4, generator=torch.Generator().manual_seed(step))


def hugging_face(t: Tensor) -> Any:
    from transformers.modeling_outputs import CausalLMOutput

    return CausalLMOutput(logits=t)


CONTAINERS: dict[str, Callable[[Tensor], Any]] = {
    "tensor": lambda t: t,
    "tuple": lambda t: (t, t.mean()),
    "dict": lambda t: {"logits": t, "more": [t.sum()]},
    "ModelOutput": hugging_face,
}


class Run:
    """A training that counts, in each backward, how many large outputs are alive."""

    def __init__(self, model: Wide, optimizer: torch.optim.Optimizer, bad_from: int | None = None) -> None:
        self._model, self._optimizer, self._bad_from = model, optimizer, bad_from
        self.kept: list[Any] = []
        self.alive: list[int] = []
        self._seen: list[weakref.ref[Tensor]] = []

    def steps(self, count: int, keep: bool = False) -> None:
        for step in range(count):
            self._optimizer.zero_grad()
            outputs = self._model(batch(step))
            (logits,) = (t for t in tensors_in(outputs) if t.dim() == 2)
            self._seen.append(weakref.ref(logits))
            if keep:
                self.kept.append(outputs)
            flat = logits.view(-1)
            loss = flat.square().mean()
            if self._bad_from is not None and step >= self._bad_from:
                loss = torch.log(flat.square().mean() * 0 - 1)
            loss.register_hook(lambda g: self.alive.append(sum(r() is not None for r in self._seen)))
            del logits, flat
            loss.backward()
            self._optimizer.step()


@pytest.mark.parametrize("kind", CONTAINERS)
def test_at_its_peak_a_step_holds_what_it_holds_unwatched(watch: Watch, kind: str) -> None:
    counts = []
    for watched in (False, True):
        model = Wide(CONTAINERS[kind])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if watched:
            watch(model, optimizer, mode="host", audit_seconds=0.0, audit_share=0.0)
        run = Run(model, optimizer)
        run.steps(4)
        counts.append(run.alive)
    assert counts[0] == counts[1] == [1, 1, 1, 1]


def test_in_device_mode_nothing_is_held_longer_either(watch: Watch) -> None:
    model = Wide()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    watch(model, optimizer, mode="device", audit_seconds=0.0, audit_share=0.0)
    run = Run(model, optimizer)
    run.steps(6)
    assert run.alive == [1] * 6


@pytest.mark.parametrize("mode", ["host", "device"])
def test_what_a_backward_does_not_need_is_not_there_when_it_begins(watch: Watch, mode: str) -> None:
    model = Wide()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=mode == "device")
    watch(model, optimizer, mode=mode, audit_seconds=0.0, audit_share=0.0)
    for step in range(3):
        optimizer.zero_grad()
        logits = model(batch(step))
        seen, loss = weakref.ref(logits), logits.sum()  # whose backward does not need them
        del logits
        alive: list[bool] = []
        loss.register_hook(lambda g, seen=seen, alive=alive: alive.append(seen() is not None))
        loss.backward()
        optimizer.step()
        assert alive == [False]


def test_micro_batches_whose_outputs_are_not_held(watch: Watch) -> None:
    """The bad one of three is left out, as if it had never come."""

    def trained(comes: bool) -> list[Tensor]:
        model = Wide()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        session = watch(model, optimizer, policy="skip", mode="host", audit_seconds=0.0, audit_share=0.0)
        for step in range(4):
            optimizer.zero_grad()
            for part in range(3):
                is_bad = step == 2 and part == 1
                if comes or not is_bad:
                    x = batch(3 * step + part) * (float("nan") if is_bad else 1.0)
                    model(x).square().mean().backward()
            optimizer.step()
        session.close()
        assert len(session.incidents) == comes
        return [p.detach() for p in model.parameters()]

    assert all(map(torch.equal, trained(False), trained(True)))


def test_what_the_program_keeps_stays_on_the_tape(watch: Watch) -> None:
    model = Wide(CONTAINERS["dict"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    session = watch(model, optimizer, mode="host", audit_seconds=0.0, audit_share=0.0)
    run = Run(model, optimizer)
    run.steps(3, keep=True)
    tape = session.watcher.recorder.finished[-1]
    (entry,) = (e for e in tape.entries if e.kind == "module")
    before = contents_of(entry)
    assert not let_go(tape)
    assert contents_of(entry) == before
    kept = run.kept[-1]["logits"]
    assert tape.made[id(kept)] is kept


def contents_of(entry: Entry) -> tuple[Any, ...]:
    given, made = tensors_in((entry.args, entry.kwargs)), [(id(t), version) for t, version in entry.made]
    return entry.kind, [id(t) for t in given], made, [id(t) for t in tensors_in(entry.outputs)]


@pytest.mark.parametrize("mode", ["host", "device"])
def test_the_bad_step_after_good_ones_is_named_and_explained(watch: Watch, mode: str) -> None:
    """Though its own outputs are not held."""
    model = Wide(CONTAINERS["tuple"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=mode == "device")
    watch(model, optimizer, mode=mode, policy="raise", audit_seconds=0.0, audit_share=0.0)
    with pytest.raises(nanwatch.NonFiniteError) as caught:
        Run(model, optimizer, bad_from=3).steps(7)
    incident = caught.value.incident
    assert (incident.step, incident.birth.op) == (3, "aten.log.default")
    assert incident.birth.code == "loss = torch.log(flat.square().mean() * 0 - 1)"
    assert incident.cause.certainty == "proved"


def test_a_model_that_depends_on_something_unknown_is_known_by_its_loss(watch: Watch) -> None:
    """Its outputs are gone, and on replay it makes others: no proof that a fault was transient."""
    scales = iter([1.0, 1.0, float("inf"), *[1.0] * 20])

    class Moody(Wide):
        def forward(self, x: Tensor) -> Any:
            return super().forward(x) * next(scales)

    model = Moody()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch(model, optimizer, mode="host", policy="raise", audit_seconds=0.0, audit_share=0.0)
    with pytest.raises(nanwatch.NonFiniteError) as caught:
        for step in range(4):
            optimizer.zero_grad()
            loss = model(batch(step)).mean()  # whose backward does not need them
            loss.backward()
            optimizer.step()
    incident = caught.value.incident
    assert incident.step == 2
    assert any("On replay the model gave other values" in note for note in incident.notes)
    assert incident.cause.certainty != "proved"


def test_earlier_steps_are_run_again_from_what_is_left_of_them(watch: Watch) -> None:
    model = Wide()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch(model, optimizer, mode="host", policy="raise", audit_seconds=0.0, audit_share=0.0)
    with pytest.raises(nanwatch.NonFiniteError) as caught:
        for step in range(5):
            x = batch(step)
            x[7, 2] = 1e38 if step == 3 else 0.0
            optimizer.zero_grad()
            loss = (model(x * 10) * 2).square().mean()
            loss.backward()
            optimizer.step()
    incident = caught.value.incident
    assert (incident.step, incident.birth.op, incident.birth.code) == (
        3,
        "aten.mul.Tensor",
        "loss = (model(x * 10) * 2).square().mean()",
    )
    assert {"lower-rate", "another-batch"} <= {experiment.name for experiment in incident.experiments}


def test_a_graph_that_hangs_on_an_earlier_step_is_replayed_from_there(watch: Watch) -> None:
    """A generator's output, made before the critic's update and differentiated after it."""
    generator, critic = Wide(), nn.Linear(COLUMNS, 1)
    ours = torch.optim.SGD(generator.parameters(), lr=0.1)
    theirs = torch.optim.SGD(critic.parameters(), lr=1e-6)
    watch(policy="raise", mode="host", audit_seconds=0.0, audit_share=0.0)
    with pytest.raises(nanwatch.NonFiniteError) as caught:
        for step in range(4):
            fake = generator(batch(step) * (1 if step < 2 else float("nan")))
            theirs.zero_grad()
            critic(fake.detach() if step < 2 else torch.zeros(2, COLUMNS)).mean().backward()
            theirs.step()
            ours.zero_grad()
            critic(fake).mean().backward()
            ours.step()
    assert caught.value.incident.step == 5
    assert caught.value.incident.phase == "data"


def test_a_view_of_a_weight_that_was_changed_under_no_grad(watch: Watch) -> None:
    """torch refuses to tell its history."""
    session = watch(policy="raise", mode="host", audit_seconds=0.0, audit_share=0.0)
    model = nn.Linear(4, COLUMNS * 300)
    with torch.no_grad():
        model.weight[:-1].mul_(0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with pytest.raises(nanwatch.NonFiniteError) as caught:
        for step in range(4):
            optimizer.zero_grad()
            loss = model(batch(step)[:1]).square().mean()
            (torch.log(loss * 0 - 1) if step == 3 else loss).backward()
            optimizer.step()
    assert caught.value.incident.birth.op == "aten.log.default"
    assert not session.watcher.shield.broken


def test_nested_tensors_are_left_as_they_are(watch: Watch) -> None:
    model = Wide()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    session = watch(model, optimizer, policy="raise", mode="host", audit_seconds=0.0, audit_share=0.0)
    for step in range(3):
        optimizer.zero_grad()
        x = batch(step)
        nested = torch.nested.as_nested_tensor([model(x[:512]), model(x[512:])])
        torch.nested.to_padded_tensor(nested, 0.0).square().mean().backward()
        optimizer.step()
    assert not session.watcher.shield.broken


class Block(nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.linear = nn.Linear(4 * number, 4)

    def forward(self, features: list[Tensor]) -> Tensor:
        return torch.tanh(self.linear(torch.cat(features, 1)))


def test_a_list_that_the_program_has_added_to_since_is_as_it_was_for_each_call(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nanwatch.watching.let_go.LARGE_BYTES", 0)
    torch.manual_seed(0)
    blocks, critic = nn.ModuleList(map(Block, (1, 2, 3))), nn.Linear(4, 1)
    ours = torch.optim.SGD(blocks.parameters(), lr=0.1)
    theirs = torch.optim.SGD(critic.parameters(), lr=0.1)
    watch(policy="raise", mode="host", audit_seconds=0.0, audit_share=0.0)
    with pytest.raises(nanwatch.NonFiniteError) as caught:
        for step in range(4):
            features = [torch.randn(8, 4)]
            for block in blocks:
                features.append(block(features))
            made = features[-1]
            root = torch.sqrt((made - made[1]).square().sum(1)).mean() if step == 2 else 0.0
            theirs.zero_grad()
            critic(made.detach()).mean().backward()
            theirs.step()
            ours.zero_grad()
            (critic(made).mean() + root).backward()
            ours.step()
    birth = caught.value.incident.birth
    assert birth.op == "aten.div.Tensor"
    assert birth.code == "root = torch.sqrt((made - made[1]).square().sum(1)).mean() if step == 2 else 0.0"


def test_a_tape_of_small_things_is_left_as_it_is() -> None:
    assert let_go(Tape(0))


def test_what_is_kept_for_a_verdict_goes_when_it_has_come() -> None:
    recorder = Recorder()
    recorder.remember(1, late=2)
    for step in range(1, 6):
        recorder.next_step(step)
    assert [tape.step for tape in recorder.finished] == [2, 3, 4]
    recorder.was_good(2)
    assert [tape.step for tape in recorder.finished] == [2, 3, 4]
    recorder.was_good(4)
    assert [tape.step for tape in recorder.finished] == [4]
