"""What each policy does with a bad step, for every kind of training loop."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import small_training as small
import torch
from small_training import BAD_STEP, assert_same, bad_loss, batch, good_loss, network, state_of, train
from torch import nn
from workshop import Workshop

import nanwatch

Watch = Callable[..., nanwatch.Session]
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "fused adam": lambda p: torch.optim.Adam(p, lr=0.01, fused=True),
    "foreach rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, foreach=True),
}


def all_finite(model: nn.Module) -> bool:
    return all(bool(t.isfinite().all()) for t in model.state_dict().values())


def test_raise_stops_before_the_weights_are_touched(watch: Watch, tmp_path: Path) -> None:
    model = network()
    optimizer = OPTIMIZERS["adamw"](model.parameters())
    session = watch(model, optimizer)
    with pytest.raises(nanwatch.NonFiniteError) as raised:
        train(model, optimizer, bad=[BAD_STEP])
    expected = network()
    its_optimizer = OPTIMIZERS["adamw"](expected.parameters())
    session.close()
    train(expected, its_optimizer, steps=BAD_STEP)
    assert_same([p.detach() for p in model.parameters()], [p.detach() for p in expected.parameters()])
    assert_same(optimizer.state_dict(), its_optimizer.state_dict())
    incident = raised.value.incident
    assert (incident.step, incident.action, incident.kind, incident.phase) == (
        BAD_STEP,
        "raised",
        "nan",
        "loss",
    )
    assert (incident.birth.op, incident.birth.module) == ("aten.sqrt.default", None)
    assert Path(incident.birth.file).name == "small_training.py"
    assert incident.birth.code == "return torch.sqrt(out.square().mean() * 0 - 1)"
    assert str(raised.value) == (
        f"NaN at step {BAD_STEP}: aten.sqrt.default at {small.__file__}:{incident.birth.line}. "
        f"See {tmp_path}/run/incidents/0001"
    )
    written = json.loads((tmp_path / "run/incidents/0001/incident.json").read_text())
    assert (written["step"], written["action"]) == (BAD_STEP, "raised")


def test_one_may_go_on_after_the_error(watch: Watch) -> None:
    """A script that catches the error goes on with weights that were never touched."""
    model = network()
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    watch(model, optimizer)
    for step in range(small.STEPS):
        optimizer.zero_grad()
        out = model(batch(step))
        (bad_loss(out) if step == BAD_STEP else good_loss(out)).backward()
        try:
            optimizer.step()
        except nanwatch.NonFiniteError:
            assert step == BAD_STEP
    assert all_finite(model)


@pytest.mark.parametrize("audit", [True, False], ids=["audit", "no audit"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_skip_is_as_if_the_step_had_never_been(watch: Watch, name: str, audit: bool) -> None:
    """Weights, moments, step counts, BatchNorm's statistics and the schedule, bit for bit."""
    results = []
    for watched in (True, False):
        model = network()
        optimizer = OPTIMIZERS[name](model.parameters())
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
        if watched:
            options = {} if audit else {"audit_seconds": 0, "audit_share": 0}
            session = watch(model, optimizer, policy="skip", **options)
            train(model, optimizer, bad=[BAD_STEP], after=lambda _, s=schedule: s.step())
            session.close()
            (incident,) = session.incidents
            assert (incident.step, incident.action) == (BAD_STEP, "skipped")
        else:
            train(
                model, optimizer, left_out=[BAD_STEP], after=lambda step, s=schedule: _not_after_bad(step, s)
            )
        results.append(state_of(model, optimizer, schedule))
    assert_same(*results)


def _not_after_bad(step: int, schedule: torch.optim.lr_scheduler.LRScheduler) -> None:
    if step != BAD_STEP:
        schedule.step()


def test_observe_does_not_interfere(watch: Watch) -> None:
    results = []
    for watched in (True, False):
        model = network()
        optimizer = OPTIMIZERS["sgd"](model.parameters())
        if watched:
            session = watch(model, optimizer, policy="observe")
        train(model, optimizer, bad=[BAD_STEP])
        if watched:
            session.close()
            assert session.incidents[0].action == "observed"
            assert session.incidents[0].step == BAD_STEP
        results.append(state_of(model, optimizer))
    assert_same(*results)


def test_many_bad_steps_are_all_left_out_and_counted(watch: Watch, tmp_path: Path, capfd: Any) -> None:
    bad = range(1, 14)
    model = network()
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    session = watch(policy="skip")
    train(model, optimizer, bad=bad, steps=16)
    session.close()
    expected = network()
    its_optimizer = OPTIMIZERS["sgd"](expected.parameters())
    train(expected, its_optimizer, left_out=bad, steps=16)
    assert_same(state_of(model, optimizer), state_of(expected, its_optimizer))
    assert len(list((tmp_path / "run/incidents").iterdir())) == 10
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("nanwatch:")]
    assert len(lines) == 1 and "13" in lines[0]


