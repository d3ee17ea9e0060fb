"""The tape: what is needed to run the current step again, at the cost of references.

One entry per thing the program did outside any module: a torch function it called, a root module it
called, a custom autograd function, a backward. Tensors are held, not copied; their version counters
tell later whether somebody changed them in place.
"""

from __future__ import annotations

import copy
import functools
import weakref
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nanwatch.messages import say
from nanwatch.watching.own_values import as_they_are_now, dict_of, items_of
from nanwatch.watching.randomness import GeneratorState, Rng
from nanwatch.watching.stack import Stack
from nanwatch.watching.torch_functions import changes_its_input

if TYPE_CHECKING:
    from nanwatch.watching.contents import Contents, FreeVariable
    from nanwatch.watching.settings import Settings, Values

DATA_ENTRIES = 2000
DATA_BYTES = 256 * 2**20
"""How much of the preparation before the first call of a model is kept."""


@dataclass(slots=True, frozen=True)
class Context:
    """The thread's modes when an entry ran."""

    grad: bool
    inference: bool
    autocast: tuple[tuple[str, bool, torch.dtype], ...]
    saving: tuple[Callable[..., Any], Callable[..., Any]] | None = None
    """The hooks through which autograd saves what it needs for the backward."""

    @staticmethod
    def now() -> Context:
        grad, inference = _grad_is_on(), _inference_is_on()
        saving = _hooks_of_saving(False) if grad else None
        if saving is not None:
            return Context(grad, inference, _autocast_now(), saving)
        if inference or _some_autocast_is_on():
            return _without_saving(grad, inference, _autocast_now())
        return PLAIN_WITH_GRAD if grad else PLAIN_WITHOUT_GRAD


_grad_is_on, _inference_is_on = torch.is_grad_enabled, torch.is_inference_mode_enabled
_some_autocast_is_on = torch._C._is_any_autocast_enabled
_autocast_is_on, _autocast_type = torch.is_autocast_enabled, torch.get_autocast_dtype
_hooks_of_saving = torch._C._autograd._top_saved_tensors_default_hooks

_without_saving = functools.lru_cache(maxsize=64)(Context)
"""A program has few of them, and asks at every call."""
PLAIN_WITH_GRAD = Context(True, False, ())
PLAIN_WITHOUT_GRAD = Context(False, False, ())


def _autocast_now() -> tuple[tuple[str, bool, torch.dtype], ...]:
    cpu, cuda = _autocast_is_on("cpu"), _autocast_is_on("cuda")
    if not cpu and not cuda:
        return ()
    return ("cpu", cpu, _autocast_type("cpu")), ("cuda", cuda, _autocast_type("cuda"))


