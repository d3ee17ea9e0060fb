"""A program that torch ended because of an index: which op, which index, how large the table is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import nanwatch
from nanwatch.records import Incident

Watch = Callable[..., nanwatch.Session]
NO_AUDIT = {"audit_seconds": 0.0, "audit_share": 0.0}


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.table(ids).sum(1)


def died_of(watch: Watch, program: Callable[[], Any], **options: Any) -> Incident | None:
    session = watch(**options)
    with pytest.raises((IndexError, RuntimeError)) as died:
        program()
    reported = session.post_mortem(died.value)
    assert reported == bool(session.incidents)
    return session.incidents[0] if reported else None


@pytest.mark.parametrize("options", [{}, NO_AUDIT], ids=["live", "replay"])
def test_an_unknown_word(watch: Watch, options: dict[str, float]) -> None:
    ids = torch.tensor([[1, 2], [3, 9], [0, 6]])
    incident = died_of(watch, lambda: Words()(ids), **options)
    assert incident is not None
    assert (incident.kind, incident.phase, incident.seen_in) == ("index", "forward", "exception")
    assert (incident.birth.op, incident.birth.module) == ("aten.embedding.default", "table")
    assert incident.birth.code == "return self.table(ids).sum(1)"
    assert incident.birth.samples == (1,)
    assert (incident.cause.id, incident.cause.certainty) == ("index-out-of-range", "proved")
    assert "the index 9 for a table of 7: valid are 0 to 6" in incident.cause.why
    assert incident.cause.evidence == ("1 of 3 entries of indices hold such an index, the first is 1",)


TABLE = torch.arange(12.0).view(3, 4)


@pytest.mark.parametrize(
    ("call", "op", "index", "size"),
    [
        (lambda: TABLE[torch.tensor([0, 3])], "index", 3, 3),
        (lambda: TABLE[:, torch.tensor([-5])], "index", -5, 4),
        (lambda: TABLE.gather(1, torch.tensor([[4]])), "gather", 4, 4),
        (lambda: TABLE.clone().index_add_(0, torch.tensor([-1]), torch.ones(1, 4)), "index_add", -1, 3),
        (lambda: torch.take(TABLE, torch.tensor([12])), "take", 12, 12),
        (lambda: nn.functional.nll_loss(TABLE, torch.tensor([-100, 1, 4])), "nll_loss_forward", 4, 4),
    ],
    ids=["index", "from the end", "gather", "scatter", "take", "label"],
)
def test_the_lookups_that_torch_refuses(
    watch: Watch, call: Callable[[], Any], op: str, index: int, size: int
) -> None:
    incident = died_of(watch, call)
    assert incident is not None
    assert incident.cause.id == "index-out-of-range"
    assert incident.cause.why.startswith(f"{op} at test_out_of_range.py:")
    assert f"the index {index} for a table of {size}:" in incident.cause.why


def test_a_list_of_the_program_is_its_own_business(watch: Watch) -> None:
    assert died_of(watch, lambda: [1, 2][int(torch.tensor(5))]) is None


def test_an_index_that_the_program_has_caught_is_not_blamed_later(watch: Watch) -> None:
    session = watch()
    model = Words()
    with pytest.raises(IndexError):
        model(torch.tensor([[9]]))
    with torch.no_grad():
        model(torch.tensor([[1]]))
        model(torch.tensor([[2]]))
    assert not session.post_mortem(IndexError("list index out of range"))


class Reader(nn.Module):
    """Holds a table that is neither weight nor buffer, as programs do."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.words = Words().to(device)
        self.norm = nn.BatchNorm1d(4, device=device)
        self.sign = torch.ones(4, device=device)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.norm(self.words(ids) * self.sign)


def reads_on_a_device_that_dies(batches: list[torch.Tensor], last: int) -> Callable[[], None]:
    """`meta` tensors are like those of a GPU after an assert: they have shapes, and no value can be read."""
    model = Reader("meta")

    def program() -> None:
        for number, ids in enumerate(batches):
            with torch.no_grad():
                model(ids.to("meta"))
            if number == last:
                raise RuntimeError("CUDA error: device-side assert triggered")

    return program


def test_an_assert_of_a_device_is_found_on_the_host(watch: Watch) -> None:
    batches = [torch.tensor([[1, 2], [3, 4]]), torch.tensor([[1, 2], [5, 8]])]
    incident = died_of(watch, reads_on_a_device_that_dies(batches, last=1), **NO_AUDIT)
    assert incident is not None
    assert (incident.kind, incident.birth.op, incident.birth.module) == (
        "index",
        "aten.embedding.default",
        "words.table",
    )
    assert (incident.birth.samples, incident.step) == ((1,), 1)
    assert [numbers.name for numbers in incident.birth.inputs] == ["indices"]  # of the rest nothing is known
    assert (incident.cause.id, incident.cause.certainty) == ("index-out-of-range", "proved")
    assert "the index 8 for a table of 7" in incident.cause.why


def test_an_assert_that_the_host_cannot_explain_is_not_guessed_at(
    watch: Watch, capsys: pytest.CaptureFixture[str]
) -> None:
    batches = [torch.tensor([[1, 2], [3, 4]])]
    assert died_of(watch, reads_on_a_device_that_dies(batches, last=0), **NO_AUDIT) is None
    assert "CUDA_LAUNCH_BLOCKING=1" in capsys.readouterr().err