def test_gan_only_the_bad_optimizer_is_held_back(watch: Watch) -> None:
    def play(bad: int | None, left_out: int | None) -> list[Any]:
        torch.manual_seed(0)
        generator, judge = nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        for_judge = torch.optim.Adam(judge.parameters(), lr=0.01)
        for_generator = torch.optim.Adam(generator.parameters(), lr=0.01)
        for step in range(5):
            fake = generator(batch(step)[:, :3])
            for_judge.zero_grad()
            (judge(fake.detach()).square().mean() + (judge(batch(step)) - 1).square().mean()).backward()
            for_judge.step()
            if step == left_out:
                continue
            for_generator.zero_grad()
            out = judge(fake)
            (bad_loss(out) if step == bad else good_loss(out)).backward()
            for_generator.step()
        return state_of(generator, judge, for_judge, for_generator)

    session = watch(policy="skip")
    found = play(2, None)
    session.close()
    assert [(i.step, i.action, i.birth.op) for i in session.incidents] == [
        (5, "skipped", "aten.sqrt.default")
    ]
    assert_same(found, play(None, 2))


def closures(optimizer_of: Callable[[Any], torch.optim.Optimizer], bad: int | None) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = optimizer_of(model.parameters())
    for step in range(5):

        def closure(step: int = step) -> torch.Tensor:
            optimizer.zero_grad()
            out = model(batch(step))
            loss = bad_loss(out) if step == bad else good_loss(out)
            loss.backward()
            return loss

        optimizer.step(closure)
    return model


@pytest.mark.parametrize("name", ["sgd", "lbfgs"])
def test_closures(watch: Watch, name: str) -> None:
    makers: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
        "lbfgs": lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=3),
    }
    session = watch(policy="raise")
    healthy = closures(makers[name], None)
    with pytest.raises(nanwatch.NonFiniteError):
        closures(makers[name], 2)
    session.close()
    assert [(i.birth.op, i.step) for i in session.incidents] == [("aten.sqrt.default", 7)]
    assert_same(state_of(healthy), state_of(closures(makers[name], None)))


@pytest.mark.parametrize(
    "name",
    [
        "sgd",
        "lbfgs",
    ],
)
def test_a_bad_closure_is_skipped(watch: Watch, name: str) -> None:
    makers: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
        "lbfgs": lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=3),
    }
    session = watch(policy="skip")
    model = closures(makers[name], 2)
    session.close()
    assert session.incidents[0].birth.op == "aten.sqrt.default"
    assert session.incidents[0].action == "skipped"
    assert all_finite(model)


def scaled(bad: int | None, left_out: int | None, first_scale: float) -> list[Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=first_scale, growth_interval=3)
    for step in range(8):
        if step == left_out:
            continue
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            out = model(batch(step))
            loss = bad_loss(out.float()) if step == bad else good_loss(out.float())
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    return state_of(model, optimizer, scaler)


def test_a_scalers_search_is_no_incident(watch: Watch) -> None:
    """The first steps overflow float16 and the scaler skips them: healthy, and not a bit is changed."""
    session = watch(policy="raise")
    found = scaled(None, None, 2.0**30)
    session.close()
    expected = scaled(None, None, 2.0**30)
    assert expected[2]["scale"] < 2.0**30, "the scaler did not have to search"
    assert session.incidents == []
    assert_same(found, expected)


def test_a_bad_loss_under_a_scaler(watch: Watch) -> None:
    session = watch(policy="skip")
    found = scaled(4, None, 2.0**8)
    session.close()
    (incident,) = session.incidents
    assert (incident.step, incident.birth.op, incident.action) == (4, "aten.sqrt.default", "skipped")
    assert_same(found, scaled(None, 4, 2.0**8))  # the scaler has not learned from it


def by_hand(bad: int | None) -> nn.Module:
    model = network()
    for step in range(5):
        out = model(batch(step))
        (bad_loss(out) if step == bad else good_loss(out)).backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad
                p.grad = None
    return model


def test_an_update_by_hand_is_stopped_before_it_is_made(watch: Watch) -> None:
    session = watch(policy="raise")
    model = network()
    before = state_of(model)
    with pytest.raises(nanwatch.NonFiniteError):
        bad_loss(model(batch(0))).backward()
    session.close()
    assert session.incidents[0].birth.op == "aten.sqrt.default"
    assert_same([p.detach() for p in model.parameters()], [before[0][n] for n, _ in model.named_parameters()])


