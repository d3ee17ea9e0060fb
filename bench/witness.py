"""A naive witness of one script: what goes non-finite, in which op, on which line. Uses nothing of nanwatch.

`plain` only follows the script with hooks: which loss, gradient, weight or output was not finite, in which
step. `ops` also puts a TorchDispatchMode under it, which looks at inputs and outputs of every op and keeps
each that makes something non-finite out of finite inputs, or NaN out of infinities; of a pointwise op also
what is so at places where all its operands are finite, whatever they are elsewhere. `arrivals` traces its
lines instead, for values that no op made: on which line does a variable first hold something non-finite?
"""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor
from torch.amp import GradScaler
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

PRINTED = re.compile(r"\b(nan|inf)\b", re.IGNORECASE)
WRAPPERS = ("DistributedDataParallel", "OptimizedModule", "DataParallel")
OF_THE_CALL = ("nn/modules/module.py", "_dynamo/eval_frame.py", "bench/witness.py")
"""Files of the frames between a hook on a call and the line that made the call."""
ENTRIES_KEPT = 3000
NOT_LOOKED_AT = {"meta"}
"""Kinds of devices. To look at a GPU makes the program wait for it, which would hide its races."""


def verdict(value: Any) -> tuple[bool, bool]:
    """(has NaN, has Inf) of a tensor of any kind, of an array or of a number."""
    if isinstance(value, np.ndarray | np.generic):
        value = (
            torch.from_numpy(np.asarray(value, np.float64)) if value.dtype.kind == "f" else torch.zeros(())
        )
    if not isinstance(value, torch.Tensor):
        return value != value, value in (float("inf"), float("-inf"))
    while is_functorch_wrapped_tensor(value):
        value = get_unwrapped(value)
    if value.is_sparse:
        value = value._values()
    elif value.layout in (torch.sparse_csr, torch.sparse_csc):
        value = value.values()
    value = value.detach()
    if value.device.type in NOT_LOOKED_AT or not (value.is_floating_point() or value.is_complex()):
        return False, False
    if value.is_complex():
        value = torch.view_as_real(value.resolve_conj())
    value = value.double()
    return bool(value.isnan().any()), bool(value.isinf().any())