class Entry:
    """One call, so that it can be made again. Made several times in every step: what few of them have are
    attributes of the class until they are set."""

    def __init__(
        self,
        kind: str,
        call: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        stack: Stack,
        context: Context,
        rng: Rng | None = None,
    ) -> None:
        self.kind = kind
        """"op", "module", "apply", "backward", or "write": an in-place change of a tensor from outside
        the tape, which is not made a second time."""
        self._call: Callable[..., Any] | weakref.ref[Any] = call
        self.args = args
        self.kwargs = kwargs
        self.stack = stack
        self.context = context
        self.rng = rng
        self.versions: list[tuple[torch.Tensor, int]] = []
        """Tensors from outside the tape, with their version when the call was made; of a model's call also
        those made on the tape that are not differentiable."""
        self.made: list[tuple[torch.Tensor, int]] = []
        """What it returned, with its version then."""

    @property
    def call(self) -> Callable[..., Any]:
        call = self._call
        if type(call) is not weakref.ref:
            return call
        model = call()
        return gone if model is None else model

    def let_model_go(self) -> None:
        """Where the program lets go of a model, so do we: from here on this is done. A module without weights
        (a loss that is made anew for each call) holds nothing worth it."""
        if self.has_weights and type(self._call) is not weakref.ref:
            self._call = weakref.ref(self._call)

    has_weights: bool = False
    """Of a module."""
    known: Any = None
    """Of a module: what was learned of it from its calls."""
    outputs: Any = None
    generators: Sequence[GeneratorState] = ()
    """The states of the program's own generators that it may draw from."""
    contents: Contents | None = None
    """What the containers among its arguments held."""
    settings: tuple[Settings, Values] | None = None
    """Of a model: what its code read beside its arguments."""
    swapped: dict[str, Any] | None = None
    """Of a module under `functional_call`: its weights for this call."""
    free: Sequence[FreeVariable] = ()
    """Of functions: the tensors they get at without being given them."""
    functional: bool = False
    """A transform of torch.func: replayed whole, since what happens inside is done on wrapped tensors."""
    derivative: bool = False
    """Of such a transform: it takes a derivative."""
    before: torch.Tensor | None = None
    """Of a change in place of something small: a copy of what was there."""
    buffers: Sequence[tuple[torch.nn.Module, str, torch.Tensor]] = ()
    """(owner, name, value before) of the buffers this call changes."""
    attributes: Sequence[tuple[torch.nn.Module, str, Any]] = ()
    """(owner, name, value before) of the plain attributes it sets: counters, carried states."""
    containers: Sequence[tuple[Any, ...]] = ()
    """(container, what it held before, and after) of the lists, dicts and the like that a model keeps and
    this call changes."""
    owners: Sequence[tuple[torch.nn.Module, int]] = ()
    """Until a module's first call is over: all modules in it, and how many parameters each had."""
    uncopied: Sequence[tuple[torch.nn.Module, str, int]] = ()
    """Until then: (owner, name, version) of large tensors that are not copied."""
    small: dict[int, int] | None = None
    """Until then: id -> version of the small tensors that it may change."""
    left: Sequence[tuple[torch.nn.Module, str, weakref.ref[torch.Tensor]]] = ()
    """(owner, name, value after) of those that hold a tensor."""
    began: int = 0
    ended: int = 0
    """Of a module: autograd's numbers of what was recorded in the call are from the first to before the
    second."""
    training: bool = True
    phase: str = "forward"
    """Of a module: "forward", or "loss" when it computes one."""
    fed: bool = False
    """Of a module: it was given what another one made."""
    overwritten: bool = False
    """The call changed one of its own inputs in place."""
    finished: bool = False
    """Of a backward: it came to its end."""
    on_side_stream: bool = False
    """Of a copy between host and GPU: it was not sent where the program usually computes."""
    unscaled: torch.Tensor | None = None
    """Of a backward: the loss before a GradScaler multiplied it."""
    judged: Sequence[torch.Tensor] = ()
    """Of a backward: the values of its losses, without a GradScaler's scale."""
    graph: Sequence[weakref.ref[Any]] | None = None
    """Of a call that was looked at: marks on what autograd recorded of it, which live as long as that."""
    held_bytes: int = 0
    """Of a call that was differentiated, in a step with several backwards."""
    exchange: tuple[bool, bool] | None = None
    """Of a data parallel wrapper's call: whether its backward averages the gradients over the ranks, and
    whether the ranks took over the first one's statistics before it."""


def gone(*args: Any, **kwargs: Any) -> Any:
    """In the place of a model that the program has let go of."""
    raise ReferenceError(say("watch.model_gone"))


@dataclass(slots=True)
class PlainCalls:
    """What will not be differentiated, as far as it was looked at: data work, models without gradients."""

    entries: int = 0
    nbytes: int = 0
    """Of what they made."""


