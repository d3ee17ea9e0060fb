"""Edits in the program's own optimizer, in branches in lines of their own, and of factorisations."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from nanwatch.explain.experiments.in_domain import within
from nanwatch.explain.twin import update_of, updated
from nanwatch.records import Incident, Remedy

IncidentOf = Callable[..., Incident]


def verified(incident: Incident) -> dict[str, Remedy]:
    return {remedy.id: remedy for remedy in incident.remedies if remedy.verified}


OWN = """
    import torch
    from torch import nn

    class Scaled(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {{"lr": 0.1}})
            self.mine = [p for group in self.param_groups for p in group["params"]]
            self.steps = 0

        @torch.no_grad()
        def step(self, closure=None):
            self.steps += 1
            for p in self.mine:
                p.sub_({update})

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    nn.init.zeros_(model[1].weight)
    optimizer = Scaled(model.parameters())
    optimizer.zero_grad()
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
"""


def test_an_edit_in_an_optimizer_is_tried_on_its_update(incident_of: IncidentOf) -> None:
    incident = incident_of(OWN.format(update="0.1 * p.grad / p.grad.norm()"))
    assert (incident.phase, incident.cause.id) == ("optimizer", "divide-by-zero")
    edit = verified(incident)["clamp-divisor"].edit
    assert edit is not None and "p.grad.norm().clamp_min(1e-08)" in edit


def test_a_number_that_an_optimizer_divides_by_is_kept_off_zero(incident_of: IncidentOf) -> None:
    incident = incident_of(OWN.format(update="p.grad / (1 - 1.0**self.steps)"))
    edit = verified(incident)["clamp-divisor"].edit
    assert edit is not None and "max((1 - 1.0**self.steps), 1e-08)" in edit


def test_an_edit_that_does_not_help_an_update_is_not_offered(incident_of: IncidentOf) -> None:
    """Zero over a small number is still zero, and its root has no inverse."""
    incident = incident_of(OWN.format(update="p.grad * (p.grad / p.grad.norm()).abs().rsqrt()"))
    assert incident.phase == "optimizer" and "clamp-divisor" not in verified(incident)


class Keeps(torch.optim.Optimizer):
    """Has its parameters and a moment of its own once more."""

    def __init__(self, params: list[nn.Parameter]) -> None:
        super().__init__(params, {"lr": 1.0})
        self.mine = list(params)
        self.moments = [torch.zeros_like(p) for p in params]

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        for p, moment in zip(self.mine, self.moments, strict=True):
            moment.add_(p.grad)
            p.sub_(moment)


def test_an_update_on_copies_writes_nothing_of_the_program() -> None:
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    optimizer = Keeps([weight])
    (made,) = updated(optimizer, True) or [torch.zeros(2)]
    assert made.tolist() == [0.0, 0.0] and update_of(optimizer, True)
    assert weight.tolist() == [1.0, 1.0] and optimizer.moments[0].tolist() == [0.0, 0.0]


def test_branches_in_lines_of_their_own_are_guarded_both(incident_of: IncidentOf) -> None:
    incident = incident_of("""
        import torch
        from torch import nn

        class Profile(nn.Module):
            def __init__(self):
                super().__init__()
                self.radius = nn.Parameter(torch.tensor(1.0))

            def forward(self, r):
                x = r / self.radius
                near = torch.sqrt(1 - x)
                far = torch.sqrt(x - 1)
                return torch.where(x < 1, near, far)

        model = Profile()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        optimizer.zero_grad()
        model(torch.tensor([0.25, 0.5, 2.0, 3.0])).sum().backward()
        optimizer.step()
    """)
    assert incident.cause.id == "where-gradient", incident.cause
    edit = verified(incident)["double-where"].edit
    assert edit is not None
    assert "near = torch.sqrt(1 - torch.where(x < 1, x, 0.5))" in edit
    assert "far = torch.sqrt(torch.where(x < 1, 1.5, x) - 1)" in edit


@pytest.mark.parametrize(
    "factors", ["values, vectors = torch.linalg.eigh", "vectors, values, _ = torch.linalg.svd"]
)
def test_values_that_are_there_twice_are_taken_apart(incident_of: IncidentOf, factors: str) -> None:
    incident = incident_of(f"""
        import torch

        weight = torch.nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([weight], lr=0.01)
        matrix = torch.diag(weight)
        {factors}(matrix)
        loss = (vectors * torch.arange(9.0).view(3, 3)).sum() + values.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """)
    assert incident.cause.id == "singular-gradient", incident.cause
    (edit,) = [r.edit for r in incident.remedies if r.id == "split-eigenvalues"]
    assert edit is not None and ".diag()" in edit


PREPARED = """
    import torch
    from torch import nn

    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for n in (3, 1):
        ramp = torch.arange(n, dtype=torch.float){ramp}
        levels = torch.stack([ramp, 1 - ramp], dim=1)
        optimizer.zero_grad()
        model(levels[:2] * 2).sum().backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("ramp", "edit"),
    [(".div_(n - 1)", ".div_(max((n - 1), 1e-08))"), (" / (n - 1)", " / (max((n - 1), 1e-08))")],
)
def test_an_edit_in_the_preparation_is_tried_with_all_that_follows_it(
    incident_of: IncidentOf, ramp: str, edit: str
) -> None:
    incident = incident_of(PREPARED.format(ramp=ramp))
    assert (incident.phase, incident.cause.id) == ("data", "divide-by-zero"), incident.cause
    found = verified(incident)["clamp-divisor"].edit
    assert found is not None and edit in found


