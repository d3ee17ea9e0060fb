"""Remedies that are settings: each has its own experiment, and only what helped is called verified."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import nanwatch
from nanwatch.explain.case import Case, Outcome
from nanwatch.explain.experiments import EXPERIMENTS
from nanwatch.explain.remedies import offer
from nanwatch.explain.remedies.settings import SETTINGS
from nanwatch.records import Incident, Remedy

Run = Callable[..., nanwatch.Session]
Ask = Callable[[str, Callable[[Case], Any]], Any]
IncidentOf = Callable[..., Incident]


def remedies_of(incident: Incident) -> dict[str, Remedy]:
    return {remedy.id: remedy for remedy in incident.remedies}


def verified(incident: Incident) -> set[str]:
    return {remedy.id for remedy in incident.remedies if remedy.verified}


def offering(*ids: str) -> Callable[[Case], dict[str, Remedy]]:
    return lambda case: {remedy.id: remedy for remedy in offer(case, *ids)}


def outcome_of(name: str) -> Callable[[Case], Outcome]:
    return lambda case: case.outcome(name)


def test_every_experiment_is_known_and_told() -> None:
    """Those that remedies name, and the table in the docs."""
    told = (Path(__file__).parents[2] / "docs" / "explain.md").read_text(encoding="utf-8")
    assert {name for setting in SETTINGS.values() for name in setting.experiments} <= set(EXPERIMENTS)
    table = [line.split("|")[1] for line in told.splitlines() if line.startswith("| `")]
    assert set(EXPERIMENTS) <= {name for cell in table for name in re.findall(r"`([^`]+)`", cell)}


# Training on: a lower rate, clipping, AdamW

REGRESSION = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    x = torch.randn(64, 4)
    y = 3 * x.sum(1, keepdim=True)
    model = nn.Sequential(nn.Linear(4, 16), nn.Linear(16, 1))
    optimizer = torch.optim.{optimizer}
    for step in range(40):
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        {clip}
        optimizer.step()
"""


def regression(optimizer: str, clip: str = "pass") -> str:
    return REGRESSION.format(optimizer=optimizer, clip=clip)


def test_what_is_advised_against_a_high_rate_holds_in_the_whole_program(
    incident_of: IncidentOf, run: Run
) -> None:
    incident = incident_of(regression("SGD(model.parameters(), lr=2.0)"))
    assert (incident.cause.id, incident.cause.certainty) == ("divergence", "proved")
    assert {"lower-learning-rate", "clip-gradients", "adamw"} <= verified(incident)
    assert {"lower-rate", "clipping", "adamw"} <= {e.name for e in incident.experiments}
    texts = {i: r.text for i, r in remedies_of(incident).items()}
    lower = re.search(r"from 2 to (\S+);", texts["lower-learning-rate"])
    clip = re.search(r"clip_grad_norm_\(model.parameters\(\), \S+?\)", texts["clip-gradients"])
    adamw = re.search(r"lr=\S+, weight_decay=\S+?\)", texts["adamw"])
    assert lower and clip and adamw
    mended = [
        regression(f"SGD(model.parameters(), lr={lower[1]})"),
        regression("SGD(model.parameters(), lr=2.0)", f"nn.utils.{clip[0]}"),
        regression(f"AdamW(model.parameters(), {adamw[0]}"),
    ]
    for program in mended:
        assert run(program).incidents == []


def test_clipping_that_does_not_help_is_not_offered(incident_of: IncidentOf) -> None:
    incident = incident_of(regression("SGD(model.parameters(), lr=1000.0)"))
    outcomes = {e.name: e.outcome for e in incident.experiments}
    assert outcomes["clipping"] == "it rises with clipped gradients too"
    assert "clip-gradients" not in remedies_of(incident)
    assert "lower-learning-rate" in verified(incident)


def test_a_rate_that_no_tenth_mends_is_not_offered_lower(incident_of: IncidentOf) -> None:
    incident = incident_of(regression("SGD(model.parameters(), lr=1e6)"))
    assert not {"lower-learning-rate", "clip-gradients"} & set(remedies_of(incident))
    assert "adamw" in verified(incident)


def test_without_a_rise_nothing_of_it_is_verified(ask: Ask) -> None:
    source = regression("SGD(model.parameters(), lr=1e-3)").replace(
        "optimizer.zero_grad()", "loss = loss / (loss - loss) if step == 3 else loss; optimizer.zero_grad()"
    )
    found = ask(source, offering("lower-learning-rate", "clip-gradients", "adamw"))
    assert [remedy.verified for remedy in found.values()] == [None, None, None]


def test_adamw_is_not_offered_to_adamw(ask: Ask) -> None:
    source = regression("AdamW(model.parameters(), lr=1e-3)").replace("mean()", "mean() * float('nan')")
    assert set(ask(source, offering("adamw", "warmup"))) == {"warmup"}


