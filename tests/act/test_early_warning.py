"""Early warnings: said before the overflow, once, with numbers; and not said where nothing is wrong."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import nanwatch
from nanwatch.act.alarm import HEADROOM, OVERFLOW, SCALE, SPIKE, Alarm, bounded_factor
from nanwatch.act.early_warning import EarlyWarning
from nanwatch.records import StepFacts

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.early_warning import figures, judge
from bench.small_trainings import Training, records

CALLS = ("forward", "backward", "step")


def heard(steps: Iterable[StepFacts]) -> list[Alarm]:
    warning = EarlyWarning()
    return [alarm for facts in steps for alarm in warning.see(facts)]


def run(
    losses: Iterable[float], noise: float = 0.0, seed: int = 0, rate: Callable[[int], float] = lambda s: 1e-3
) -> list[StepFacts]:
    """Steps with these losses, gradients to match, and noise on both."""
    draw = random.Random(seed)
    return [
        StepFacts(
            step,
            loss * math.exp(noise * draw.gauss(0, 1)),
            3 * math.sqrt(abs(loss)) * math.exp(noise * draw.gauss(0, 1)) + 1e-9,
            (rate(step),),
            events=CALLS,
        )
        for step, loss in enumerate(losses)
    ]


def falling(step: int) -> float:
    return 2.0 * math.exp(-step / 80) + 0.2


# Nothing is wrong

HEALTHY: dict[str, Callable[[int], float]] = {
    "a loss that falls": falling,
    "a curriculum that becomes harder": lambda s: falling(s % 100) * (1 + 9 * (s // 100)),
    "spikes at the ends of epochs": lambda s: falling(s) * (30 if s % 50 == 49 else 1),
    "a loss that falls to nothing": lambda s: 10.0 ** (-s / 20),
    "a loss near zero that jumps about": lambda s: 10.0 ** (-6 + 4 * math.sin(s * s)) if s > 20 else 1.0,
    "a loss that goes below zero": lambda s: 5.0 - 0.1 * s,
    "a likelihood that goes far below zero": lambda s: 5.0 - 20.0 * s,
    "either sign, around zero": lambda s: math.sin(s * 1.7) * 0.1,
    "a rise at the beginning, and then down": lambda s: 1 + s / 3 if s < 12 else 5 * math.exp(-s / 80),
    "a loss that is always the same": lambda s: 1.0,
    "a loss of zero": lambda s: 0.0,
}


@pytest.mark.parametrize("what", HEALTHY)
@pytest.mark.parametrize("noise", [0.0, 0.1, 0.6])
def test_nothing_is_said_about(what: str, noise: float) -> None:
    for seed in range(8):
        assert heard(run(map(HEALTHY[what], range(400)), noise, seed)) == []


RATES: dict[str, Callable[[int], float]] = {
    "warm-up": lambda s: 1e-3 * min(1.0, s / 100),
    "drops": lambda s: 1e-2 * 0.1 ** (s // 100),
    "restarts": lambda s: 1e-3 * (0.51 + 0.49 * math.cos(math.pi * (s % 100) / 100)),
    "a raise": lambda s: 1e-4 if s < 200 else 1e-2,
}


@pytest.mark.parametrize("rates", RATES)
def test_nothing_is_said_about_a_schedule(rates: str) -> None:
    def loss(step: int) -> float:  # lower where the rate was lowered, higher where it was raised
        return falling(step) * RATES[rates](step) ** 0.5 / RATES[rates](399) ** 0.5 + 0.1

    for seed in range(8):
        assert heard(run(map(loss, range(400)), 0.2, seed, RATES[rates])) == []


@pytest.mark.parametrize("told_apart_by", ["rate", "calls", "groups", "nothing"])
def test_nothing_is_said_about_optimizers_that_take_turns(told_apart_by: str) -> None:
    """Losses and gradients of two sizes, one after the other."""
    draw = random.Random(1)
    steps = []
    for step in range(400):
        second = step % 2 == 1
        size = 1e-3 if second else 40.0
        lr = (4e-4,) if second and told_apart_by == "rate" else (1e-4,)
        lr = (*lr, 1e-4) if second and told_apart_by == "groups" else lr
        calls = ("forward", *CALLS) if second and told_apart_by == "calls" else CALLS
        value = size * math.exp(0.3 * draw.gauss(0, 1))
        steps.append(StepFacts(step, value, 5 * value, lr, events=calls))
    assert heard(steps) == []


@settings(max_examples=50, deadline=None)
@given(
    values=st.lists(
        st.one_of(st.none(), st.sampled_from(["nan", "inf", "-inf"]), st.floats(allow_nan=False)), max_size=60
    ),
    lr=st.lists(st.floats(), max_size=3),
)
def test_whatever_a_record_holds_it_is_taken(values: list[float | str | None], lr: list[float]) -> None:
    for alarm in heard(StepFacts(s, v, v, tuple(lr), events=CALLS) for s, v in enumerate(values)):
        assert alarm.sentence()


@settings(max_examples=150, deadline=None)
@given(
    parts=st.lists(
        st.tuples(st.floats(0.5, 3.0), st.integers(1, 40), st.sampled_from([1e-3, 1e-4, 5e-4])), max_size=8
    ),
    odd=st.dictionaries(st.integers(0, 200), st.sampled_from([math.inf, math.nan, 0.0, 1e7, None, "nan"])),
    noise=st.floats(0, 0.3),
    seed=st.integers(0, 9),
)
def test_steps_that_wait_for_each_other_are_heard_like_steps_that_come_alone(
    parts: list[tuple[float, int, float]], odd: dict[int, Any], noise: float, seed: int
) -> None:
    losses, rates = [1.0], [1e-3]
    for factor, steps, rate in parts:
        for _ in range(steps):
            losses.append(min(losses[-1] * factor, 1e30))
            rates.append(rate)
    steps = run(losses, noise, seed, rates.__getitem__)
    steps = [replace(f, loss=odd[f.step]) if f.step in odd else f for f in steps]

    waiting, at_once = EarlyWarning(), EarlyWarning()

    assert [waiting.see(facts) for facts in steps] == [at_once._see(facts) for facts in steps]


# A rise


@settings(max_examples=40, deadline=None)
@given(
    factor=st.floats(1.15, 12.0),
    healthy=st.integers(0, 150),
    noise=st.floats(0, 0.05),
    seed=st.integers(0, 9),
)
def test_a_rise_is_said_once_and_long_before_it_overflows(
    factor: float, healthy: int, noise: float, seed: int
) -> None:
    end = healthy + int(37 / math.log10(factor))
    losses = [falling(s) if s < healthy else 2.5 * factor ** (s - healthy) for s in range(end)]
    alarms = [a for a in heard(run(losses, noise, seed)) if a.id == OVERFLOW]
    assert len(alarms) == 1
    alarm = alarms[0]
    assert healthy <= alarm.step < healthy + 0.7 * (end - healthy) and alarm.step <= end - 3
    assert alarm.rate is not None and alarm.rate < 1e-3
    assert alarm.clip is not None and alarm.clip < 20
    assert alarm.steps_left is not None and alarm.steps_left == pytest.approx(
        end - alarm.step, rel=0.5, abs=4
    )


def test_what_is_said() -> None:
    """All its numbers can be checked: twice the loss in a step, 3.4e38 in 128 of them."""
    layers = lambda s: {"layers": {"head.weight": [1.5 ** max(0, s - 60), 1.0], "body.weight": [9.0, 1.0]}}  # noqa: E731
    steps = [
        StepFacts(s, 2.0 ** max(0, s - 60), 1.0, (0.1,), events=CALLS, facts=layers(s)) for s in range(100)
    ]
    (alarm,) = heard(steps)
    assert (alarm.id, alarm.episode, alarm.of, alarm.since) == (OVERFLOW, 1, "loss", 60)
    assert alarm.factor == pytest.approx(2.0) and alarm.last == pytest.approx(2.0 ** (alarm.step - 60))
    assert alarm.steps_left == pytest.approx(60 + 128 - alarm.step, abs=2)
    assert alarm.layer == "head.weight"
    assert alarm.rate == pytest.approx(0.1 / (1 + 2**0.5), rel=0.05) and alarm.clip == 1.0
    assert alarm.sentence() == (
        f"nanwatch: step {alarm.step}: the loss has risen from 1 at step 60 to {alarm.last:.3g}, 2 times a "
        f"step of late. At this rate it overflows in about {alarm.steps_left} steps. head.weight grows most. "
        "What would stop it: a learning rate of 0.041; or clipping the gradients at a norm of 1, which is "
        "usual here."
    )


def test_it_is_said_in_chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NANWATCH_LANG", "zh")
    monkeypatch.setattr("sys.stderr", None)
    (alarm,) = heard(run(3.0**s for s in range(20)))
    assert "照此速度，约" in alarm.sentence() and "；或按范数" in alarm.sentence()
    assert "。 " not in alarm.sentence()


def test_a_rise_that_ended_is_one_episode_and_the_next_is_another() -> None:
    once = [1.0] * 60 + [3.0**s for s in range(12)]
    twice = [*once, *[1.0] * 60, *[9.0**s for s in range(12)]]
    alarms = heard(run(twice))
    assert [a.id for a in alarms] == [OVERFLOW, OVERFLOW]
    assert [a.episode for a in alarms] == [1, 2] and alarms[1].step > 130


def test_a_rise_that_goes_on_at_half_the_rate_is_said_again() -> None:
    def rate(step: int) -> float:
        return 0.1 if step < 75 else 0.05

    alarms = heard(run([1.0] * 60 + [2.0**s for s in range(60)], rate=rate))
    assert [a.id for a in alarms] == [OVERFLOW, OVERFLOW]
    assert alarms[0].step < 75 < alarms[1].step


def test_the_optimizer_whose_loss_rises_among_two_is_heard() -> None:
    steps = []
    for step in range(160):
        second = step % 2 == 1
        loss = (2.0 ** max(0, step // 2 - 40)) if second else 0.5
        steps.append(StepFacts(step, loss, 1.0, (1e-3,) if second else (1e-4,), events=CALLS))
    (alarm,) = heard(steps)
    assert alarm.of == "loss" and alarm.step % 2 == 1 and alarm.rate < 1e-3


def test_weights_that_grow_behind_a_quiet_loss_are_seen() -> None:
    steps = [
        StepFacts(s, 1.0, 1.0, (0.1,), events=CALLS, facts={"layers": {"a": [1.2**s, 1.0], "b": [1.0, 1.0]}})
        for s in range(40)
    ]
    (alarm,) = heard(steps)
    assert alarm.of == "weights" and alarm.layer == "a"


# A spike, the range, the scale


def test_a_spike_far_above_all_others_is_said_once() -> None:
    losses = [falling(s) for s in range(200)]
    losses[150], losses[152] = 4000.0, 5000.0
    alarms = heard(run(losses, 0.05))
    assert [a.id for a in alarms] == [SPIKE] and alarms[0].step == 150
    assert alarms[0].first == pytest.approx(falling(150), rel=0.5) and "usual" in alarms[0].sentence()


def test_a_gradient_that_is_clipped_does_no_harm() -> None:
    def steps(calls: tuple[str, ...]) -> list[StepFacts]:
        return [StepFacts(s, 1.0, 1e6 if s == 60 else 1.0, (0.1,), events=calls) for s in range(80)]

    assert [a.id for a in heard(steps(CALLS))] == [SPIKE]
    assert heard(steps(("forward", "backward", "clip", "step"))) == []


def audited(shares: Iterable[float], every: int = 1) -> list[StepFacts]:
    return [
        StepFacts(s * every, 1.0, 1.0, (0.1,), events=CALLS, facts={"range_used": {"decoder.out": share}})
        for s, share in enumerate(shares)
    ]


def test_a_module_that_comes_near_its_limit_is_named() -> None:
    rising = heard(audited((1e-3 * 1.3**s for s in range(26)), every=10))
    assert [a.id for a in rising][:1] == [OVERFLOW] and rising[0].layer == "decoder.out"
    assert rising[0].steps_left < 260 and "float32 (or bfloat16) for decoder.out" in rising[0].sentence()
    slow = heard(audited([0.05, 0.08, 0.12, 0.16, 0.2, 0.26, 0.3, 0.33]))
    assert [a.id for a in slow] == [HEADROOM] and "uses 0.26" in slow[0].sentence()


def test_a_mask_at_the_limit_of_the_dtype_is_no_lack_of_room() -> None:
    assert heard(audited([1.0] * 30)) == []
    assert heard(audited([1e-3, 0.9995] * 30)) == []
    assert heard(audited([0.3, 0.28, 0.31, 0.3] * 20)) == []


def scaled(falls_at: int, falls: int) -> list[StepFacts]:
    steps = []
    for step in range(falls_at + falls):
        fell = step - falls_at + 1
        calls = (
            "forward",
            "scale",
            "backward",
            "scaler-step",
            *(("scaler-skip",) if fell > 0 else ("step",)),
        )
        facts = {"scale_fell": fell} if fell >= 3 else {}
        scale = 65536.0 / 2 ** max(0, fell)
        steps.append(StepFacts(step, 1.0, 1.0, (0.1,), scale, events=calls, facts=facts))
    return steps


def test_a_scale_in_free_fall_is_said_once() -> None:
    (alarm,) = heard(scaled(50, 12))
    assert alarm.id == SCALE and alarm.step == 54 and alarm.steps_left == 11
    assert (alarm.first, alarm.last) == (65536.0, 2048.0) and "bfloat16" in alarm.sentence()


def test_a_scaler_that_looks_for_its_first_scale_is_let_alone() -> None:
    assert heard(scaled(0, 10)) == []
    assert [a.id for a in heard(scaled(0, 15))] == [SCALE]


# What to do about it


def test_the_rate_is_halved_for_an_overflow_ahead_and_has_a_floor() -> None:
    (ahead,) = heard(run(3.0**s for s in range(20)))
    assert ahead.asks_for_a_lower_rate
    assert bounded_factor(1e-2, lowest=1e-5, factor=0.5) == 0.5
    assert bounded_factor(1e-2, lowest=1e-5, factor=0.1) == 0.1
    assert bounded_factor(1.25e-5, lowest=1e-5, factor=0.5) == pytest.approx(0.8)
    assert bounded_factor(1e-5, lowest=1e-5, factor=0.5) == bounded_factor(0.0, lowest=0.0, factor=0.5) == 1.0
    (falls,) = heard(scaled(50, 12))
    assert not falls.asks_for_a_lower_rate


def test_the_advice_would_have_helped(one_thread: None) -> None:
    """A linear regression at a rate that diverges does not at the rate that the warning names."""
    wild = Training("linear", "sgd", 0.1, seed=0)
    alarms = heard(records(wild))
    assert alarms and alarms[0].rate is not None
    calm = judge("", records(Training("linear", "sgd", alarms[0].rate, seed=0)))
    assert judge("", records(wild)).ending == "diverged" and calm.ending == "healthy" and not calm.warnings


# Real trainings


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Small ops are slower on several."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_real_trainings(one_thread: None) -> None:
    """A part of `python -m bench.early_warning`, with loose bounds."""
    chosen = [
        Training(family, optimizer, rate, 5, half, steps=100)
        for family, optimizer, rate, half in [
            ("linear", "sgd", 0.005, False),
            ("linear", "sgd", 0.12, False),
            ("linear", "sgd", 0.15, False),
            ("linear", "sgd", 0.2, False),
            ("linear", "sgd", 0.08, True),
            ("linear", "momentum", 0.002, True),
            ("linear", "momentum", 0.1, False),
            ("mlp", "sgd", 0.02, True),
            ("mlp", "adam", 0.003, True),
            ("classes", "sgd", 0.05, True),
            ("rnn-tanh", "adam", 0.003, False),
            ("transformer", "adam", 0.003, True),
            ("policy", "sgd", 0.05, False),
            ("gan", "adam", 1e-3, False),
        ]
    ]
    found = figures([judge(training.name, records(training)) for training in chosen])
    assert found.healthy >= 9 and found.false == 0
    assert found.slow >= 3 and found.slow_warned == found.slow


def test_no_torch_is_needed() -> None:
    code = "import nanwatch.act.early_warning, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


class Scheduled:
    """What the program gives its steps: sequences that grow, a weight of a term that rises."""

    def __init__(self, key: str, values: Callable[[int], float]) -> None:
        self._key, self._values = key, values

    def given_to(self, step: int) -> dict[Hashable, float]:
        return {self._key: self._values(step), "batch": 32.0}


def rise_of(step: int) -> float:
    return 5.0 * min(1.2 ** max(0, step - 40), 1000.0)


@pytest.mark.parametrize("since", [0, 40])
def test_a_loss_that_grows_with_what_the_steps_are_given_is_no_divergence(since: int) -> None:
    def lengths(step: int) -> float:
        return 10.0 * rise_of(step + 40 - since)

    said = [
        [
            alarm.of
            for step in range(120)
            for alarm in warning.see(
                StepFacts(step, loss=rise_of(step + 40 - since), grad_norm=1.0 + step % 3, lr=(0.1,)),
                schedule,
            )
        ]
        for warning, schedule in (
            (EarlyWarning(), Scheduled("lengths", lengths)),
            (EarlyWarning(), Scheduled("lengths", lambda step: 10.0)),
            (EarlyWarning(), None),
        )
    ]
    assert said == [[], ["loss"], ["loss"]]


def test_a_rise_that_goes_on_when_no_more_is_given_is_said() -> None:
    warning = EarlyWarning()
    schedule = Scheduled("lengths", lambda step: 10.0 * rise_of(min(step, 60)))
    said = []
    for step in range(120):
        facts = StepFacts(step, loss=5.0 * 1.2 ** max(0, step - 40), grad_norm=1.0, lr=(0.1,))
        said += warning.see(facts, schedule)
    assert said and all(alarm.step > 60 for alarm in said)


def test_what_the_steps_are_given_is_read_from_the_tape(tmp_path: Path) -> None:
    schedule: list[dict[Hashable, float]] = []
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with nanwatch.watch(dir=tmp_path, audit_seconds=0.0, audit_share=0.0) as session:
        for step in range(3):
            out = model(torch.randn(4 * 2**step, 3))
            loss = out.square().mean() + 0.1 * (step + 1) * out.mean()
            optimizer.zero_grad()
            loss.backward()
            schedule.append(session.watcher.recorder.given_to(step))
            assert not session.watcher.recorder.given_to(step + 1)
            optimizer.step()
    (place,) = schedule[0].keys() - {"size"}
    assert [each["size"] for each in schedule] == [12, 24, 48]
    assert [each[place] for each in schedule] == pytest.approx([0.1, 0.2, 0.3])