class Tape:
    """The entries since the last optimizer step."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.entries: list[Entry] = []
        self.made: dict[int, torch.Tensor] = {}
        """id -> tensor, for every tensor an entry returned."""
        self.used: dict[int, torch.Tensor] = {}
        """id -> tensor, for the tensors in the `versions` of an entry."""
        self.saved: dict[tuple[int, int], torch.Tensor] = {}
        """(id, version) -> copy made before something overwrote the tensor."""
        self.notes: list[str] = []
        self.whole = True
        """No entry has been left out."""
        self.lacks_parts = False
        """Calls that were differentiated have been left out."""
        self.unlisted: set[Stack] = set()
        """Where the program changed something, or called a module, and no entry tells of it."""
        self.sets: dict[int, int] = {}
        """id of a tensor whose `.data`, or another attribute, the program has set -> after which entry."""
        self.data_set: list[tuple[int, torch.Tensor, torch.Tensor, torch.Tensor]] = []
        """Of each parameter whose `.data` the program has set: after how many entries, which one, what it was
        before, and to what."""
        self.weights_follow = False
        """A replay changes the weights between its calls as the program has."""
        self.changes_buffers = False
        """Some entry changes buffers of its module."""
        self.slim = False
        """It is finished, and holds nothing large on its own."""
        self.large: dict[int, int] = {}
        """id -> bytes of those of `made` that may be let go."""
        self.looked_at = 0
        """How many of `made` were looked at, whether they are large."""
        self.let_go_until = 0
        """How many of the entries have nothing large on their own."""
        self.stand_ins: list[torch.Tensor] = []
        """For what was let go."""
        self.looked_for_plain = 0
        """How many of the entries were looked at, whether they may be forgotten."""
        self.plain = PlainCalls()
        """What was seen of those."""
        self.with_containers: list[Entry] = []
        """The calls of models that changed lists, dicts and the like that the model keeps."""
        self._givens: dict[tuple[int, int], list[Entry]] = {}
        """(id, version) of a tensor -> the entries that were given it so; of the first `_indexed` ones."""
        self._indexed = 0
        self._data_bytes = 0
        self._data_entries = 0
        self._work_began = False

    @property
    def backwards(self) -> int:
        return sum(entry.kind == "backward" for entry in self.entries)

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)
        kind, made = entry.kind, self.made
        called = kind == "module" or kind == "apply"
        plain = entry.swapped is None and not entry.free  # as mostly: one function less
        for tensor in tensors_of_call(entry.args, entry.kwargs) if plain else given_to(entry):
            key = id(tensor)
            if key not in made or (called and not tensor.requires_grad):
                entry.versions.append((tensor, -1 if tensor.is_inference() else tensor._version))
                self.used[key] = tensor
        if kind == "module" or kind == "backward":  # no preparation any more
            self._work_began = True
            if entry.buffers:
                self.changes_buffers = True

    def returned(self, entry: Entry, outputs: Any) -> None:
        entry.outputs = outputs
        tensors = [outputs] if isinstance(outputs, Tensor) else tensors_in(outputs)
        for tensor in tensors:
            self.made[id(tensor)] = tensor
            entry.made.append((tensor, -1 if tensor.is_inference() else tensor._version))
        if not self._work_began:
            self._bound_the_preparation(tensors)

    def _bound_the_preparation(self, made: list[torch.Tensor]) -> None:
        """A program may prepare gigabytes before its first step: only the last of it is held."""
        for tensor in made:
            if not tensor.requires_grad and tensor.layout is torch.strided:
                self._data_bytes += tensor.numel() * tensor.element_size()
        self._data_entries += 1
        if self._data_entries > DATA_ENTRIES or self._data_bytes > DATA_BYTES:
            self.rebuild([e for e in self.entries if any(t.requires_grad for t, _ in e.made)])

    def rebuild(self, kept: list[Entry]) -> None:
        """The tape with these of its entries only; what the others made counts as from outside."""
        work_began, notes, unlisted = self._work_began, self.notes, self.unlisted
        lacks_parts = self.lacks_parts
        stay = set(map(id, kept))
        unlisted.update(e.stack for e in self.entries if id(e) not in stay and leaves_something(e))
        needed = {(id(tensor), version) for entry in kept for tensor, version in entry.versions}
        saved = {key: copy for key, copy in self.saved.items() if key in needed}
        self.__init__(self.step)  # type: ignore[misc]
        self.saved, self.lacks_parts = saved, lacks_parts
        self.notes, self._work_began, self.whole, self.unlisted = notes, work_began, False, unlisted
        for entry in kept:
            self.entries.append(entry)
            self.changes_buffers |= bool(entry.buffers)
            if entry.containers and entry.ended:
                self.with_containers.append(entry)
            self.used.update((id(tensor), tensor) for tensor, _ in entry.versions)
            self.made.update((id(tensor), tensor) for tensor, _ in entry.made)

    def save_before_overwrite(self, tensor: torch.Tensor) -> None:
        """Keep a copy of a tensor that an earlier entry used and that is about to change."""
        key = (id(tensor), version_of(tensor))
        if id(tensor) in self.used and key not in self.saved and self._called_with(*key):
            with torch.no_grad():
                self.saved[key] = tensor.detach().clone()

    def _called_with(self, tensor: int, version: int) -> bool:
        """Whether a model or a differentiable call was given this very value: data work is not run again."""
        given = self._givens_so_far().get((tensor, version), ())
        return any(e.kind in ("module", "apply") or any(t.requires_grad for t, _ in e.made) for e in given)

    def _givens_so_far(self) -> dict[tuple[int, int], list[Entry]]:
        """Made only where a program writes into what it has used, and each entry is looked at once: a rollout
        writes into its buffers a thousand times in a step."""
        for entry in self.entries[self._indexed :]:
            for tensor, version in entry.versions:
                self._givens.setdefault((id(tensor), version), []).append(entry)
        self._indexed = len(self.entries)
        return self._givens


sequence_number = torch.autograd._get_sequence_nr  # type: ignore[attr-defined]
"""The number that autograd gives to what it records next."""


def made_inside(entry: Entry, tensor: Tensor) -> bool:
    """Whether a call of a module has made this tensor, returned or not."""
    if not entry.ended:
        return False
    try:
        node = tensor.grad_fn
    except RuntimeError:  # a view whose base was changed in place without autograd
        return False
    return node is not None and entry.began <= node._sequence_nr() < entry.ended


def leaves_something(entry: Entry) -> bool:
    """Whether a call of the program changed something in place, or was that of a module."""
    return entry.kind in ("write", "module") or changes_its_input(entry.call, entry.kwargs)


def version_of(tensor: torch.Tensor) -> int:
    """The tensor's version counter; inference tensors have none."""
    return -1 if tensor.is_inference() else tensor._version


