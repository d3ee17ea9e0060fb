"""What may be given to LastGood: any object with state, sooner or later, wrapped or not; and what may not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from snapshot_trainings import Training, adam, assert_same, batchnorm_onecycle, net, seed, sgd

from nanwatch import LastGood, NanwatchError


@pytest.fixture(params=["memory", "disk"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "last-good" if request.param == "disk" else None


class Odd:
    """State with something that no snapshot may hold."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {"count": 1, "deep": [1, {"function": len}], "tensor": torch.ones(2)}

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state


def test_what_cannot_be_kept_is_named_and_the_rest_is_kept(
    place: Path | None, capfd: pytest.CaptureFixture[str]
) -> None:
    odd, training = Odd(), adam()
    training.optimizer.param_groups[0]["decides"] = abs
    with LastGood(*training.objects, odd, every=1, dir=place) as last_good:
        last_good.step(0)
        last_good.step(1)
        odd.state = {"count": 5, "deep": [9, {"function": max}], "tensor": torch.zeros(2)}
        training.optimizer.param_groups[0] |= {"decides": min, "lr": 5.0}
        assert last_good.rollback() == 1
    assert (odd.state["count"], odd.state["deep"]) == (1, [1, {"function": max}])
    assert odd.state["tensor"].tolist() == [1, 1]
    assert training.optimizer.param_groups[0]["lr"] == 0.01
    assert training.optimizer.param_groups[0]["decides"] is min
    (line,) = capfd.readouterr().err.splitlines()
    assert "cannot hold 1.Adam.param_groups.0.decides (builtin_function_or_method), " in line
    assert "2.Odd.deep.1.function (builtin_function_or_method): only tensors, numbers" in line


def test_an_object_that_refuses_its_state_leaves_all_as_it_was(capfd: pytest.CaptureFixture[str]) -> None:
    class Refuses(Odd):
        def load_state_dict(self, state: dict[str, Any]) -> None:
            if state["count"] == 2:
                raise ValueError("not this one")
            super().load_state_dict(state)

    training, first, refuses = adam(), Odd(), Refuses()
    with LastGood(*training.objects, first, refuses, every=1) as last_good:
        for step in range(2):
            training.step()
            first.state = {"count": 10 + step}
            refuses.state = {"count": 1 + step}
            last_good.step(step)
            if step == 0:
                good = training.bits()
        assert last_good.rollback() == 0
    assert_same(good, training.bits())
    assert (first.state, refuses.state) == ({"count": 10}, {"count": 1})
    assert "step 1 is passed over: Refuses does not take its state (ValueError: not this one)." in (
        capfd.readouterr().err
    )


def test_objects_may_come_later(capfd: pytest.CaptureFixture[str]) -> None:
    training = sgd()
    with LastGood(training.model, every=100) as last_good:
        last_good.step(1)
        last_good.add(training.optimizer, training.model)
        with pytest.raises(NanwatchError, match="every one on this or another rank was passed over"):
            last_good.rollback()
        last_good.step(2)
        good = training.bits()
        training.step()
        assert last_good.rollback() == 2
        last_good.step(3)  # not due
        assert last_good.rollback() == 2
    assert_same(good[:2], training.bits()[:2])
    assert capfd.readouterr().err == (
        "nanwatch: the snapshot step 1 is passed over: it was taken of 1 objects, and there are 2 now.\n"
    )


def test_what_is_inside_another_is_taken_once() -> None:
    model = net()
    with LastGood(model, model[0], every=1) as last_good:
        last_good.add(model[-1], model)
        last_good.step(0)
        last_good.wait()
        (state,) = (last_good._shelf.get(id) for id in last_good._shelf.ids())
        assert len(state.outline["objects"]) == 1


def test_prepared_by_accelerate(place: Path | None) -> None:
    from accelerate import Accelerator

    seed()
    training = batchnorm_onecycle()
    prepared = Training(*Accelerator(cpu=True).prepare(*training.objects))
    with LastGood(*prepared.objects, every=1, dir=place) as last_good:
        for step in range(3):
            prepared.step()
            prepared.more[0].step()
            last_good.step(step)
        good = prepared.bits()
        prepared.spoil()
        prepared.more[0].step()
        assert last_good.rollback() == 2
        assert_same(good, prepared.bits())


def test_compiled_today_and_not_tomorrow(tmp_path: Path) -> None:
    seed()
    training = adam()
    compiled = torch.compile(training.model, backend="eager")
    with LastGood(compiled, training.optimizer, every=1, dir=tmp_path) as last_good:
        training.step()
        last_good.step(0)
    good = training.bits()
    training.spoil()
    with LastGood(*training.objects, dir=tmp_path) as last_good:
        assert last_good.rollback() == 0
    assert_same(good, training.bits())


def test_a_parameter_group_added_since_stays_and_starts_anew() -> None:
    training, extra = adam(), torch.ones(2, requires_grad=True)
    with LastGood(*training.objects, every=100) as last_good:
        training.step()
        last_good.step(0)
        good = training.bits()
        training.optimizer.add_param_group({"params": [extra], "lr": 0.5})
        training.optimizer.state[extra]["exp_avg"] = torch.full((2,), float("nan"))
        assert last_good.rollback() == 0
    assert_same(good[0], training.bits()[0])
    assert extra not in training.optimizer.state
    assert training.optimizer.param_groups[1]["params"] == [extra]


def test_a_generator_goes_back_too(place: Path | None) -> None:
    generator, model = torch.Generator().manual_seed(3), net()
    with LastGood(model, generator, dir=place) as last_good:
        last_good.step(0)
        drawn = torch.rand(4, generator=generator)
        last_good.rollback()
        assert torch.equal(torch.rand(4, generator=generator), drawn)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"every": 0}, "every is 0; a whole number of at least 1 was expected"),
        ({"every": 2.5}, "every is 2.5; a whole"),
        ({"keep": True}, "keep is True; a whole"),
    ],
)
def test_wrong_numbers(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(NanwatchError, match=said):
        LastGood(net(), **arguments)


def test_wrong_objects() -> None:
    with pytest.raises(NanwatchError, match="was given a int; a model, an optimizer"):
        LastGood(net(), 5)