# The rate that is advised, by epoch

EPOCHS = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(torch.randn(4, 3)), batch_size=2)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.{optimizer}
    for epoch in range(1, {epoch} + 1):
        for i, (x,) in enumerate(loader):
            loss = model(x).square().mean()
            if epoch == {epoch} and i == {batch}:
                loss = loss * float("nan")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""
ADAM, SGD = "Adam(model.parameters(), lr=1e-3)", "SGD(model.parameters(), lr=1e-3)"
RATES = [
    (ADAM, 1, 0, "1e-05", "5e-06"),
    (ADAM, 1, 1, "1e-05", "5e-06"),
    (ADAM, 3, 1, "1e-05", "5e-06"),
    (ADAM, 4, 0, "5e-05", "1e-05"),
    (ADAM, 20, 1, "5e-05", "1e-05"),
    (ADAM, 21, 0, "0.0001", "1e-05"),
    ("AdamW(model.parameters(), lr=1e-3)", 2, 0, "1e-05", "5e-06"),
    ("Adam(model.parameters(), lr=1e-5)", 2, 0, "1e-06", "1e-07"),
    (SGD, 1, 1, "0.0001", "1e-05"),
    (SGD, 5, 0, "0.0001", "1e-05"),
]


@pytest.mark.parametrize(("optimizer", "epoch", "batch", "lower", "lowest"), RATES)
def test_the_rate_that_is_advised(
    ask: Ask, optimizer: str, epoch: int, batch: int, lower: str, lowest: str
) -> None:
    source = EPOCHS.format(optimizer=optimizer, epoch=epoch, batch=batch)
    remedy = ask(source, offering("lower-learning-rate"))["lower-learning-rate"]
    assert f" to {lower}; if it fails again, to {lowest}." in remedy.text


def test_an_experiment_knows_better_than_the_epoch(incident_of: IncidentOf) -> None:
    """The same program as in an early epoch, but its rise was trained again with lower rates."""
    source = """
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        torch.manual_seed(0)
        x = torch.randn(64, 4)
        loader = DataLoader(TensorDataset(x, 3 * x.sum(1, keepdim=True)), batch_size=32)
        model = nn.Sequential(nn.Linear(4, 16), nn.Linear(16, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
        for epoch in range(20):
            for x, y in loader:
                loss = (model(x) - y).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    """
    incident = incident_of(source)
    tried = next(e.outcome for e in incident.experiments if e.name == "lower-rate")
    rate = re.search(r"; with (\S+) they do not", tried)
    assert rate and f"from 2 to {rate[1]};" in remedies_of(incident)["lower-learning-rate"].text


# Precision

HALF = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)){half}
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(4):
        x = torch.randn(6, 4)
        if step == 2:
            x[3] = {large}
        with torch.autocast("cpu", dtype=torch.float16, enabled={autocast}):
            loss = {loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    "program",
    [
        HALF.format(half="", large="1e6", autocast=True, loss="model(x).float().abs().mean()"),
        HALF.format(
            half=".half()", large="3e4", autocast=False, loss="(model(x.half()) * 30).float().abs().mean()"
        ),
    ],
    ids=["autocast", "half model"],
)
def test_bfloat16_has_the_range(incident_of: IncidentOf, program: str) -> None:
    incident = incident_of(program)
    assert incident.cause.id == "half-overflow"
    assert "bfloat16" in verified(incident)


def test_bfloat16_that_fails_too_is_not_offered(ask: Ask) -> None:
    source = HALF.format(half="", large="3e38", autocast=True, loss="(model(x * 4)).float().abs().mean()")
    assert ask(source, outcome_of("bfloat16")).finite is False
    assert ask(source, offering("bfloat16")) == {}


def test_a_float32_program_is_not_told_of_bfloat16(ask: Ask) -> None:
    source = HALF.format(half="", large="3e38", autocast=False, loss="(model(x * 4)).abs().mean()")
    assert ask(source, outcome_of("bfloat16")) == Outcome(None, "")
    assert ask(source, offering("bfloat16")) == {}


# The scale of a GradScaler

SCALED = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 120)
    for step in range(4):
        loss = {loss}
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        {clip}
        optimizer.step()
        scaler.update()