DEEPEST = 7
MOST_VISITED = 500
"""Objects looked into for the tensors of one call: a batch may refer to a vocabulary, that to the world."""

PLAIN = (
    int,
    float,
    str,
    bytes,
    type(None),
    torch.dtype,
    torch.device,
    slice,
    torch.nn.Module,
    type,
    ModuleType,
)


USUAL = frozenset((bool, int, float, str, type(None)))
"""Those of them that most arguments are."""


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Every tensor in nested containers, dataclasses and plain objects, as they are kept there: no code of
    the program's classes is run."""
    if issubclass(type(value), Tensor):
        return [value]
    found: list[torch.Tensor] = []
    _collect(value, found, DEEPEST, set())
    return found


def tensors_of_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The same for the arguments of a call, which are mostly tensors and numbers."""
    found: list[torch.Tensor] = []
    for value in (*args, *kwargs.values()) if kwargs else args:
        kind = type(value)
        if kind is Tensor or issubclass(kind, Tensor):
            found.append(value)
        elif kind not in USUAL and not issubclass(kind, PLAIN):
            _collect(value, found, DEEPEST, set())
    return found


def given_to(entry: Entry) -> list[torch.Tensor]:
    """Every tensor that a call was given, or gets at without."""
    given = tensors_of_call(entry.args, entry.kwargs)
    if entry.swapped is not None:
        given += tensors_in(entry.swapped)
    if entry.free:
        given += tensors_in([variable.value for variable in entry.free])
    return given


def _collect(value: Any, found: list[torch.Tensor], depth: int, seen: set[int]) -> None:
    kind = type(value)
    if issubclass(kind, Tensor):
        found.append(value)
        return
    if issubclass(kind, PLAIN) or depth == 0 or id(value) in seen or len(seen) > MOST_VISITED:
        return
    seen.add(id(value))
    items = items_of(value)
    if items is None:
        items = () if callable(value) else (dict_of(value) or {}).values()
    passed_over = 0
    for item in as_they_are_now(items):
        before = len(found)
        _collect(item, found, depth - 1, seen)
        passed_over = passed_over + 1 if len(found) == before else 0
        if passed_over > MOST_VISITED:  # words, numbers or records: there may be a million
            break


def map_tensors(value: Any, change: Callable[[torch.Tensor], Any], depth: int = DEEPEST) -> Any:
    """`value` with every tensor in it replaced by `change(tensor)`; untouched parts stay the same object."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, PLAIN) or depth == 0:
        return value
    if isinstance(value, (list, tuple)):
        items = [map_tensors(item, change, depth - 1) for item in value]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        if hasattr(value, "_fields"):
            return type(value)(*items)
        return type(value)(items)
    if isinstance(value, MutableMapping):
        changed = {key: map_tensors(item, change, depth - 1) for key, item in value.items()}
        changed = {key: item for key, item in changed.items() if item is not value[key]}
        if not changed:
            return value
        fresh = copy.copy(value)
        for key, item in changed.items():  # one by one: an output of transformers has no `update`
            fresh[key] = item
        return fresh
    return value
