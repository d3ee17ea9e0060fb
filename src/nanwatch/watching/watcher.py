"""Follows one program: keeps the tape, asks the sentinel before every update, and reports a bad step."""

from __future__ import annotations

import gc
import math
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from nanwatch.errors import NonFiniteError
from nanwatch.messages import say
from nanwatch.records import StepFacts
from nanwatch.tensors import is_finite
from nanwatch.watching.following import Following
from nanwatch.watching.module_calls import ModuleCalls
from nanwatch.watching.outside import OutsideMode
from nanwatch.watching.ranks import in_lockstep, worst_of_all, worst_on_device
from nanwatch.watching.recorder import Recorder
from nanwatch.watching.sentinel import (
    LATE_STEPS,
    DeviceSentinel,
    HostSentinel,
    Verdict,
    gradients_of,
    supports_found_inf,
)
from nanwatch.watching.shield import Shield, warn
from nanwatch.watching.stack import Stack, take_stack
from nanwatch.watching.storages import Storages
from nanwatch.watching.tape import Entry, Tape, tensors_in
from nanwatch.watching.trouble import LastUpdate, LiveTrace, Report, Trouble

MODES = ("auto", "host", "device")

FREE_SKIP_SECONDS = 5.0
SKIP_SHARE = 0.02
"""A step that a GradScaler skips is replayed without its scale, within this much time in all."""


