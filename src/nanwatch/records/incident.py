"""One bad step: `incident.json`, schema 1. Fields may be added, never changed."""

from __future__ import annotations

from dataclasses import dataclass, field

from nanwatch.records.numbers import Numbers
from nanwatch.records.place import Frame

SCHEMA = 1
KINDS = ("nan", "inf", "index", "bit")
"""What the birth op made; "index": nothing, it was given an index that points outside its table; "bit":
nothing, a bit of a value in memory was turned over."""
PHASES = ("data", "weights", "forward", "loss", "backward", "optimizer")
CERTAINTIES = ("proved", "likely", "possible", "unknown")
ACTIONS = ("raised", "skipped", "rolled-back", "observed", "zeroed")
SEEN_IN = (
    "loss",
    "gradients",
    "output",
    "weights",
    "exception",
    "trace",
    "hyperparameter",
    "rank",
    "memory",
    "checkpoint",
)
LOCATED_BY = ("live trace", "replay", "recorded facts")


@dataclass(frozen=True)
class Hop:
    """One op on the way from the birth to the loss, the gradient or the output."""

    op: str
    phase: str
    module: str | None = None
    file: str | None = None
    line: int | None = None
    code: str = ""
    bad: int = 0
    count: int = 0


@dataclass(frozen=True)
class Hidden:
    """A non-finite value that was born and hidden again before anything showed it."""

    born: Hop
    hidden_by: Hop
    harmful: bool = False
    why: str = ""


@dataclass(frozen=True)
class Birth:
    """The first harmful op: its place, its operands, the rows of the batch it went wrong in."""

    op: str | None
    module: str | None
    file: str | None
    line: int | None
    code: str = ""
    stack: tuple[Frame, ...] = ()
    inputs: tuple[Numbers, ...] = ()
    outputs: tuple[Numbers, ...] = ()
    samples: tuple[int, ...] = ()
    arguments: str = ""
    node: str | None = None
    within: str | None = None
    """Where the program called a part of a larger module, as it does layer by layer: the path of `module` in
    that one."""


@dataclass(frozen=True)
class Cause:
    id: str = "unknown"
    certainty: str = "unknown"
    why: str = ""
    evidence: tuple[str, ...] = ()
    ruled_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Experiment:
    name: str
    outcome: str


@dataclass(frozen=True)
class Remedy:
    id: str
    text: str
    verified: bool | None = None
    edit: str | None = None


@dataclass(frozen=True)
class Check:
    """One point of the checklist, or one of the debugging steps."""

    question: str
    state: str
    """"fine", "bad", or "open" when nothing known decides it."""
    answer: str


@dataclass(frozen=True)
class Incident:
    step: int
    rank: int
    kind: str
    phase: str
    birth: Birth
    action: str
    cause: Cause = field(default_factory=Cause)
    experiments: tuple[Experiment, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    others: tuple[Cause, ...] = ()
    """Causes that are also possible, the likeliest first."""
    checklist: tuple[Check, ...] = ()
    debugging: tuple[Check, ...] = ()
    """The steps that people take by hand, done on this one: "bad" where the trouble lies."""
    explained_in_steps: float | None = None
    """How long looking for the cause took, as a multiple of the step."""
    schema: int = SCHEMA
    seen_in: str = ""
    """What showed the bad value: "loss", "gradients", "output" (of the root module), "weights" (an update
    made them bad), "exception" (the program died of it), "trace" (a silently wrong result, or
    `nanwatch.trace()`), "hyperparameter" (a learning rate), "rank" (only another rank's step is bad),
    "memory" (a checksum of it), "checkpoint" (what the program saved)."""
    located_by: str = ""
    """How the birth was found: "live trace", "replay", "recorded facts"."""
    travel: tuple[Hop, ...] = ()
    hidden: tuple[Hidden, ...] = ()
    notes: tuple[str, ...] = ()
    time: str = ""