def both(tree: Any) -> tuple[bool, bool]:
    found = [verdict(leaf) for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
    return any(nan for nan, _ in found), any(inf for _, inf in found)


def is_bad_output(tree: Any) -> bool:
    """A model may return -inf on purpose (masked logits, log-probabilities); NaN and +inf it may not."""
    leaves = [t for t in tree_leaves(tree) if isinstance(t, torch.Tensor)]
    return any(verdict(t)[0] or (verdict(t)[1] and bool((t == float("inf")).any())) for t in leaves)


def bad_rows(tensor: torch.Tensor, nan_only: bool) -> list[int] | None:
    if tensor.dim() == 0 or tensor.is_sparse or not tensor.numel():
        return None
    plain = tensor.detach().resolve_conj()
    plain = (torch.view_as_real(plain) if plain.is_complex() else plain).double()
    bad = plain.isnan() if nan_only else ~plain.isfinite()
    return bad.reshape(len(plain), -1).any(1).nonzero().flatten().tolist()


def by_name(frame: FrameType | None) -> tuple[FrameType | None, torch.nn.Module | None]:
    """Of a module that is called from `model.forward(x)`: the outermost such frame, and that model."""
    while frame is not None and frame.f_code.co_filename.endswith(OF_THE_CALL):
        frame = frame.f_back
    found: tuple[FrameType | None, torch.nn.Module | None] = None, None
    while frame is not None and frame.f_code.co_name == "forward":
        model = frame.f_locals.get("self")
        if not isinstance(model, torch.nn.Module):
            break
        found, frame = (frame, model), frame.f_back
    return found


class Follow:
    """Where the script is (module stack, steps), and what was not finite so far, with its step."""

    def __init__(self) -> None:
        self.stack: list[torch.nn.Module] = []
        self.names: dict[int, str] = {}
        self.steps = self.calls = self.backwards = 0
        self.by_name: FrameType | None = None
        self.in_step = 0
        self.optimizers: list[torch.optim.Optimizer] = []
        self.batch: int | None = None
        self.seen: list[dict[str, Any]] = []
        self.kept: dict[int, torch.nn.Module] = {}
        self._follow_modules()
        self._follow_updates()

    def now(self) -> dict[str, int]:
        return {"steps": self.steps, "calls": self.calls - 1, "backwards": self.backwards}

    def bad(self, what: str, rows: list[int] | None = None) -> None:
        if len(self.seen) < ENTRIES_KEPT:
            self.seen.append({"what": what, "rows": rows, **self.now()})

    @property
    def harmed(self) -> bool:
        return any(entry["what"] != "input" for entry in self.seen)

    def module(self) -> str | None:
        return self.names.get(id(self.stack[-1]), "?") if self.stack else None

    def _follow_modules(self) -> None:
        @torch.compiler.disable
        def enter(module: torch.nn.Module, args: tuple[Any, ...]) -> None:
            if not self.stack:
                frame, model = by_name(sys._getframe())
                self.calls += frame is None or frame is not self.by_name
                self.by_name = frame
                # To the end of the process: torch now and then hangs where it frees a model that
                # DistributedDataParallel wraps, after its process group was destroyed.
                self.kept[id(module)] = module
                inner = model or module
                while type(inner).__name__ in WRAPPERS:
                    inner = getattr(inner, "_orig_mod", None) or inner.module
                self.names = {id(m): name for name, m in inner.named_modules()}
                self.names.setdefault(id(module), "")
                self._look_at_inputs(args)
            self.stack.append(module)

        @torch.compiler.disable
        def leave(module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if module in self.stack:
                while self.stack.pop() is not module:
                    pass
            if not self.stack:
                with _disable_current_modes():
                    if is_bad_output(output):
                        self.bad("output")

        torch.nn.modules.module.register_module_forward_pre_hook(enter)
        torch.nn.modules.module.register_module_forward_hook(leave, always_call=True)

    def _look_at_inputs(self, args: tuple[Any, ...]) -> None:
        with _disable_current_modes():
            for tensor in tree_leaves(args):
                if isinstance(tensor, torch.Tensor) and tensor.dim():
                    self.batch = len(tensor)
                    if any(verdict(tensor)):
                        self.bad("input", bad_rows(tensor, nan_only=False))

    def _follow_updates(self) -> None:
        def gradients() -> None:
            with _disable_current_modes():
                if any(both([p.grad for p in self.weights()])):
                    self.bad("gradient")

        def before(optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
            self.in_step += 1
            if optimizer not in self.optimizers:
                self.optimizers.append(optimizer)
            gradients()

        def after(optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
            self.in_step -= 1
            gradients()  # a closure makes them inside the step
            with _disable_current_modes():
                if is_bad_output(self.weights()):  # it may hold -inf on purpose too
                    self.bad("weight")
            self.steps += 1

        register_optimizer_step_pre_hook(before)
        register_optimizer_step_post_hook(after)
        run_backward, scaled_step, scale = torch.autograd.backward, GradScaler.step, GradScaler.scale

        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            with _disable_current_modes():
                scaled = all(getattr(t, "_scaled_by_scaler", False) for t in tree_leaves(tensors))
                if not scaled and any(both(tensors)):
                    self.bad("loss")
            try:
                return run_backward(tensors, *args, **kwargs)
            finally:
                self.backwards += 1

        def step(scaler: GradScaler, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            steps = self.steps
            result = scaled_step(scaler, optimizer, *args, **kwargs)
            self.steps = max(self.steps, steps + 1)  # a step that the scaler skips is one too
            return result

        def scaled_loss(scaler: GradScaler, outputs: Any) -> Any:
            with _disable_current_modes():  # the search for a scale may overflow: the loss itself is judged
                if any(both(outputs)):
                    self.bad("loss")
            result = scale(scaler, outputs)
            for tensor in tree_leaves(result):
                tensor._scaled_by_scaler = True
            return result

        torch.autograd.backward = backward
        GradScaler.step, GradScaler.scale = step, scaled_loss

    def weights(self) -> list[torch.Tensor]:
        return [p for o in self.optimizers for g in o.param_groups for p in g["params"]]


def frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back


def finite_places(func: Any, args: Any) -> list[torch.Tensor]:
    """Of a pointwise op: where each of its operands is finite, before it runs."""
    if torch.Tag.pointwise not in func.tags or any(
        isinstance(a, float) and abs(a) == float("inf") for a in args
    ):
        return []
    return [t.detach().isfinite() for t in args if isinstance(t, torch.Tensor) and t.is_floating_point()]


def born_beside(places: list[torch.Tensor], out: Any) -> torch.Tensor | None:
    """The results of a pointwise op, with 0 where an operand was not finite; None if the rest is finite."""
    if not places or not isinstance(out, torch.Tensor) or not out.is_floating_point():
        return None
    left = out.detach().double()
    for finite in places:
        left = torch.where(finite, left, 0.0)
    return None if bool(left.isfinite().all()) else left


class Look(TorchDispatchMode):
    """Every op that makes something non-finite or raises (`events`), or that hands it on (`carried`)."""

    def __init__(self, follow: Follow, script: str) -> None:
        super().__init__()
        self.follow, self.script = follow, script
        self.modules_of_line: dict[int | None, set[str | None]] = {}
        self.events: list[dict[str, Any]] = []
        self.carried: list[dict[str, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        node = torch._C._current_autograd_node()
        live = self._live_line(inside_backward=node is not None)
        if node is None:
            self.modules_of_line.setdefault(live, set()).add(self.follow.module())
        with _disable_current_modes():
            nan_in, inf_in = both((args, kwargs))
            places = finite_places(func, args) if nan_in or inf_in else []
        try:
            out = func(*args, **kwargs)
        except Exception:
            self.events.append(self._event(func, node, live, "raised"))
            raise
        with _disable_current_modes():  # foreach and fused ops return nothing: look at what they wrote
            nan, inf = both((out, args) if func._schema.is_mutable else out)
            if nan or inf:
                born = (nan and not nan_in) or (inf and not nan_in and not inf_in)
                event = self._event(func, node, live, "nan" if nan else "inf")
                first = next((t for t in tree_leaves(out) if isinstance(t, torch.Tensor)), None)
                if first is not None and first.dim() and len(first) == self.follow.batch:
                    event["rows"] = bad_rows(first, nan_only=nan if not born else inf_in)
                kept = self.events if born else self.carried
                if len(kept) < ENTRIES_KEPT:
                    kept.append(event)
                beside = None if born else born_beside(places, out)
                if beside is not None and len(self.events) < ENTRIES_KEPT:
                    rows = bad_rows(beside, nan_only=False) if event["rows"] is not None else None
                    kind = "nan" if bool(beside.isnan().any()) else "inf"
                    self.events.append(event | {"kind": kind, "rows": rows})
        return out

    def _event(self, func: Any, node: Any, live: int | None, kind: str) -> dict[str, Any]:
        line = live if node is None or live is not None else self._forward_line(node)
        modules = {self.follow.module()}
        phase = "forward" if self.follow.stack else "outside"
        if node is not None:  # any module that the forward line ran in
            phase, modules = "backward", self.modules_of_line.get(self._forward_line(node), {None})
        elif self.follow.in_step:
            phase = "optimizer"
        where = {"op": str(func), "line": line, "phase": phase, "modules": sorted(modules, key=str)}
        return {**where, "kind": kind, "rows": None, "node": node and node.name(), **self.follow.now()}

    def _live_line(self, inside_backward: bool) -> int | None:
        """The script's line that runs now; during backward only what backward itself called."""
        for frame in frames():
            if frame.f_code.co_filename == self.script:
                return frame.f_lineno
            if inside_backward and frame.f_code.co_name == "_engine_run_backward":
                return None
        return None

    def _forward_line(self, node: Any) -> int | None:
        """The line of the forward op whose derivative a node is: anomaly mode keeps its traceback."""
        while node is not None:
            text = "".join(node.metadata.get("traceback_", []))
            found = re.findall(rf'File "{re.escape(self.script)}", line (\d+)', text)
            if found:
                return int(found[-1])
            node = node.metadata.get("parent_")
        return None


class Arrivals:
    """Lines of the script after which a variable holds something non-finite that no variable held before.

    Only until it does harm: what is computed of it afterwards has not arrived from anywhere.
    """

    def __init__(self, follow: Follow, script: str) -> None:
        self.follow, self.script = follow, script
        self.lines: set[int] = set()
        self._last: dict[int, int] = {}
        self._known: dict[int, Any] = {}
        self._busy = False

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != self.script or self._busy:
            return None
        self._busy = True
        try:
            with _disable_current_modes(), torch.no_grad():
                values = [argument] if event == "return" else []
                self._look([*values, *frame.f_locals.values()], self._last.get(id(frame)) or frame.f_lineno)
        finally:
            self._busy = False
        self._last[id(frame)] = frame.f_lineno
        if event == "return":
            del self._last[id(frame)]
        return self.trace

    def _look(self, values: list[Any], line: int) -> None:
        for value in values:
            for leaf in self._leaves(value):
                if self.follow.harmed:
                    return
                if id(leaf) not in self._known and any(verdict(leaf)):
                    self._known[id(leaf)] = leaf  # held, so that its id is not given away again
                    self.lines.add(line)

    def _leaves(self, value: Any) -> list[Any]:
        if isinstance(value, torch.nn.Module):
            ready = "_modules" in vars(value)  # not yet inside a constructor, before super().__init__()
            return [*value.parameters(), *value.buffers()] if ready else []
        kinds = torch.Tensor | np.ndarray
        return [leaf for leaf in tree_leaves(value) if isinstance(leaf, kinds)]


def testify(script: Path, how: str) -> dict[str, Any]:
    """Run the script in this process, which should be a fresh one, and say what was seen."""
    path = str(script)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    follow = Follow()
    look, arrivals = Look(follow, path), Arrivals(follow, path)
    text, error, started = io.StringIO(), None, time.perf_counter()
    sys.argv = [path]
    sys.path[0] = str(script.parent)
    try:
        with contextlib.redirect_stdout(text), contextlib.ExitStack() as stack:
            if how == "ops":
                stack.enter_context(torch.autograd.set_detect_anomaly(True, check_nan=False))
                stack.enter_context(look)
            if how == "arrivals":
                sys.settrace(arrivals.trace)
            runpy.run_path(path, run_name="__main__")
    except SystemExit as exit:
        error = f"exit code {exit.code}" if exit.code else None
    except BaseException as problem:
        error = f"{type(problem).__name__}: {' '.join(str(problem).split())[:150]}"
    finally:
        sys.settrace(None)
    if error:
        follow.bad("error")
    return {
        "error": error,
        "seen": follow.seen,
        "events": look.events,
        "carried": look.carried,
        "arrivals": sorted(arrivals.lines),
        "printed": bool(PRINTED.search(text.getvalue())),
        "trains": bool(follow.optimizers),
        "seconds": round(time.perf_counter() - started, 2),
    }