class Watcher:
    """Install with `start`, remove with `close`; both may be called at any time between steps."""

    def __init__(
        self,
        report: Report,
        log: Callable[[StepFacts], None],
        mode: str = "auto",
        hold_back: bool = True,
        live: LiveTrace | None = None,
    ) -> None:
        self.step = 0
        self.incidents = 0
        self._report = report
        self._log = log
        self._mode = mode
        self._hold_back_late = hold_back
        """In device mode: whether a bad step is kept from the weights (not when only observing)."""
        self._said: set[str] = set()
        self.shield = Shield(self.close)
        self.calls = ModuleCalls()
        self.recorder = Recorder(self._say_once)
        self.outside = OutsideMode(self.recorder, self.shield.give_up)
        self._following = Following(self, self.shield)
        self._host = HostSentinel()
        self._device = DeviceSentinel()
        self.live = self._live = live
        if live is not None:
            live.tell_errors_to(self.shield.give_up)
        self._home = threading.get_ident()
        self._optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._held_back: list[dict[str, Any]] | None = None
        self._events: list[str] = []
        self._losses: list[torch.Tensor]
        self._clip: tuple[frozenset[int], torch.Tensor] | None
        self._unscaled: dict[int, torch.Tensor]
        self._leaves: list[torch.Tensor]
        self._scale: Any
        self.last_update: LastUpdate | None = None
        self._arrivals: Storages[Stack] = Storages()
        self._step_stack: Stack = ()
        self._late_facts: dict[int, StepFacts] = {}
        self._begin_facts()
        self._has_backward = False
        self._inside = False
        self._pending_output: Any = None
        self._in_lockstep = False
        self._asked_lockstep: set[int] = set()
        self._skip_seconds = 0.0
        self._started = time.perf_counter()
        self._trained: dict[tuple[int, int], bool] = {}
        self._closed = True
        self._raised = False

    # Starting and stopping

    def start(self) -> None:
        self._closed = False
        self._optimizers.update(_living(Optimizer))
        if _living(torch.jit.ScriptFunction) or _living(torch.jit.ScriptModule):
            self.torchscript_begins()
        self._following.install()
        self.calls.install()
        self.calls.handler = self._root_call
        if self._live is not None:
            self._live.begin_step(self.step)
        self._listen()

    def close(self) -> None:
        """Take every tap off. Leaves no hook behind."""
        if self._closed:
            return
        self._closed = True
        self.outside.leave_for_good()
        if self._live is not None:
            self._live.leave_for_good()
        self.calls.uninstall()
        self._following.uninstall()
        self._give_back_groups(None)

    def finish(self) -> None:
        """At the end of the program: judge what is still open, then close."""
        try:
            if not self._closed and not self._raised:
                self.shield.run(self._judge_late, True)
                self.shield.run(self._judge_pending_output)
        finally:
            self.close()

    def after_fork(self) -> None:
        self.close()

    def _say_once(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            self.recorder.tape.notes.append(sentence)
            warn(sentence)

    # Listening to the program's own code, and standing aside for the rest

    def _listen(self) -> None:
        if self._closed:
            return
        self.outside.come_back()
        if self._live is not None:
            self._live.phase = "outside"
            self._live.resume()

    def _stand_aside(self) -> None:
        self.outside.stand_aside()
        if self._live is not None:
            self._live.pause()

    def quiet_begins(self) -> None:
        self._stand_aside()

    def quiet_done(self) -> None:
        if not self._inside:
            self._listen()

    # Root modules

    def _root_call(
        self, original: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if threading.get_ident() != self._home or self.shield.busy or self.shield.broken:
            if not self.shield.busy and not self._inside and module.training and torch.is_grad_enabled():
                self._say_once(say("watch.other_thread"))
            return original(module, *args, **kwargs)
        entry = self.shield.run(self._root_begins, module, args, kwargs, sys._getframe(1))
        live = self._live
        followed = live is not None and live.active
        self.calls.handler = live.scope.follow if live is not None and followed else None
        try:
            if live is not None and followed:
                outputs = live.scope.follow(original, module, args, kwargs)
            else:
                outputs = original(module, *args, **kwargs)
        except BaseException as error:
            self._root_left()
            self.shield.run(self._root_failed, entry, error)
            raise
        self._root_left()
        self.shield.run(self._root_returned, entry, outputs)
        return outputs

    def _root_begins(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], frame: Any
    ) -> Entry:
        self._judge_pending_output()
        training = self._is_training(module)
        self._note_lockstep(module)
        if self._root_done and not training:
            self._finish_step(self._verdict)
        self.outside.stand_aside()
        self._inside = True
        if self._live is not None and self._live.active:
            self._live.phase = phase_of(module)
            if _is_compiled(module):
                self._live.pause()
            else:
                self._live.resume()
        self._event("forward")
        return self.recorder.module_begins(module, args, kwargs, frame)

    def _note_lockstep(self, module: nn.Module) -> None:
        if id(module) not in self._asked_lockstep:
            self._asked_lockstep.add(id(module))
            self._in_lockstep = self._in_lockstep or in_lockstep(module)

    def _is_training(self, module: nn.Module) -> bool:
        """Whether an optimizer works on this program's models: then its steps are counted, else calls of
        the root module."""
        key = (id(module), len(self._optimizers))
        if key not in self._trained:
            mine = {id(p) for p in module.parameters()}
            held = (p for o in self._optimizers for group in o.param_groups for p in group["params"])
            self._trained[key] = any(id(p) in mine for p in held)
        return self._training

    @property
    def _training(self) -> bool:
        return self.last_update is not None or any(self._trained.values())

    def _root_left(self) -> None:
        self._inside = False
        if not self.shield.broken:
            self.calls.handler = self._root_call

    def _root_failed(self, entry: Entry | None, error: BaseException) -> None:
        if entry is not None and isinstance(error, Exception):
            self.recorder.failing = (entry, error)
        self._listen()

    def _root_returned(self, entry: Entry | None, outputs: Any) -> None:
        if entry is None:
            return
        self.recorder.module_returned(entry, outputs)
        self._root_done = True
        if self._live is not None:
            self._live.after_root = True
        if self._has_backward and any(t.requires_grad for t in tensors_in(outputs)):
            self._listen()
            return
        if any(t.requires_grad for t in tensors_in(outputs)):
            self._pending_output = (entry, outputs)
        else:
            self._judge_output(entry, outputs)
            self.recorder.forget_all_but(entry)
        self._listen()

    def forget_pending_output(self) -> None:
        self._pending_output = None

    def _judge_pending_output(self) -> None:
        """A model called with gradients on and no backward after it: inference without no_grad."""
        pending, self._pending_output = self._pending_output, None
        if pending is not None and not self._has_backward:
            self._judge_output(*pending)

    def _judge_output(self, entry: Entry, outputs: Any) -> None:
        bad = [t for t in tensors_in(outputs) if not is_finite(t)]
        if bad:
            self._trouble("output", [("output", t) for t in bad])
        else:
            self._judge_silent_damage(None)

    # Backward

    def backward_begins(self, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any], frame: Any) -> Any:
        self._pending_output = None
        self._has_backward = True
        self._stand_aside()
        was, self.calls.handler = self.calls.handler, None
        self._event("backward")
        entry = None
        if not self._inside:
            entry = self.recorder.backward_begins(call, args, kwargs, frame)
            losses = list(tensors_in(args[0] if args else kwargs.get("tensors")))
            entry.unscaled = self._unscaled.get(id(losses[-1])) if losses else None
            judged = [entry.unscaled] if entry.unscaled is not None else losses
            self._losses += [loss.detach() for loss in judged]
            self._leaves = leaves_of(losses) if not self._training else []
        return was, entry

    def backward_done(self, token: Any, finished: bool = True) -> None:
        if token is None:
            return
        self.calls.handler, entry = token
        if entry is not None and finished:
            entry.finished = True
        if not self._inside and not self._in_step:
            if not self._training:
                self._judge_without_optimizer()
            self._listen()

    def _judge_without_optimizer(self) -> None:
        """Nobody has stepped an optimizer yet: the program may update its weights by hand."""
        leaves, self._leaves = self._leaves, []
        held = {id(p) for o in self._optimizers for group in o.param_groups for p in group["params"]}
        if any(id(p) in held for p in leaves):
            self._trained[0, 0] = True  # it only has not stepped yet: judged when it does
            return
        gradients = [p.grad for p in leaves if p.grad is not None]
        self._verdict = self._host.judge(self._losses, gradients, None)
        if self._verdict.bad is not None:
            self._act_on(self._verdict, gradients, None)
        if not self._root_done:
            self._finish_step(self._verdict)  # no module, no optimizer: a step is a backward

    def grad_done(self, gradients: Any) -> None:
        """`torch.autograd.grad` in a program that updates its weights by hand."""
        if self.outside.handling:
            return  # the call is being recorded: judged when it is on the tape
        if self._inside or self._in_step or self._training or not self.outside.listening:
            return
        bad = [("gradient", t) for t in tensors_in(gradients) if not is_finite(t)]
        if bad:
            self._trouble("gradients", bad)
            self._listen()
        elif not self._root_done and not any(t.requires_grad for t in tensors_in(gradients)):
            self._finish_step(self._verdict)  # no module, no optimizer: a step is a derivative

    # Custom autograd functions outside modules

    def apply_begins(
        self, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any], frame: Any, compiled: bool = False
    ) -> Any:
        if compiled and self._live is not None:
            self._live.pause()
        if self._inside or self._in_step or not self.outside.listening:
            return None
        self.outside.stand_aside()
        return self.recorder.applied(call, args, kwargs, frame)

    def apply_done(self, token: Any, outputs: Any) -> None:
        if token is not None:
            self.recorder.tape.returned(token, outputs)
            self._listen()

    # Optimizers

    def optimizer_made(self, optimizer: Optimizer) -> None:
        self._optimizers.add(optimizer)

    def step_begins(self, optimizer: Optimizer, args: Any, kwargs: Any, frame: Any) -> Any:
        self._give_back_groups(None)
        self._optimizers.add(optimizer)
        self.recorder.remember(
            max(1, min(4, len(self._optimizers))) + (LATE_STEPS if self._on_device(optimizer) else 0)
        )
        self._in_step = True
        self._step_stack = take_stack(frame)
        self._event("step")
        self.outside.stand_aside()
        self._judge_hyperparameters(optimizer)
        replaced = self._with_closure_watched(optimizer, args, kwargs)
        if replaced is None:
            self._judge_step(optimizer)
        if self._live is not None:
            self._live.phase = "optimizer"
            self._live.resume()
        return replaced

    def _judge_hyperparameters(self, optimizer: Optimizer) -> None:
        """A rate that a schedule made NaN or Inf spoils every weight: stop before it is used. (With a live
        trace running, the op that it spoils is seen and named.)"""
        if self._live is not None and self._live.active:
            return
        rates = [g.get("lr") for g in optimizer.param_groups]
        if any(isinstance(rate, float) and not math.isfinite(rate) for rate in rates):
            self.last_update = LastUpdate(self.step, self._step_stack, weakref.ref(optimizer), None)
            self._trouble("hyperparameter", [], optimizer)

    def _judge_step(self, optimizer: Optimizer) -> None:
        if self._live is not None:
            self._live.pause()
        if self._on_device(optimizer):
            self._judge_late(False)
            norm = self._clip_norm(optimizer)
            self._verdict_is_late = True
            agree = worst_on_device if self._in_lockstep else None
            self._device.guard(
                optimizer, self.step, self._losses, gradients_of(optimizer), norm, agree, self._hold_back_late
            )
            return
        if self._scaler_checked:
            verdict = self._host.judge(self._losses, [], self._clip_norm(optimizer))
        else:
            verdict = self._host.judge(self._losses, gradients_of(optimizer), self._clip_norm(optimizer))
        self._verdict = verdict = self._agreed(verdict)
        if verdict.bad is not None:
            self._act_on(verdict, gradients_of(optimizer), optimizer)
        else:
            self._judge_silent_damage(optimizer)

    def _agreed(self, verdict: Verdict) -> Verdict:
        """The verdict of all ranks: "rank" when only another one's is bad."""
        if not self._in_lockstep or not worst_of_all(verdict.bad is not None) or verdict.bad is not None:
            return verdict
        return replace(verdict, bad="rank")

    def _judge_silent_damage(self, optimizer: Optimizer | None) -> None:
        if self._live is not None and self._live.active and self._live.silent_damage():
            self._trouble("trace", [], optimizer)

    def _act_on(self, verdict: Verdict, gradients: list[torch.Tensor], optimizer: Optimizer | None) -> None:
        sinks: list[tuple[str, torch.Tensor]] = []
        sinks += [("loss", loss) for loss in self._losses if not is_finite(loss)]
        sinks += [("gradient", g) for g in gradients if not is_finite(g)]
        action = self._trouble(verdict.bad or "", sinks, optimizer, prevented=optimizer is not None)
        if action == "skip" and optimizer is not None:
            self._hold_back(optimizer)
            self._put_buffers_back(self.recorder.tape)

    def _hold_back(self, optimizer: Optimizer) -> None:
        """Let this step find nothing to update: its groups are empty until it is done."""
        self._held_back = optimizer.param_groups
        optimizer.param_groups = [{**group, "params": []} for group in optimizer.param_groups]
        self._event("skip")

    def _give_back_groups(self, optimizer: Optimizer | None) -> None:
        held, self._held_back = self._held_back, None
        if held is None:
            return
        for candidate in [optimizer] if optimizer is not None else list(self._optimizers):
            if candidate is not None and [g.get("lr") for g in candidate.param_groups] == [
                g.get("lr") for g in held
            ]:
                candidate.param_groups = held
                return

    def _put_buffers_back(self, tape: Tape) -> None:
        """BatchNorm's statistics and the like, as they were before the bad batch."""
        with torch.no_grad():
            for entry in reversed(tape.entries):
                for owner, name, before in entry.buffers:
                    now = owner._buffers.get(name)
                    if now is not None:
                        now.copy_(before)

    def step_done(self, optimizer: Optimizer) -> None:
        self._give_back_groups(optimizer)
        if self._on_device(optimizer) and not self._in_scaler:
            optimizer.__dict__.pop("found_inf", None)
        self._in_step = False
        norm = self._verdict.grad_norm
        self.last_update = LastUpdate(self.step, self._step_stack, weakref.ref(optimizer), norm)
        live = self._live
        if live is not None and live.active:
            live.pause()
            if live.bad_update():
                self._trouble("weights", [], optimizer, prevented=False)
        self._finish_step(self._verdict, optimizer)
        self._listen()

    def _with_closure_watched(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        """The step's arguments with the closure wrapped, or None if there is no closure."""
        closure = (
            kwargs.get("closure")
            if kwargs.get("closure") is not None
            else (args[1] if len(args) > 1 else None)
        )
        if not callable(closure):
            return None

        def watched(*a: Any, **k: Any) -> Any:
            self.shield.run(self._closure_begins)
            result = closure(*a, **k)
            self.shield.run(self._closure_done, optimizer)
            return result

        if "closure" in kwargs:
            return args, {**kwargs, "closure": watched}
        return (args[0], watched, *args[2:]), kwargs

    def _closure_begins(self) -> None:
        self._in_step = False
        self._listen()

    def _closure_done(self, optimizer: Optimizer) -> None:
        self._stand_aside()
        self._in_step = True
        verdict = self._host.judge(self._losses, gradients_of(optimizer), self._clip_norm(optimizer))
        self._verdict = verdict = self._agreed(verdict)
        if verdict.bad is not None:
            self._act_on(verdict, gradients_of(optimizer), optimizer)
        if self._live is not None:
            self._live.phase = "optimizer"
            self._live.resume()

    # Device mode

    def _on_device(self, optimizer: Optimizer) -> bool:
        if self._mode == "host" or not supports_found_inf(optimizer):
            return False
        if self._mode == "device":
            return True
        return any(p.is_cuda for group in optimizer.param_groups for p in group["params"][:1])

    def _judge_late(self, wait: bool) -> None:
        for step, verdict in self._device.past(wait):
            facts = self._late_facts.pop(step, None)
            if facts is not None:
                self._log(replace(facts, loss=verdict.loss, grad_norm=verdict.grad_norm))
            if verdict.bad is None:
                continue
            tapes = [*self.recorder.finished, self.recorder.tape]
            tape = next((t for t in tapes if t.step == step), self.recorder.tape)
            earlier = tuple(t for t in tapes if t.step < step)
            trouble = Trouble(step, verdict.bad, tape, earlier, [], None, live=None)
            trouble.prevented = self._hold_back_late
            action = self._send(trouble)
            if action[0] == "skip":
                self._put_buffers_back(tape)
            self._device.clear()
            for held_back in self._late_facts.values():
                self._log(replace(held_back, events=(*held_back.events, "held-back")))
            self._late_facts.clear()
            self._raise_if(action)

    # Clipping and loss scaling

    def clipped(self, parameters: Any, norm: torch.Tensor) -> None:
        self._event("clip")
        tensors = [parameters] if isinstance(parameters, torch.Tensor) else parameters
        self._clip = (frozenset(map(id, tensors)), norm.detach())

    def _clip_norm(self, optimizer: Optimizer) -> torch.Tensor | None:
        """The norm that clipping has already computed, if it was over all of this optimizer's gradients."""
        if self._clip is None:
            return None
        covered, norm = self._clip
        mine = (id(p) for group in optimizer.param_groups for p in group["params"] if p.grad is not None)
        return norm if all(p in covered for p in mine) else None

    def scaled(self, outputs: Any, scaled: Any, scaler: Any) -> None:
        self._event("scale")
        if isinstance(outputs, torch.Tensor) and isinstance(scaled, torch.Tensor):
            self._unscaled[id(scaled)] = outputs

    def scaler_unscaled(self, scaler: Any, optimizer: Optimizer) -> None:
        self._event("unscale")
        self._scaler_checked = True

    def scaler_step_begins(self, scaler: Any, optimizer: Optimizer, frame: Any) -> None:
        self._in_scaler = True
        self._scaler_checked = True
        self._stepped = False
        self._step_stack = take_stack(frame)
        self._stand_aside()

    def scaler_step_done(self, scaler: Any, optimizer: Optimizer) -> None:
        self._in_scaler = False
        if not self._stepped:
            self._optimizers.add(optimizer)
            self._scaler_skipped(optimizer)
        self._listen()

    def _scaler_skipped(self, optimizer: Optimizer) -> None:
        self._event("scaler-skip")
        verdict = self._host.judge(self._losses, [], None)
        if verdict.bad is not None:
            self._trouble("loss", [("loss", loss) for loss in self._losses if not is_finite(loss)], optimizer)
        elif self._skip_seconds < FREE_SKIP_SECONDS + SKIP_SHARE * (time.perf_counter() - self._started):
            began = time.perf_counter()
            self._trouble("gradients", [], optimizer, scaler_search=True)
            self._skip_seconds += time.perf_counter() - began
        self._finish_step(verdict, optimizer)

    def scaler_updated(self, scaler: Any) -> None:
        self._event("update")
        self._scale = scaler

    # TorchScript

    def torchscript_begins(self) -> None:
        """Its interpreter cannot run under a tracer: no audit from here on."""
        if self._live is not None:
            self._live.leave_for_good()
            self._live = None

    # Arrivals

    def arrived(self, value: Any, frame: Any) -> None:
        stack = take_stack(frame)
        for tensor in tensors_in(value):
            self._arrivals.put(tensor, stack)

    # Steps and reports

    def _trouble(
        self,
        seen_in: str,
        sinks: list[tuple[str, torch.Tensor]],
        optimizer: Any = None,
        scaler_search: bool = False,
        prevented: bool = True,
    ) -> str | None:
        earlier = tuple(self.recorder.finished)
        trouble = Trouble(self.step, seen_in, self.recorder.tape, earlier, sinks, optimizer, scaler_search)
        trouble.live = self._live
        trouble.prevented = prevented
        return self._raise_if(self._send(trouble))

    def _send(self, trouble: Trouble) -> tuple[str | None, BaseException | None]:
        trouble.last_update = self.last_update
        trouble.arrivals = self._arrivals
        was, self.calls.handler = self.calls.handler, None
        self._stand_aside()
        try:
            with torch._C._EnableTorchFunction():  # a replay needs them: a default device is such a mode
                return self._report(trouble), None
        except NonFiniteError as error:
            return "raise", error
        finally:
            self.calls.handler = was

    def _raise_if(self, outcome: tuple[str | None, BaseException | None]) -> str | None:
        action, error = outcome
        if action is not None:
            self.incidents += 1
            self._event("incident")
        if error is not None:
            self._raised = True
            self._finish_step(Verdict(None, None, None))
            self._in_step = self._inside = False
            raise error
        return action

    def _event(self, name: str) -> None:
        self._events.append(name)

    def _begin_facts(self) -> None:
        self._events.clear()
        self._verdict_is_late = False
        self._losses = []
        self._root_done = False
        self._clip = None
        self._unscaled = {}
        self._leaves = []
        self._scaler_checked = False
        self._verdict = Verdict(None, None, None)
        self._in_step = False
        self._in_scaler = False
        self._stepped = False
        self._scale = None
        self._began = time.perf_counter()

    def _finish_step(self, verdict: Verdict, optimizer: Optimizer | None = None) -> None:
        facts = self._facts(verdict, optimizer)
        if self._verdict_is_late:
            self._late_facts[self.step] = facts
        else:
            self._log(facts)
        in_scaler = self._in_scaler
        self._begin_facts()
        self._in_scaler, self._stepped = in_scaler, True
        self.step += 1
        self.recorder.next_step(self.step)
        if self.step % 64 == 0:
            self._arrivals.sweep()
        if self._live is not None:
            self._live.end_step()
            self._live.begin_step(self.step)

    def _facts(self, verdict: Verdict, optimizer: Optimizer | None) -> StepFacts:
        lr = (
            tuple(float(g.get("lr", math.nan)) for g in optimizer.param_groups)
            if optimizer is not None
            else ()
        )
        scale = None
        if (
            self._scale is not None
            and self._scale._scale is not None
            and self._scale._scale.device.type == "cpu"
        ):
            scale = float(self._scale.get_scale())
        return StepFacts(
            step=self.step,
            loss=verdict.loss,
            grad_norm=verdict.grad_norm,
            lr=lr,
            scale=scale,
            seconds=round(time.perf_counter() - self._began, 6),
            events=tuple(self._events),
            facts=self._live.facts() if self._live is not None and self._live.active else {},
        )


def leaves_of(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The leaf tensors whose gradients a backward from `tensors` will fill."""
    found: list[torch.Tensor] = []
    seen: set[Any] = set()
    waiting = [t.grad_fn for t in tensors if t.grad_fn is not None]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            found.append(variable)
        waiting += [following for following, _ in node.next_functions if following is not None]
    return found


def _living(kind: type) -> list[Any]:
    """All objects of a kind in this process."""
    return [o for o in gc.get_objects() if issubclass(type(o), kind)]


def phase_of(module: nn.Module) -> str:
    """A module that computes a loss belongs to the loss, whoever calls it."""
    name = type(module).__name__.lower()
    if isinstance(module, nn.modules.loss._Loss) or "loss" in name or "criterion" in name:
        return "loss"
    return "forward"


def _is_compiled(module: nn.Module) -> bool:
    if "torch._dynamo" not in sys.modules:
        return False
    return any(
        m._compiled_call_impl is not None or type(m).__name__ == "OptimizedModule" for m in module.modules()
    )