def test_an_edit_after_which_the_step_still_fails_is_not_offered(incident_of: IncidentOf) -> None:
    """The divisor is a number then, and what follows divides by it once more."""
    incident = incident_of(PREPARED.format(ramp=".div_(n - 1).div_(n - 1)"))
    assert incident.phase == "data" and "clamp-divisor" not in verified(incident)


def test_what_lay_there_before_the_record_cannot_be_prepared_again(incident_of: IncidentOf) -> None:
    incident = incident_of("""
        import numpy
        import torch
        from torch import nn

        model = nn.Linear(2, 1)
        with torch.no_grad():
            model(torch.from_numpy(numpy.full((2, 2), numpy.nan, dtype="float32")) * 2)
    """)
    assert incident.phase == "data" and not any(r.edit for r in incident.remedies if r.verified)


def test_a_batch_of_one_is_tried_with_its_row_twice(incident_of: IncidentOf) -> None:
    incident = incident_of("""
        import torch
        from torch import nn

        class Norm(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(3))

            def forward(self, x):
                return (x - x.mean(0)) / (x.std(0) + 1e-3) * self.weight

        model = Norm()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for count in (4, 1):
            optimizer.zero_grad()
            model(torch.randn(count, 3)).sum().backward()
            optimizer.step()
    """)
    assert "row-twice" in {e.name for e in incident.experiments}
    assert "larger-batch" in {r.id for r in incident.remedies}


def test_a_power_inside_a_library_is_tried_in_its_domain(incident_of: IncidentOf) -> None:
    incident = incident_of("""
        import torch
        from torch import nn

        model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.LPPool2d(2.5, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        torch.manual_seed(0)
        optimizer.zero_grad()
        model(torch.randn(2, 1, 8, 8)).sum().backward()
        optimizer.step()
    """)
    assert incident.cause.id == "invalid-domain"
    assert "stay-in-domain" in verified(incident)


@pytest.mark.parametrize("name", ["sqrt", "log", "acos", "acosh"])
def test_what_is_brought_into_a_domain_has_a_value_there(name: str) -> None:
    values = torch.tensor([-3.0, 0.0, 0.5, 2.0])
    inside = within(name, values)
    assert getattr(torch, name)(inside).isfinite().all()
    had_one = getattr(torch, name)(values).isfinite()
    assert torch.allclose(inside[had_one], values[had_one], atol=1e-5)
