"""What a model returns where no update will judge it: bad, unless the program knows what it does about it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nanwatch

WITHOUT_AUDIT = {"audit_seconds": 0.0, "audit_share": 0.0}


class Logarithm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.log(x + self.shift)


class Decoder(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.cumsum(0)


ROWS = torch.tensor([[1.0, 2.0], [-1.0, 2.0], [3.0, 4.0]])


def nobody_looks(model: nn.Module) -> None:
    model(ROWS)


def computed_with(model: nn.Module) -> None:
    model(ROWS).softmax(-1)


def largest_taken(model: nn.Module) -> None:
    model(ROWS).argmax(-1)


def compared(model: nn.Module) -> None:
    if model(ROWS).mean() < 1.0:
        print("never")


def bad_row_taken(model: nn.Module) -> None:
    made = model(ROWS)
    made[0].sum(), made[1].sum()


def taken_and_used_whole(model: nn.Module) -> None:
    made = model(ROWS)
    made[0].sum(), made.mean()


def written_over_in_part(model: nn.Module) -> None:
    made = model(torch.cat([ROWS, ROWS]))
    made[1] = 0.0


def given_on(model: nn.Module) -> None:
    Decoder()(model(ROWS))


def in_a_loop(model: nn.Module) -> None:
    x = ROWS
    for _ in range(3):
        x = model(x)
    x.isnan()


def another_batch(model: nn.Module) -> None:
    model(ROWS).mean()
    model(ROWS[:1]).mean()


def read_from_empty(model: nn.Module) -> None:
    model(torch.empty(2).fill_(-1.0))


def weights_that_went_bad_with_it(model: Logarithm) -> None:
    for _ in range(2):
        error = model(ROWS).mean()
        model.shift.sub_(error)


def members_of_an_ensemble(model: Logarithm) -> None:
    made = []
    for shift in (0.0, 2.0):
        model.shift.fill_(shift)
        made.append(model(ROWS))
    torch.stack(made).mean(0)


BAD = [
    nobody_looks,
    computed_with,
    largest_taken,
    compared,
    bad_row_taken,
    taken_and_used_whole,
    written_over_in_part,
    given_on,
    in_a_loop,
    another_batch,
    read_from_empty,
    weights_that_went_bad_with_it,
    members_of_an_ensemble,
]

WITH_OTHER_WEIGHTS_SINCE = [weights_that_went_bad_with_it, members_of_an_ensemble]
"""Run again, the call does not give what it gave."""


@pytest.mark.parametrize("options", [{}, WITHOUT_AUDIT], ids=["audit", "replay"])
@pytest.mark.parametrize("play", BAD)
def test_it_is_found(play: Callable[[Any], None], options: dict[str, Any], watch: Any) -> None:
    session = watch(explain=False, patient=True, **options)
    with pytest.raises(nanwatch.NonFiniteError), torch.no_grad():
        play(Logarithm())
        session.close()
    assert [(i.seen_in, i.kind, i.step) for i in session.incidents] == [("output", "nan", 0)]
    if play not in WITH_OTHER_WEIGHTS_SINCE or not options:
        assert session.incidents[0].birth.op == "aten.log.default"


def asked(model: nn.Module) -> None:
    made = model(ROWS)
    if not made.isfinite().all():
        return


def compared_with_itself(model: nn.Module) -> None:
    made = model(ROWS)
    made[made != made] = 0.0


def cleaned(model: nn.Module) -> None:
    torch.nan_to_num(model(ROWS)).mean()


def good_rows_taken(model: nn.Module) -> None:
    model(ROWS)[torch.tensor([0, 2])].mean()


def chosen(model: nn.Module) -> None:
    torch.where(ROWS > 0, model(ROWS), 0.0).mean()


def asked_what_the_loss_is(model: nn.Module) -> None:
    error = nn.MSELoss()(model(ROWS), ROWS)
    if not math.isfinite(error.item()) and error.isfinite():
        print("never")


def labels_ignored(model: nn.Module) -> None:
    nn.CrossEntropyLoss()(model(ROWS), torch.tensor([0, -100, 1]))


def random_search(model: Logarithm) -> None:
    for shift in (0.0, 2.0, 0.5):
        model.shift.fill_(shift)
        model(ROWS).square().mean()


@pytest.mark.parametrize("options", [{}, WITHOUT_AUDIT], ids=["audit", "replay"])
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize(
    "play",
    [
        asked,
        compared_with_itself,
        cleaned,
        good_rows_taken,
        chosen,
        asked_what_the_loss_is,
        labels_ignored,
        random_search,
    ],
)
def test_the_program_knows(
    play: Callable[[Any], None], gradients: bool, options: dict[str, Any], watch: Any
) -> None:
    if gradients and play is random_search:
        pytest.skip("torch refuses to change a weight in place")
    session = watch(explain=False, patient=True, **options)
    with torch.set_grad_enabled(gradients):
        play(Logarithm())
    session.close()
    assert not session.incidents


def test_with_zeros_for_bad_values_the_program_gets_those_at_once(watch: Any) -> None:
    session = watch(explain=False, patient=True, policy="zero")
    with torch.no_grad():
        made = Logarithm()(ROWS)
    assert bool(made.isfinite().all())
    assert [(i.seen_in, i.action) for i in session.incidents] == [("output", "zeroed")]


def test_a_distribution_that_refuses_its_logits_does_not_speak_for_the_program(watch: Any) -> None:
    session = watch(explain=False, patient=True)
    with torch.no_grad(), pytest.raises(ValueError):
        torch.distributions.Categorical(logits=Logarithm()(ROWS), validate_args=True)
    with pytest.raises(nanwatch.NonFiniteError):
        session.close()
    assert [i.birth.op for i in session.incidents] == ["aten.log.default"]


class Scores(nn.Module):
    """Some of them are -inf by the bias."""

    def __init__(self, forbidden: float = -torch.inf) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head = nn.Linear(3, 4), nn.Linear(4, 5)
        self.head.bias.data[2] = forbidden

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.head(self.body(x))
        return made


@pytest.mark.parametrize("options", [{}, WITHOUT_AUDIT], ids=["audit", "replay"])
def test_a_bias_of_minus_infinity_forbids(options: dict[str, Any], watch: Any) -> None:
    session = watch(explain=False, patient=True, **options)
    with torch.no_grad():
        Scores()(torch.randn(2, 3)).argmax(-1)
    session.close()
    assert not session.incidents


@pytest.mark.parametrize("options", [{}, WITHOUT_AUDIT], ids=["audit", "replay"])
@pytest.mark.parametrize("where", ["body.bias", "head.weight", "+inf"])
def test_other_infinities_in_weights_are_found(where: str, options: dict[str, Any], watch: Any) -> None:
    session = watch(explain=False, patient=True, **options)
    model = Scores(torch.inf if where == "+inf" else 0.0)
    if where != "+inf":
        model.get_parameter(where).data.view(-1)[1] = -torch.inf
    with pytest.raises(nanwatch.NonFiniteError), torch.no_grad():
        model(torch.randn(2, 3)).argmax(-1)
        session.close()
    assert [(i.seen_in, i.phase) for i in session.incidents] == [("output", "weights")]


def test_an_update_that_makes_a_bias_infinite_is_found(watch: Any) -> None:
    watch(explain=False, patient=True, **WITHOUT_AUDIT)
    model = Scores(-3e38)
    optimizer = torch.optim.SGD([model.head.bias], lr=1e38)
    model(torch.zeros(2, 3))[:, 2].div(2).mean().backward()
    optimizer.step()
    with pytest.raises(nanwatch.NonFiniteError), torch.no_grad():
        model(torch.zeros(2, 3))
        model(torch.zeros(2, 3))


class Head(nn.Module):
    """Of features that something else has made, some of them bad."""

    def __init__(self, chosen: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.chosen = nn.Linear(2, 3), chosen

    def forward(self, features: Tensor) -> Tensor:
        made: Tensor = self.layer(self.chosen(features))
        return made


def trained_on(features: Callable[[], Tensor], chosen: Callable[[Tensor], Tensor]) -> None:
    """From the first step on with what is not finite there, as a rule."""
    torch.manual_seed(0)
    head = Head(chosen)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    for _ in range(3):
        loss = head(features()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def frozen() -> Tensor:
    with torch.no_grad():
        made: Tensor = Logarithm()(ROWS)
    return made


class Front(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.log()


MADE_FINITE: dict[str, Callable[[Tensor], Tensor]] = {
    "replaced": lambda f: torch.where(f.isfinite(), f, 0.0),
    "bounded": lambda f: f.nan_to_num().clamp(min=-5.0),
    "left out": lambda f: f[[0, 2]],
    "vanishes": lambda f: torch.exp(-f.abs().nan_to_num(torch.inf)),
}


@pytest.mark.parametrize("options", [{}, WITHOUT_AUDIT], ids=["audit", "replay"])
@pytest.mark.parametrize("features", [frozen, lambda: Front()(ROWS)], ids=["frozen", "without weights"])
@pytest.mark.parametrize("how", MADE_FINITE)
def test_a_training_that_makes_it_finite_goes_on(
    how: str, features: Callable[[], Tensor], options: dict[str, Any], watch: Any
) -> None:
    session = watch(explain=False, **options)
    trained_on(features, MADE_FINITE[how])
    session.close()
    assert not session.incidents


@pytest.mark.parametrize("options", [{}, WITHOUT_AUDIT], ids=["audit", "replay"])
@pytest.mark.parametrize(
    "chosen", [lambda f: f, lambda f: f / 2, lambda f: f + f.argmax()], ids=["all", "computed", "its place"]
)
def test_a_training_that_does_not_is_stopped(
    chosen: Callable[[Tensor], Tensor], options: dict[str, Any], watch: Any
) -> None:
    session = watch(explain=False, **options)
    with pytest.raises(nanwatch.NonFiniteError):
        trained_on(frozen, chosen)
    assert [(i.birth.op, i.step) for i in session.incidents] == [("aten.log.default", 0)]


@pytest.mark.parametrize("options", [{}, WITHOUT_AUDIT], ids=["audit", "replay"])
def test_places_of_the_largest_are_no_numbers_made_of_it(options: dict[str, Any], watch: Any) -> None:
    session = watch(explain=False, **options)
    trained_on(lambda: ROWS, lambda f: f)
    with pytest.raises(nanwatch.NonFiniteError):
        frozen().argmax(-1).float().mean()
        session.close()
    assert [i.birth.op for i in session.incidents] == ["aten.log.default"]