"""
FINITE_LOSS = "(model(torch.randn(6, 4)) * 1e4).square().mean()"
CLIP = "nn.utils.clip_grad_norm_(model.parameters(), 1.0)"


def test_clipping_before_unscaling(incident_of: IncidentOf) -> None:
    incident = incident_of(SCALED.format(loss=FINITE_LOSS, clip=CLIP))
    assert (incident.cause.id, incident.cause.certainty) == ("amp-misuse", "proved")
    assert {"unscale-before-clip", "step-through-scaler"} <= verified(incident)
    assert "bfloat16" not in remedies_of(incident)


def test_who_does_not_clip_is_not_told_how(incident_of: IncidentOf) -> None:
    incident = incident_of(SCALED.format(loss=FINITE_LOSS, clip="pass"))
    assert "step-through-scaler" in verified(incident)
    assert "unscale-before-clip" not in remedies_of(incident)


def test_a_step_that_is_bad_without_its_scale_too(ask: Ask) -> None:
    source = SCALED.format(loss="(model(torch.randn(6, 4)) * 0).sqrt().sum()", clip=CLIP)
    assert ask(source, outcome_of("unscaled")).finite is False
    assert ask(source, offering("unscale-before-clip", "step-through-scaler")) == {}


def test_a_step_without_a_scaler_has_no_scale_to_leave_out(ask: Ask) -> None:
    source = regression("SGD(model.parameters(), lr=1e-3)").replace("mean()", "mean() * float('nan')")
    assert ask(source, outcome_of("unscaled")) == Outcome(None, "")


# Settings of the update

UPDATE = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.{optimizer}
    for step in range(5):
        x = torch.randn(8, 4)
        x[:, 2] = 0.0
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        {before}
        optimizer.step()
"""
TWO_GROUPS = "Adam([{'params': [model.bias]}, {'params': [model.weight], 'eps': 0.0}], lr=1e-3)"
UPDATES = [
    ("Adam(model.parameters(), lr=1e-3, eps=0.0)", "pass", "eps=1e-08"),
    (TWO_GROUPS, "pass", "eps=1e-08"),
    (
        "Adam(model.parameters(), lr=1e-3)",
        "optimizer.param_groups[0]['betas'] = (0.9, 1.0)",
        "betas=(0.9, 0.9)",
    ),
    (
        "SGD(model.parameters(), lr=1e-3)",
        "optimizer.param_groups[0]['lr'] = float('inf') if step == 3 else 1e-3",
        "lr=0.001",
    ),
]


@pytest.mark.parametrize(
    ("optimizer", "before", "mended"), UPDATES, ids=["eps", "eps of one group", "betas", "rate"]
)
def test_a_setting_that_the_formula_cannot_take(
    incident_of: IncidentOf, optimizer: str, before: str, mended: str
) -> None:
    incident = incident_of(UPDATE.format(optimizer=optimizer, before=before))
    assert (incident.cause.id, incident.cause.certainty) == ("bad-hyperparameter", "proved")
    assert "fix-hyperparameter" in verified(incident)
    outcomes = {e.name: e.outcome for e in incident.experiments}
    assert outcomes["usual-settings"] == f"with {mended} the update is finite"
    assert ("larger-eps" in remedies_of(incident)) == mended.startswith("eps")


def test_usual_settings_are_left_alone(ask: Ask) -> None:
    """A moment is bad, the settings are not: there is nothing to try."""
    source = UPDATE.format(
        optimizer="Adam(model.parameters(), lr=1e-3)",
        before="optimizer.state[model.weight].get('exp_avg_sq', torch.ones(1)).mul_(-1 if step == 3 else 1)",
    )
    assert ask(source, outcome_of("usual-settings")) == Outcome(None, "")


# An eps of nothing

LAYER_NORM = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4, bias=False), nn.LayerNorm(4, eps={eps}), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(3):
        x = torch.randn(5, 3)
        if step == 2:
            x[3] = 0.0
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_the_eps_that_is_advised_is_the_one_that_was_tried(incident_of: IncidentOf, run: Run) -> None:
    incident = incident_of(LAYER_NORM.format(eps=0.0))
    assert {"larger-eps", "fix-hyperparameter"} <= verified(incident)
    assert "lower-learning-rate" not in remedies_of(incident)
    outcomes = {e.name: e.outcome for e in incident.experiments}
    tried = re.fullmatch(r"finite when eps is at least (\S+)", outcomes["larger-eps"])
    assert tried and f"{tried[1]} for float32" in remedies_of(incident)["larger-eps"].text
    assert run(LAYER_NORM.format(eps=tried[1])).incidents == []


# Weights

