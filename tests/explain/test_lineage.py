"""Every op of a bad step, with what made its inputs; and nothing of the program is touched by finding out."""

from __future__ import annotations

import copy
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import nanwatch
import nanwatch.explain.diagnose as diagnosing
from nanwatch.explain.case import Case
from nanwatch.explain.lineage import Lineage, Node
from nanwatch.explain.provenance import COUNT, MARKS, VALUES, is_state, nature, only_data, summed_weights
from nanwatch.records import Cause

Seen = Callable[[str, Callable[[Case], Any]], Any]

LOOP = """
    import torch
    import torch.nn.functional as F
    from torch import nn

    torch.manual_seed(0)
    model = nn.Linear(3, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(3):
        x = torch.randn(5, 3)
        keep = torch.ones(5, 4)
        if step == 2:
            keep[3] = 0.0
        {body}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
MASKED_MEAN = "h = model(x); loss = ((h * keep).sum(1) / keep.sum(1)).mean()"


@pytest.fixture(params=["live trace", "replay"])
def in_case(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Runs a program in this process and asks about the case of its incident."""
    audit = {} if request.param == "live trace" else {"audit_seconds": 0.0, "audit_share": 0.0}

    def run(body: str, ask: Callable[[Case], Any]) -> Any:
        answers: list[Any] = []

        def diagnose(case: Case) -> diagnosing.Diagnosis:
            answers.append(ask(case))
            return diagnosing.Diagnosis(Cause())

        monkeypatch.setattr(diagnosing, "diagnose", diagnose)
        path = tmp_path / "program.py"
        path.write_text(textwrap.dedent(LOOP).format(body=body))
        code = compile(path.read_text(), str(path), "exec")
        from nanwatch.adapters.plain import Session

        with pytest.raises(nanwatch.NonFiniteError), Session(folder=tmp_path / "run", **audit):
            exec(code, {"__name__": "__main__"})
        return answers[0]

    return run


def birth_in(case: Case) -> tuple[Lineage, Node]:
    assert case.birth is not None
    node = case.lineage.node_of(case.birth.op)
    assert node is not None
    return case.lineage, node


def test_the_birth_is_found_and_its_operands_have_makers(in_case: Seen) -> None:
    def ask(case: Case) -> list[str | None]:
        lineage, node = birth_in(case)
        makers = [lineage.maker(node, name) for name in ("self", "other")]
        return [node.name, *(maker and maker.base for maker in makers)]

    assert in_case(MASKED_MEAN, ask) == ["aten.div.Tensor", "sum", "sum"]


def test_what_the_program_made_outside_of_its_model_belongs_to_it(in_case: Seen) -> None:
    """`keep.sum(1)` hangs on no weight: a replay takes it as given, the lineage knows how it was made."""

    def ask(case: Case) -> tuple[Any, ...]:
        lineage, node = birth_in(case)
        weights = summed_weights(lineage, node)
        assert weights is not None
        return nature(lineage, node, "other"), nature(lineage, node, "self"), weights.min, weights.max

    assert in_case(MASKED_MEAN, ask) == (COUNT, VALUES, 0.0, 1.0)


def test_leaves_say_what_an_operand_hangs_on(in_case: Seen) -> None:
    def ask(case: Case) -> tuple[bool, ...]:
        lineage, node = birth_in(case)
        return (
            only_data(case, lineage, node, "other"),
            only_data(case, lineage, node, "self"),
            is_state(case, lineage, node, "self"),
        )

    assert in_case(MASKED_MEAN, ask) == (True, False, False)


def test_a_weight_is_known_as_one(in_case: Seen) -> None:
    def ask(case: Case) -> bool:
        lineage, node = birth_in(case)
        return is_state(case, lineage, node, "other")

    spoil = "model.bias.data.zero_() if step == 2 else None; loss = (model(x) / model.bias).mean()"
    assert in_case(spoil, ask) is True


def test_a_derivative_leads_to_its_forward_op(in_case: Seen) -> None:
    def ask(case: Case) -> tuple[str, str, bool]:
        lineage, node = birth_in(case)
        forward = lineage.forward_of(node)
        assert forward is not None
        return node.phase, forward.base, node.own_code

    body = "h = model(x) * keep; loss = h.square().sum(1).sqrt().mean()"
    assert in_case(body, ask) == ("backward", "sqrt", False)


def test_upstream_and_downstream_are_the_same_way(in_case: Seen) -> None:
    def ask(case: Case) -> tuple[list[str], bool]:
        lineage, node = birth_in(case)
        above = list(lineage.upstream(node))
        return [n.base for n in above], all(node in lineage.downstream(n, 1000) for n in above)

    names, same = in_case(MASKED_MEAN, ask)
    assert {"sum", "mul", "addmm"} <= set(names)
    assert same


def test_in_a_loop_the_right_turn_is_found(in_case: Seen) -> None:
    def ask(case: Case) -> list[float | None]:
        _, node = birth_in(case)
        return [node.given["other"].min, node.given["other"].max]

    body = "loss = sum((model(x)[i].sum() / keep[i].sum()) for i in range(5))"
    assert in_case(body, ask) == [0.0, 0.0]


def test_marks_are_known_by_their_values_and_their_dtypes(in_case: Seen) -> None:
    def ask(case: Case) -> str:
        lineage, node = birth_in(case)
        maker = lineage.maker(node, "other")
        assert maker is not None
        return nature(lineage, maker, "self")

    assert in_case(MASKED_MEAN, ask) == MARKS
    signed = (
        "w = keep * 2 - 1; w[3] = torch.tensor([1.0, -1, 1, -1]); loss = (model(x).sum(1) / w.sum(1)).mean()"
    )
    assert in_case(signed, ask) == VALUES


def test_looking_leaves_nothing_behind(in_case: Seen) -> None:
    def ask(case: Case) -> tuple[bool, bool]:
        model = case.models[0]
        before = copy.deepcopy(model.state_dict())
        gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
        rng = torch.get_rng_state()
        assert case.lineage.nodes
        same = all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
        kept = all(
            (p.grad is None) == (g is None)
            and (
                g is None
                or torch.equal(
                    p.grad,
                    g,
                )
                or bool(g.isnan().any())
            )
            for p, g in zip(model.parameters(), gradients, strict=True)
        )
        return same and kept, torch.equal(rng, torch.get_rng_state())

    assert in_case("h = F.dropout(model(x)) * keep; loss = (h.sum(1) / keep.sum(1)).mean()", ask) == (
        True,
        True,
    )