def test_an_update_by_hand_cannot_be_skipped_and_is_not_said_to_be(watch: Watch) -> None:
    session = watch(policy="skip")
    model = by_hand(2)
    session.close()
    assert session.incidents[0].birth.op == "aten.sqrt.default"
    assert session.incidents[0].action == ("skipped" if all_finite(model) else "observed")


def test_evaluation_between_steps_is_no_step(watch: Watch, tmp_path: Path) -> None:
    def play() -> list[Any]:
        model = network()
        optimizer = OPTIMIZERS["sgd"](model.parameters())
        seen = []

        def evaluate(step: int) -> None:
            model.eval()
            with torch.no_grad():
                seen.append(model(batch(100 + step)))
            model.train()

        train(model, optimizer, after=evaluate)
        return [*state_of(model, optimizer), seen]

    session = watch()
    found = play()
    session.close()
    assert_same(found, play())
    lines = [json.loads(line) for line in (tmp_path / "run/steps-rank0.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(small.STEPS))
    assert all(isinstance(line["loss"], float) and line["grad_norm"] > 0 for line in lines)


SCRIPT = """
    import torch
    model = torch.nn.Linear(4, 1, bias=False)
    torch.nn.init.constant_(model.weight, -1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(4):
        optimizer.zero_grad()
        out = model(torch.ones(2, 4))
        loss = out.sqrt().mean() if step == 2 else out.square().mean()
        loss.backward()
        optimizer.step()
        print(step, flush=True)
    print(bool(model.weight.isfinite().all()))
"""
INFERENCE = """
    import torch
    model = torch.nn.Linear(2, 2)
    torch.nn.init.ones_(model.weight); torch.nn.init.zeros_(model.bias)
    for call in range(4):
        out = model(torch.full((1, 2), 3e38 if call == 2 else 1.0))
        print(out.detach().tolist(), flush=True)
"""


@pytest.mark.parametrize(
    ("policy", "code", "out"),
    [
        ("raise", 3, "0\n1\n"),
        ("skip", 0, "0\n1\n2\n3\nTrue\n"),
        ("observe", 0, "0\n1\n2\n3\nFalse\n"),
    ],
)
def test_policies_of_a_run(workshop: Workshop, policy: str, code: int, out: str) -> None:
    workshop.write("script.py", SCRIPT)
    done = workshop.watched("--policy", policy, "script.py")
    assert (done.returncode, done.stdout) == (code, out), done.stderr
    incident = json.loads((workshop.runs / "incidents/0001/incident.json").read_text())
    actions = {"raise": "raised", "skip": "skipped", "observe": "observed"}
    assert (incident["step"], incident["action"]) == (2, actions[policy])
    assert incident["birth"]["op"] == "aten.sqrt.default"
    assert json.loads((workshop.runs / "run.json").read_text())["policy"] == policy


@pytest.mark.parametrize(("policy", "code", "calls"), [("raise", 3, 3), ("observe", 0, 4)])
def test_a_program_that_only_infers(workshop: Workshop, policy: str, code: int, calls: int) -> None:
    workshop.write("script.py", INFERENCE)
    done = workshop.watched("--policy", policy, "script.py")
    assert done.returncode == code, done.stderr
    assert len(done.stdout.splitlines()) == calls
    incident = json.loads((workshop.runs / "incidents/0001/incident.json").read_text())
    assert (incident["step"], incident["kind"], incident["phase"]) == (2, "inf", "forward")
    assert incident["birth"]["op"] in ("aten.addmm.default", "aten.linear.default")


@pytest.mark.parametrize(
    "end",
    [
        "",
        "import sys; sys.exit(5)",
        "raise KeyError('own')",
    ],
)
def test_a_verdict_that_comes_with_the_end(workshop: Workshop, end: str) -> None:
    """The output of the last call is judged when the program ends, however it ends."""
    script = INFERENCE.replace("range(4)", "range(3)")
    workshop.write("script.py", script)
    with open(workshop.folder / "script.py", "a") as file:
        file.write(f"\n{end}\n")
    done = workshop.watched("script.py")
    assert done.returncode == 3, done.stderr
    assert len(list((workshop.runs / "incidents").iterdir())) == 1
    assert "NonFiniteError" not in done.stderr


def test_a_stop_that_the_program_turns_into_an_error_of_its_own(workshop: Workshop) -> None:
    workshop.write(
        "script.py",
        """
        import torch
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        try:
            (model(torch.ones(1, 2)).mean() * 0 - 1).log().backward()
            optimizer.step()
        except FloatingPointError as error:
            raise RuntimeError("trainer failed") from error
        """,
    )
    done = workshop.watched("script.py")
    assert done.returncode == 3
    assert done.stderr.endswith("RuntimeError: trainer failed\n")