LOADED = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    state = {{name: value.clone() for name, value in model.state_dict().items()}}
    state["1.weight"][1, 3] = float("nan")
    model.load_state_dict(state)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(3):
        loss = {loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_a_weight_that_was_loaded_bad(incident_of: IncidentOf) -> None:
    incident = incident_of(LOADED.format(loss="model(torch.randn(6, 4)).square().mean()"))
    assert (incident.cause.id, incident.cause.certainty) == ("bad-weights", "proved")
    assert {"check-loading", "roll-back"} <= verified(incident)


def test_weights_that_are_not_all_that_is_bad(ask: Ask) -> None:
    source = LOADED.format(loss="model(torch.randn(6, 4)).square().mean() * float('inf')")
    assert ask(source, outcome_of("last-good-weights")).finite is False
    assert ask(source, offering("check-loading", "roll-back")) == {}


@pytest.fixture
def filled_memory() -> Iterator[None]:
    """torch fills memory that nobody has written with NaN, as long as it is deterministic."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("filled_memory")
def test_a_weight_that_nobody_wrote(incident_of: IncidentOf) -> None:
    source = """
        import torch
        from torch import nn

        torch.manual_seed(0)
        model = nn.Linear(4, 2)
        model.weight = nn.Parameter(torch.empty(2, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for step in range(3):
            loss = model(torch.randn(6, 4)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """
    incident = incident_of(source)
    assert (incident.cause.id, incident.cause.certainty) == ("uninitialised-memory", "proved")
    assert "initialise" in verified(incident)


# Indices, rows, labels

ACTIONS = """
    import torch
    from torch import nn

    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 5)

        def forward(self, x, legal, action):
            scores = self.head(x).masked_fill(~legal, float("-inf")).log_softmax(-1)
            return scores[torch.arange(len(x)), action]

    torch.manual_seed(0)
    model = Policy()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(4):
        legal = torch.ones(6, 5, dtype=torch.bool)
        legal[:, 4] = False
        action = torch.randint(0, 4, (6,))
        if step == 2:
            action[{rows}] = {action}
        loss = -model(torch.randn(6, 4), legal, action).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_a_negative_index(incident_of: IncidentOf) -> None:
    incident = incident_of(ACTIONS.format(rows="4:", action=-1))
    assert incident.cause.id == "index-out-of-range"
    assert {"check-index", "drop-bad-rows"} <= verified(incident)
    assert "4, 5" in remedies_of(incident)["drop-bad-rows"].text


def test_an_index_that_is_valid_and_wrong(ask: Ask) -> None:
    """Nothing is negative: with valid indices it fails as before."""
    source = ACTIONS.format(rows="4:", action=4)
    assert ask(source, offering("check-index")) == {}


def test_a_batch_that_is_bad_in_every_row_is_not_dropped_by_rows(ask: Ask) -> None:
    source = ACTIONS.format(rows=":", action=-1)
    assert ask(source, lambda case: case.located.birth.samples) == (0, 1, 2, 3, 4, 5)
    assert ask(source, offering("drop-bad-rows")) == {}


def test_rows_that_nobody_knows_are_not_dropped(ask: Ask) -> None:
    source = regression("SGD(model.parameters(), lr=1e-3)").replace("mean()", "mean() / 0.0")
    assert ask(source, lambda case: case.located.birth.samples) == ()
    assert ask(source, offering("drop-bad-rows")) == {}


LABELS = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(3):
        out = model(torch.randn(5, 4))
        loss = {loss}
        loss = loss * (float("nan") if step == 2 else 1.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("loss", "smoothed"),
    [
        ("nn.functional.cross_entropy(out, torch.zeros(5, dtype=torch.long))", True),
        ("nn.CrossEntropyLoss()(out, torch.zeros(5, dtype=torch.long))", True),
        ("nn.functional.mse_loss(out, torch.zeros(5, 3))", False),
        ("out.square().mean()", False),
    ],
)
def test_only_a_cross_entropy_smooths_its_labels(ask: Ask, loss: str, smoothed: bool) -> None:
    assert ("label-smoothing" in ask(LABELS.format(loss=loss), offering("label-smoothing"))) is smoothed


RATIOS = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(4):
        x = torch.randn(6, 4)
        if step == 2:
            {change}
        shares = torch.log(model(x).softmax(-1))
        loss = -shares.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("change", "offered"),
    [
        ("x[1, 0] = float('nan')", {"clean-data"}),
        ("x[1, 0] = 3e38", {"check-range"}),
        ("x[1:3] *= 1000", set()),
    ],
)
def test_data_is_to_be_cleaned_only_where_it_is_not_clean(
    incident_of: IncidentOf, change: str, offered: set[str]
) -> None:
    """`isfinite` finds nothing in values that are finite."""
    found = incident_of(RATIOS.format(change=change))
    assert {"clean-data", "check-range"} & set(remedies_of(found)) == offered, found.cause


@pytest.mark.parametrize("shared", [True, False])
def test_of_memory_that_processes_share_nanwatch_has_not_seen_all(
    incident_of: IncidentOf, shared: bool
) -> None:
    """The workers of a DataLoader hand over theirs so: no more is said than what is known."""
    share = "x.share_memory_()" if shared else "pass"
    found = incident_of(
        RATIOS.format(change=f"x = torch.ones(6, 4); {share}; x.numpy()[1, 0] = float('nan')")
    )
    assert found.cause.id == "bad-input"
    assert ("what other processes compute is not seen" in found.cause.why) is shared
