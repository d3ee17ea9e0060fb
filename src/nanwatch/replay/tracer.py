"""The op tracer: every aten op, what went in and what came out.

Reads each output once. Inputs are read only when an output is not finite, or before an op that
overwrites them. Costs several times the traced code; that is why it runs on one step only.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from types import FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nanwatch.records import Numbers
from nanwatch.replay.fresh import fresh_values, is_pointwise
from nanwatch.replay.kept_operands import copy_unless_large, kept_call
from nanwatch.replay.multiplied import base_of
from nanwatch.replay.op_call import OpCall
from nanwatch.replay.op_facts import (
    OpFacts,
    infinite_constants,
    is_a_bad_number,
    named_arguments,
    op_facts,
    plain_arguments,
    tensors_by_name,
)
from nanwatch.replay.out_of_range import OutOfRange, may_be_an_index, out_of_range
from nanwatch.replay.peaks import Peaks, is_made_of_values
from nanwatch.replay.shadow import Shadows
from nanwatch.replay.trace import Op, Operand, Trace, picks
from nanwatch.replay.untouched import Untouched
from nanwatch.tensors import is_finite, numbers
from nanwatch.watching.module_calls import Scope
from nanwatch.watching.ranks import NeedsOtherRanks, is_collective
from nanwatch.watching.stack import Stack, called_from, in_transform, is_library, stack_within
from nanwatch.watching.storages import Storages, key_of
from nanwatch.watching.tape import sequence_number
from nanwatch.watching.worker_threads import handed

ENGINE = "_engine_run_backward"
"""The function of torch that runs a backward: what called it is not part of a derivative."""

CALCULATES = ("mul", "div", "pow")
"""With an infinity that the program gave as a number, which is no mask then."""
MOST_BIRTHS_KEPT = 50
"""Births whose operands are kept, per step."""

DEEPEST_TRANSFORM = 4
"""Transforms of torch.func that are followed into each other."""

SMALL = 4096  # values of a bad output that are kept beyond its step

Origin = tuple[Stack, tuple[torch.nn.Module, ...]]


class OpTracer(TorchDispatchMode):
    """Writes a `Trace`. `phase` says what the program is doing; `base` is put under each stack."""

    def __init__(self, scope: Scope) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.trace = Trace()
        self.scope = scope
        self.step = 0
        self.phase = "outside"
        self.base: Stack = ()
        self.boundary: FrameType | None = None
        """The frame that runs the traced code: stacks are cut there and `base` put under them."""
        self.roots_called = False
        self.peaks = Peaks()
        self.writers: Storages[int] = Storages()
        """memory -> the op that last wrote something non-finite there."""
        self.allocated: Storages[Op] = Storages()
        """memory nobody has written yet -> the op that allocated it."""
        self.arrivals: Storages[Stack] = Storages()
        """memory that was filled elsewhere -> where it came in."""
        self.constants: Storages[bool] = Storages()
        """memory of single numbers that came out of the program's text."""
        self.roots = 0
        """How many models have returned in this step."""
        self.alone = False
        """Other ranks do not do the same: a collective would wait for ever, or take their next one."""
        self._derived: Storages[bool] = Storages()
        """memory that holds what a root module computed."""
        self._origins: dict[int, Origin] = {}
        """sequence number of an autograd node -> where its forward op was."""
        self._number_before = sequence_number() - 1
        """The last such number before this step: what has that one has recorded nothing."""
        self.untouched: Untouched | None = None
        """Of a replay: the memory of the program."""
        self.out_of_range: OutOfRange | None = None
        """The op of this step that raised because an index pointed outside its table."""
        self.usual: set[tuple[Any, ...]] = set()
        """Where infinities were made in steps that ended well."""
        self.lived_with: set[tuple[Any, ...]] = set()
        """Where NaN came in, or was written down, in steps that ended well."""
        self._shadows = Shadows()
        self.next_index = 0
        self._kept = 0
        self._lock = threading.RLock()

    def new_step(self, step: int) -> None:
        self.step = step
        self.out_of_range = None
        self._origins.clear()
        self._number_before = sequence_number() - 1
        self._kept = 0
        self.roots = 0
        self.peaks.shares.clear()
        for memory in (self.writers, self.allocated, self.arrivals, self.constants, self._derived):
            memory.sweep()
        if self.trace.ops:
            self._forget_dead_ops()

    def _forget_dead_ops(self) -> None:
        """Keep only the ops that lead to non-finite values that are still there."""
        needed = {op.index for op in self.trace.ancestors([index for _, index in self.writers.alive()])}
        self.trace.ops = {i: op for i, op in self.trace.ops.items() if i in needed}
        for op in self.trace.ops.values():
            if op.output is not None and op.output.numel() > SMALL:
                op.output = op.born = None

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        call = self.op_begins(function, args, kwargs, sys._getframe(1))
        try:
            outputs = function(*args, **kwargs)
        except Exception as error:
            self.op_raised(call, error)
            raise
        self.op_ended(call, outputs)
        return outputs

    def op_begins(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType
    ) -> OpCall | None:
        """What must be known of an op before it runs; None where that cannot be told."""
        if self.alone and is_collective(function):
            raise NeedsOtherRanks(function)
        node = torch._C._current_autograd_node()
        before: dict[str, tuple[Numbers, Any]] = {}
        try:
            facts = op_facts(function)
            arguments = named_arguments(facts, args, kwargs)
            inputs = tensors_by_name(arguments)
            if facts.written:
                with self._lock:
                    before = self._before(facts, inputs)
                    if self.untouched is not None:
                        self.untouched.about_to_write([t for n, t in inputs if facts.writes(n)])
        except Exception as error:
            self.failed(error)
            return None
        return OpCall(function, facts, args, kwargs, arguments, inputs, before, None, node, frame)

    def op_raised(self, call: OpCall | None, error: Exception) -> None:
        if call is not None and isinstance(error, (IndexError, RuntimeError)) and may_be_an_index(error):
            self._note_out_of_range(call)

    def op_ended(self, call: OpCall | None, outputs: Any) -> None:
        if call is None:
            return
        call.outputs = outputs
        try:
            with self._lock:
                if self.untouched is not None:
                    self.untouched.made(outputs, call.inputs)
                self._after(call)
        except Exception as error:
            self.failed(error)

    @property
    def goes_along(self) -> bool:
        """Into tasks that are handed to other threads: only while one can tell what they belong to. What the
        program does beside its models may go on while they run."""
        return self.phase != "outside"

    def failed(self, error: Exception) -> None:
        """An error of our own: in a replay it ends the replay."""
        raise error

    def _note_out_of_range(self, call: OpCall) -> None:
        with contextlib.suppress(Exception), self._lock:  # the program's own error goes on its way
            place = self._note_origin(call.node, call.frame)
            self.out_of_range = out_of_range(call, self._phase_of(call.inputs, [], call.node), *place)

    def _before(
        self, facts: OpFacts, inputs: list[tuple[str, torch.Tensor]]
    ) -> dict[str, tuple[Numbers, Any]]:
        """What an in-place op is about to overwrite: its numbers, and a copy if it is not too large."""
        if not facts.reads_what_it_writes:
            return {}
        taken: dict[str, tuple[Numbers, Any]] = {}
        for name, tensor in inputs:
            if facts.writes(name) and measurable(tensor):
                taken[name] = (numbers(tensor, name), copy_unless_large(tensor))
        return taken

    def _after(self, call: OpCall) -> None:
        facts, node = call.facts, call.node
        results = call.results
        phase = self._phase_of(call.inputs, results, node)
        place = self._note_origin(node, call.frame)
        if facts.allocates:
            self._note_allocation(facts, results, phase, place)
            return
        if facts.brings_in or is_a_bad_number(facts, call.arguments):
            self._note_arrival(results, place[0])
            return
        tainted = bool(self.writers) and any(self.writers.get(t) is not None for _, t in call.inputs)
        if not tainted and call.is_view:
            return
        received = self._received(call, results)
        if received and not tainted:
            self._note_arrival(received, place[0])
            return
        notes_peak = phase == "forward" and is_made_of_values(call, self.allocated)
        bad = any(measurable(t) and not self._looks_finite(t, notes_peak) for t in results)
        if not bad:
            for tensor in call.written:
                self._clean(tensor)
            if not tainted:
                return
        op = self._write_down(call, results, phase, place)
        for tensor in received:
            self.writers.put(tensor, op.index)
            self.allocated.drop(tensor)
        if op.fresh is not None:
            op.range_only = op.born is not None and self._shadows.only_range(call, op.born)
        if op.fresh is None and op.makes_inf and not op.makes_nan and not op.deliberate:
            op.range_only = self._shadows.born(call.function, call.args, call.kwargs, results)
        elif tainted:
            op.silently_wrong = self._shadows.follow(call.function, call.args, call.kwargs, results)
        if self._may_be_a_birth(op) and self._kept < MOST_BIRTHS_KEPT:
            self._keep(op, call, results)
        else:
            op.born = None

    def _looks_finite(self, tensor: torch.Tensor, notes_peak: bool) -> bool:
        return self.peaks.looks_finite(tensor, self.scope.now()) if notes_peak else is_finite(tensor)

    def _may_be_a_birth(self, op: Op) -> bool:
        if op.makes_nan or (op.makes_inf and not (op.constants and op.deliberate)):
            return True
        if op.makes_inf and base_of(op) in CALCULATES:
            return True
        if op.is_view or not op.bad_outputs:
            return False
        if op.phase == "optimizer" and any(o.source is None for o in op.bad_inputs):
            return True  # of what the optimizer kept
        if op.bad_inputs and op.phase != "backward":  # it may have taken an infinity out of its mask
            widest = max(o.numbers.count for o in op.bad_inputs)
            return picks(op) or all(o.numbers.count < widest for o in op.bad_outputs)
        if op.phase != "backward":
            return False
        sources = [self.trace.ops[o.source] for o in op.bad_inputs if o.source in self.trace.ops]
        return all(s.phase != "backward" or s.is_view or all(o.bad for o in s.inputs) for s in sources)

    def _phase_of(
        self, inputs: list[tuple[str, torch.Tensor]], results: list[torch.Tensor], node: Any
    ) -> str:
        if node is not None:
            return "backward"
        if self.phase == "functional":
            return self._phase_in_transform(inputs, results)
        if self.phase != "outside":
            if self.phase in ("forward", "loss"):
                self.roots_called = True
                for tensor in results:
                    self._derived.put(tensor, True)
            return self.phase
        if any(self._derived.get(t) for _, t in inputs):
            for tensor in results:
                self._derived.put(tensor, True)
            return "loss"
        if any(t.requires_grad for _, t in inputs) and torch.is_grad_enabled():
            return "loss" if self.roots_called else "forward"
        return "data"

    def _phase_in_transform(self, inputs: list[tuple[str, torch.Tensor]], results: list[torch.Tensor]) -> str:
        """In a transform of torch.func what a module computes is forward, what comes after it is loss."""
        inside = bool(self.scope.now())
        self.roots_called = self.roots_called or inside
        if inside or any(self._derived.get(t) for _, t in inputs):
            for tensor in results:
                self._derived.put(tensor, True)
        return "loss" if self.roots_called and not inside else "forward"

    def _note_origin(self, node: Any, frame: FrameType) -> Origin:
        """Where this op is, for itself and for the backward of the node it belongs to."""
        own = stack_within(frame, self.boundary, ENGINE if node is not None else "")
        if node is None:
            place = (own + handed().stack + self.base, self.scope.now())
        else:
            forward = self._origin_of(node)
            if any(not is_library(code.co_filename) for code, _ in own):
                modules = self.scope.now() or forward[1]
                place = (own + forward[0], modules)
            else:
                place = forward
        number = sequence_number() - 1
        known = self._origins.get(number)
        if number != self._number_before and (known is None or called_from(known[0], place[0])):
            self._origins[number] = place
        return place

    def _origin_of(self, node: Any) -> Origin:
        number = node._sequence_nr()
        found = self._origins.get(number)
        if found is None and in_transform(sys._getframe()):
            # an op has a node for each level, the innermost first; it is seen with the number of the last
            above = (self._origins.get(number + level) for level in range(1, DEEPEST_TRANSFORM))
            found = next(filter(None, above), None)
        return found if found is not None else (self.base, ())

    def _note_allocation(
        self, facts: OpFacts, results: list[torch.Tensor], phase: str, place: Origin
    ) -> None:
        """Fresh memory holds whatever was there: nobody's fault until somebody reads it."""
        for tensor in results:
            self.writers.drop(tensor)
            op = Op(-1, facts.name, self.step, phase, place[1], place[0], None, [], [], [], "")
            self.allocated.put(tensor, op)

    def _note_arrival(self, results: list[torch.Tensor], stack: Stack) -> None:
        for tensor in results:
            self.writers.drop(tensor)
            self.allocated.drop(tensor)
            self.arrivals.put(tensor, stack)
            if tensor.dim() == 0:
                self.constants.put(tensor, True)

    def _received(self, call: OpCall, results: list[torch.Tensor]) -> list[torch.Tensor]:
        """Memory that nobody had written and that other ranks fill now, or later: what comes is of what they
        and this one have sent."""
        if not call.facts.is_collective:
            return []
        return [tensor for tensor in results if self.allocated.get(tensor) is not None]

    def _clean(self, tensor: torch.Tensor) -> None:
        """A finite value was written: what was there before is gone, if all of it was overwritten."""
        if tensor.layout is not torch.strided:
            return
        whole = tensor.numel() * tensor.element_size() >= tensor.untyped_storage().nbytes()
        if whole:
            self.writers.drop(tensor)
            self.allocated.drop(tensor)

    def _write_down(self, call: OpCall, results: list[torch.Tensor], phase: str, place: Origin) -> Op:
        facts, before, node = call.facts, call.before, call.node
        index = self.next_index
        self.next_index += 1
        read = []
        for name, tensor in call.inputs:
            if facts.writes(name) and name not in before:
                continue
            measured = before[name][0] if name in before else numbers(_with_values(tensor), name)
            operand = Operand(measured, key_of(tensor))
            operand.from_forward = node is not None and self._is_from_forward(tensor)
            if operand.bad:
                self._note_source(operand, tensor)
            read.append(operand)
        op = Op(
            index=index,
            name=facts.name,
            step=self.step,
            phase=phase,
            modules=place[1],
            stack=place[0],
            node=node.name() if node is not None else None,
            inputs=read,
            outputs=[Operand(numbers(_with_values(t)), key_of(t)) for t in results],
            constants=infinite_constants(call.arguments),
            arguments=plain_arguments(call.arguments),
            is_view=call.is_view,
            roots=self.roots,
        )
        if op.bad_inputs and op.bad_outputs and not op.is_view:
            self._note_fresh(op, call, results)
        op.usual = bool(self.usual) and op.site in self.usual
        op.lived_with = bool(self.lived_with) and op.place in self.lived_with
        self.trace.ops[index] = op
        for tensor, operand in zip(results, op.outputs, strict=True):
            if operand.bad:
                self.writers.put(tensor, index)
                self.allocated.drop(tensor)
        return op

    def _is_from_forward(self, tensor: torch.Tensor) -> bool:
        return self._derived.get(tensor) is True or tensor.requires_grad

    def _note_fresh(self, op: Op, call: OpCall, results: list[torch.Tensor]) -> None:
        """What the op made beside what it was handed. Not where the program's own text has the number: there
        the result was asked for."""
        if op.constants or any(o.from_python for o in op.bad_inputs) or not is_pointwise(call.function):
            return
        output = next((t for t, o in zip(results, op.outputs, strict=True) if o.bad), None)
        operands = call.operands
        if output is None or operands is None or not all(map(measurable_or_whole, operands)):
            return
        found = fresh_values(operands, output)
        if found is not None:
            op.fresh, op.born = found

    def _note_source(self, operand: Operand, tensor: torch.Tensor) -> None:
        """Who wrote a non-finite input: a traced op, nobody since it was allocated, or somebody outside."""
        operand.source = self.writers.get(tensor)
        if operand.source is not None:
            return
        allocation = self.allocated.get(tensor)
        if allocation is None:
            operand.value = tensor
            operand.from_python = tensor.dim() == 0 and self.constants.get(tensor) is True
            return
        if allocation.index not in self.trace.ops:  # or no longer: a step that ended well is forgotten
            allocation.index = self.next_index
            self.next_index += 1
            allocation.outputs = [Operand(operand.numbers, operand.key)]
            self.trace.ops[allocation.index] = allocation
        operand.source = allocation.index

    def _keep(self, op: Op, call: OpCall, results: list[torch.Tensor]) -> None:
        """Copies of the operands as they were before the op ran, and of what it made."""
        self._kept += 1
        op.call = kept_call(call)
        worst = next((t for t in results if measurable(t) and not is_finite(t)), None)
        op.output = None if worst is None else copy_unless_large(worst)


def measurable(tensor: torch.Tensor) -> bool:
    """Whether the tensor has values to look at: not on the meta device, not a compiler's stand-in, not
    wrapped by a transform, not the zero of a tangent that nobody needs."""
    if tensor.device.type == "meta" or type(tensor).__name__ in ("FakeTensor", "FunctionalTensor"):
        return False
    if tensor._is_zerotensor() or torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return False
    return tensor.is_floating_point() or tensor.is_complex()


def measurable_or_whole(tensor: torch.Tensor) -> bool:
    return measurable(tensor) or not (tensor.is_floating_point() or tensor.is_complex())


def _with_values(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor._is_zerotensor():
        return tensor
    return torch.zeros(tensor.shape, dtype=tensor.dtype, device=tensor.device)
