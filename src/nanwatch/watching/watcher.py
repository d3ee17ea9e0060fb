"""Follows one program: keeps the tape, asks the sentinel before every update, and reports a bad step."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from nanwatch.errors import NonFiniteError
from nanwatch.messages import say
from nanwatch.records import StepFacts
from nanwatch.tensors import is_finite
from nanwatch.watching.about_models import (
    called_by_a_tool,
    given_what_a_model_made,
    is_compiled,
    is_loss,
    living,
)
from nanwatch.watching.arrivals import SWEPT_EVERY, Arrivals
from nanwatch.watching.backwards import Backwards
from nanwatch.watching.called_by_name import CalledByName
from nanwatch.watching.fingerprints import Fingerprints
from nanwatch.watching.first_look import look_at
from nanwatch.watching.following import Following
from nanwatch.watching.lasting_state import Damage
from nanwatch.watching.module_calls import ModuleCalls
from nanwatch.watching.not_compiled import hide_from_dynamo
from nanwatch.watching.other_threads import OtherThreads
from nanwatch.watching.outputs import Outputs
from nanwatch.watching.outside import OutsideMode
from nanwatch.watching.pretending import pretending
from nanwatch.watching.randomness import Rng
from nanwatch.watching.ranks import Lockstep
from nanwatch.watching.recorder import Recorder
from nanwatch.watching.scaling import Scaling
from nanwatch.watching.sentinel import HostSentinel, Verdict
from nanwatch.watching.shield import Shield, warn
from nanwatch.watching.step import NOTHING_WRONG, Step
from nanwatch.watching.tape import Entry, tensors_in
from nanwatch.watching.trouble import LiveTrace, Report, Trouble
from nanwatch.watching.updates import Updates

MODES = ("auto", "host", "device")


class Watcher:
    """Install with `start`, remove with `close`; both may be called at any time between steps."""

    def __init__(
        self,
        report: Report,
        log: Callable[[StepFacts], None],
        mode: str = "auto",
        policy: str = "raise",
        live: LiveTrace | None = None,
    ) -> None:
        self.now = Step(0)
        self.incidents = 0
        self.log = log
        self._report = report
        self._said: set[str] = set()
        self.shield = Shield(self._gave_up, self._interrupted)
        self.lockstep = Lockstep(self._step_aside)
        self.calls = ModuleCalls()
        self.recorder = Recorder()
        self.fingerprints = Fingerprints(*live.small_budget) if live is not None else Fingerprints(0.0)
        self.outside = OutsideMode(self.recorder, self.shield.give_up)
        self.updates = Updates(self, mode, policy)
        self.scaling = Scaling(self)
        self._following = Following(self, self.shield)
        self._other_threads = OtherThreads(self)
        self.host = HostSentinel()
        self.live = live
        if live is not None:
            live.tell_errors_to(self.shield.give_up)
        self._home = threading.get_ident()
        self.arrivals = Arrivals()
        self.outputs = Outputs(self)
        self.backwards = Backwards(self)
        self._called_by_name = CalledByName()
        self.has_backward = False
        """The program has differentiated something."""
        self.by_hand = False
        """It has an optimizer, and updates its weights without."""
        self.inside = False
        """A root module is running."""
        self._compiled = False
        """A function under torch.compile is running: a mode on a stack would keep Dynamo from compiling the
        rest of it, where it has to be cut in two."""
        self._began_at = 0
        """How many ops the live trace had seen when the root module was called."""
        self.trained: dict[tuple[int, int], bool] = {}
        self.go_back: Callable[[int | None], None] | None = None
        """Puts the last good state back: one of this step or before."""
        self.bad_state: Callable[[], list[tuple[str, torch.Tensor]]] | None = None
        """What outlives the step and was found not to be finite, though the step was."""
        self.good_parts: Any = None
        """Of the last trouble: what its step is without its bad micro-batches."""
        self._closed = True
        self._raised = False

    @property
    def step(self) -> int:
        return self.now.number

    # Starting and stopping

    def start(self) -> None:
        self._closed = False
        hide_from_dynamo()
        self.updates.optimizers.update(living(Optimizer))
        if living(torch.jit.ScriptFunction, torch.jit.ScriptModule):
            self.torchscript_begins()
        self._following.install()
        self.calls.install()
        self.calls.handler = self._root_call
        if self.live is not None:
            self.live.begin_step(self.step)
        self.listen()

    def close(self) -> None:
        """Take every tap off. Leaves no hook behind: what cannot come off now, because a call of torch is
        under way that will put it back, comes off at the next call of a module, or when asked again."""
        parts: list[Callable[[], object]] = [self.outside.leave_for_good]
        if self.live is not None:
            parts.append(self.live.leave_for_good)
        if not self._closed:
            updates = self.updates
            parts += [
                self._following.uninstall,
                updates.give_back,
                updates.late.settle,
                updates.aftermath.over,
            ]
        self._closed = True
        gone = [_without_fail(part) for part in parts]
        if all(left is not False for left in gone):
            self.calls.uninstall()
        else:
            self.calls.handler = self._close_again

    def _close_again(
        self, original: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if threading.get_ident() == self._home:
            self.calls.handler = None
            self.close()
        return original(module, *args, **kwargs)

    def finish(self) -> None:
        """At the end of the program: judge what is still open, then close."""
        try:
            if not self._closed and not self._raised:
                self.shield.run(self.updates.late.act_on_those_that_came, True)
                self.shield.run(self.outputs.judge_pending)
                self.shield.run(self.outputs.judge_trial)
                if not self.incidents:
                    self.shield.run(self.updates.judge_last)
        finally:
            self.close()
            self.lockstep.end()
            self.recorder.forget()

    def _gave_up(self) -> None:
        self.close()
        self.lockstep.leave(self.updates.late.serve)

    def _interrupted(self) -> None:
        """A signal handler of the program has raised something while our code ran, and what that was about to
        do is not done: begin anew from what is there."""
        self.outside.look_again()
        if self.live is not None:
            self.live.look_again()
        if self._closed or self.inside or threading.get_ident() != self._home:
            return
        self.calls.handler = self._root_call
        self.backwards.under_way, self.now.updating, self._compiled = None, False, False
        self.listen()

    def _step_aside(self, sentence: str) -> None:
        """Because nanwatch did on another rank."""
        self.shield.broken = True
        self.close()
        warn(sentence)

    def say_once(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            self.recorder.tape.notes.append(sentence)
            warn(sentence)

    # Listening to the program's own code, and standing aside for the rest

    def listen(self) -> None:
        if self._closed or self._compiled:
            return
        self.outside.come_back()
        if self.live is not None and (self.live.active or self.live.on):
            self._trace("outside")

    def stand_aside(self) -> None:
        self.outside.stand_aside()
        live = self.live
        if live is not None and live.on:
            live.pause()

    def trace_the_update(self) -> None:
        self._trace("optimizer")

    def _trace(self, phase: str) -> None:
        live = self.live
        if live is not None and (live.active or live.on) and not self._compiled:
            live.phase = phase
            live.resume()

    def quiet_begins(self) -> None:
        self.stand_aside()

    def quiet_done(self) -> None:
        if not self.inside:
            self.listen()

    # Root modules

    def _root_call(
        self, original: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if threading.get_ident() != self._home or self.shield.busy or self.shield.broken:
            if self.shield.busy or self.shield.broken or self.inside or pretending():
                return original(module, *args, **kwargs)
            if not getattr(module, "training", False) or not torch.is_grad_enabled():
                return self._other_threads.call(original, module, args, kwargs, sys._getframe(1))
            self.say_once(say("watch.other_thread"))
            return original(module, *args, **kwargs)
        if pretending() or (self._compiled and isinstance(module, torch.fx.GraphModule)):
            return self._unheard(original, module, args, kwargs)
        frame = sys._getframe(1)
        if not self.has_backward and called_by_a_tool(frame):
            was, self.calls.handler = self.calls.handler, None
            try:
                return original(module, *args, **kwargs)
            finally:
                self.calls.handler = was
        try:
            entry = self.shield.run(self._root_begins, module, args, kwargs, frame)
        except BaseException:
            self.inside = False
            raise
        if self.shield.broken:
            return original(module, *args, **kwargs)
        live = self.live
        followed = live is not None and live.active
        self.calls.handler = live.scope if live is not None and followed else None
        try:
            try:
                if live is not None and followed:
                    outputs = live.scope.follow(original, module, args, kwargs)
                else:
                    outputs = original(module, *args, **kwargs)
            finally:  # nothing is called here: no signal can come in between
                self.inside = False
                if not self.shield.broken:
                    self.calls.handler = self._root_call
        except BaseException as error:
            self.shield.run(self._root_failed, entry, error)
            raise
        self.shield.run(self._root_returned, entry, outputs)
        return outputs

    def _unheard(
        self, original: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A call that the program makes only to see what would happen; or of the graph that a backend made of
        a function, which is a part of that."""
        listening, was = self.outside.listening, self.calls.handler
        self.calls.handler = None
        self.stand_aside()
        try:
            return original(module, *args, **kwargs)
        finally:
            if not self._closed:
                self.calls.handler = was
                if listening:
                    self.listen()

    def _root_begins(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], frame: Any
    ) -> Entry:
        recorder = self.recorder
        outputs = self.outputs
        if outputs.pending is not None or outputs.trial is not None:
            outputs.module_called(module, args, kwargs)
        if recorder.on_write is not None:
            self.updates.aftermath.module_called(module, args, kwargs)
        if self.updates.last is None and self.updates.optimizers and not self.by_hand:
            self.backwards.notice_updates_by_hand()
        training = self.updates.last is not None or self._is_training(module)
        self.lockstep.note(module)
        anew = not training and not self._called_by_name.goes_on(module, frame)
        if anew and self.now.model_returned and outputs.trial is None:
            self.finish_step(self.now.verdict)
        self.stand_aside()
        self.inside = True
        fed = bool(recorder.tape.entries) and given_what_a_model_made(args, kwargs, recorder.tape)
        phase = "loss" if is_loss(module, fed) else "forward"
        if fed and phase == "forward":
            self._were_layers(args, kwargs)
        self.now.events.append("forward")
        entry = recorder.module_begins(module, args, kwargs, frame)
        if not entry.known.looked_at:
            entry.known.looked_at = self.fingerprints.model_called(module, self.step)
        entry.phase, entry.fed = phase, fed
        if self.lockstep.replicas:
            entry.exchange = self.lockstep.exchange_of(module)
        if self.live is not None and self.live.active:
            self.live.phase = phase
            self._began_at = self.live.ops_seen
            if is_compiled(module):
                self.live.pause()
            else:
                self.live.resume()
        return entry

    def _were_layers(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """What looked like a loss, since it has nothing to learn, and is given to a model, was a layer."""
        given = {id(tensor) for tensor in tensors_in((args, kwargs))}
        for entry in self.recorder.tape.entries:
            if (
                entry.kind == "module"
                and entry.phase == "loss"
                and any(id(t) in given for t, _ in entry.made)
            ):
                entry.phase = "forward"
                if self.live is not None and self.live.active:
                    self.live.was_a_layer(entry.call)

    def _is_training(self, module: nn.Module) -> bool:
        """Whether an optimizer works on this program's models: then its steps are counted, else calls of
        the root module."""
        key = (id(module), len(self.updates.optimizers))
        if key not in self.trained:
            mine = {id(p) for p in module.parameters()}
            held = (p for o in self.updates.optimizers for group in o.param_groups for p in group["params"])
            self.trained[key] = any(id(p) in mine for p in held)
        return self.training

    @property
    def training(self) -> bool:
        return self.updates.last is not None or (not self.by_hand and any(self.trained.values()))

    def _root_failed(self, entry: Entry | None, error: BaseException) -> None:
        if entry is not None and isinstance(error, Exception):
            self.recorder.failing = (entry, error)
        self.listen()

    def _root_returned(self, entry: Entry | None, outputs: Any) -> None:
        if entry is None:
            return
        if entry.fed:
            self._note_phase(entry, outputs)
        self.recorder.module_returned(entry, outputs)
        if self.recorder.on_write is not None:
            self.updates.aftermath.module_returned(entry)
        self.now.model_returned = True
        if self.live is not None and self.live.active and entry.phase != "loss":
            self.live.root_returned()
        if not any(t.requires_grad for t, _ in entry.made):
            self.outputs.judge(entry, outputs, in_training=self.has_backward)
            if self.outputs.trial is None:
                entry.let_model_go()
            self.recorder.forget_plain_calls()
        elif not self.has_backward:
            self.outputs.pending = (entry, outputs)
        self.listen()

    def _note_phase(self, entry: Entry, outputs: Any) -> None:
        """What it returned may show that it was a loss and not a model."""
        if entry.phase == "forward" and isinstance(outputs, torch.Tensor) and outputs.dim() == 0:
            entry.phase = "loss"
            if self.live is not None and self.live.active:
                self.live.was_loss_since(self._began_at)

    def judge_silent_damage(self, optimizer: Optimizer | None) -> None:
        if self.live is not None and self.live.active and self.live.silent_damage():
            self.trouble("trace", [], optimizer)

    # Transforms of torch.func

    def transform_begins(self) -> None:
        if self.outputs.trial is not None and not self.inside:
            self.outputs.judge_trial()
            self.listen()

    def transformed(self, entry: Entry, outputs: Any) -> None:
        """Models under `vmap`, in a program that trains nothing: what comes of them is judged as if the
        transform were a model."""
        made = list(tensors_in(outputs))
        if self.training or not self.outside.listening or any(t.requires_grad for t in made):
            return
        bad = [t for t in made if not is_finite(t)]
        if bad:
            self.outputs.leave_to_the_program(entry, bad)
        else:
            self.finish_step(self.now.verdict)

    # Custom autograd functions outside modules

    def apply_begins(self, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any], frame: Any) -> Any:
        if self.inside or self.now.updating or not self.outside.listening:
            return None
        self.outside.stand_aside()
        return self.recorder.applied(call, args, kwargs, frame)

    def apply_done(self, token: Any, outputs: Any) -> None:
        if token is not None:
            self.recorder.tape.returned(token, outputs)
            self.listen()

    # Functions under torch.compile outside modules

    def compiled_begins(self, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any], frame: Any) -> Any:
        if self.live is not None:
            self.live.pause()
        token = self.apply_begins(call, args, kwargs, frame)
        was, self._compiled = self._compiled, True
        return token, was

    def compiled_done(self, token: Any, outputs: Any) -> None:
        if token is not None:
            entry, self._compiled = token
            self.apply_done(entry, outputs)

    # TorchScript

    def torchscript_begins(self) -> None:
        """Its interpreter cannot run under a tracer: no audit from here on."""
        if self.live is not None:
            self.live.leave_for_good()
            self.live = None

    def batch_arrived(self, loader: Any, value: Any, frame: Any) -> None:
        self.now.epoch = self.arrivals.batch_came(loader, value, frame)

    # Steps and reports

    def trouble(
        self,
        seen_in: str,
        sinks: list[tuple[str, torch.Tensor]],
        optimizer: Any = None,
        scaler_search: bool = False,
        prevented: bool = True,
        parts: bool = False,
        damage: Damage | None = None,
        note: str = "",
    ) -> str | None:
        tape, earlier = self.recorder.tape, tuple(self.recorder.finished)
        if seen_in == "gradients":
            tape, earlier = self.recorder.of_gradients()
        trouble = Trouble(self.step, seen_in, tape, earlier, sinks, optimizer, scaler_search)
        trouble.live = self.live
        trouble.events = tuple(self.now.events)
        trouble.prevented, trouble.parts, trouble.damage = prevented, parts, damage
        trouble.notes += [note] if note else []
        outcome = self.raise_if(self.send(trouble))
        self.good_parts = trouble.good_parts
        return outcome

    def checkpoint_is_bad(self, bad: list[tuple[str, torch.Tensor]]) -> None:
        """The program has saved these."""
        if threading.get_ident() == self._home and not self._closed and not self.shield.busy:
            self.shield.run(self.trouble, "checkpoint", bad, prevented=False)
            self.quiet_done()

    def send(self, trouble: Trouble) -> tuple[str | None, BaseException | None]:
        self.stand_aside()
        return self._tell(trouble)

    def tell_from_elsewhere(self, trouble: Trouble) -> None:
        """A bad call of a model in another thread: what this one is doing goes on as it is."""
        self.shield.busy = True
        try:
            action, error = self._tell(trouble)
        except Exception as own:
            self.shield.give_up(own)
            return
        finally:
            self.shield.busy = False
        self.incidents += action is not None
        if error is not None:
            self._raised = True
            raise error

    def _tell(self, trouble: Trouble) -> tuple[str | None, BaseException | None]:
        trouble.last_updates = self.updates.last_of_each.latest_first
        trouble.arrivals, trouble.handed_out = self.arrivals.places, self.recorder.handed_out
        trouble.fingerprints = self.fingerprints
        trouble.epoch = self.now.epoch
        look_at(trouble)
        was, self.calls.handler = self.calls.handler, None
        rng = Rng.of_all()  # libraries that a report imports may draw, too
        try:
            with torch._C._EnableTorchFunction():  # a replay needs them: a default device is such a mode
                return self._report(trouble), None
        except NonFiniteError as error:
            return "raise", error
        finally:
            self.calls.handler = was
            rng.put_back()

    def raise_if(self, outcome: tuple[str | None, BaseException | None]) -> str | None:
        action, error = outcome
        if action is not None:
            self.incidents += 1
            self.event("incident")
        if error is not None:
            self._raised = True
            self.lockstep.wait_for_reports()
            self.finish_step(NOTHING_WRONG)
            self.now.updating = self.inside = False
            raise error
        return action

    def roll_back(self, good_until: int | None = None) -> None:
        """Back to the last good state, if the session keeps one. `good_until`: the step after which all was
        well, if that is known."""
        if self.go_back is not None:
            self.go_back(good_until)

    def bad_losses(self) -> list[tuple[str, torch.Tensor]]:
        return [("loss", loss) for loss in self.now.losses if not is_finite(loss)]

    def event(self, name: str) -> None:
        self.now.events.append(name)

    def finish_step(self, verdict: Verdict, optimizer: Optimizer | None = None) -> None:
        live, now = self.live, self.now
        facts = now.facts(verdict, optimizer, live.facts() if live is not None and live.active else {})
        if now.verdict_is_late:
            self.updates.late.keep_until_judged(facts)
        else:
            self.log(facts)
        self.scaling.stepped = True
        number = now.number + 1
        self.now = Step(number, now.epoch)
        self.recorder.next_step(number)
        if now.epoch is not None or number % SWEPT_EVERY == 0:
            self.arrivals.step_made(number, now.epoch)
        if live is not None:
            if live.active:
                live.end_step(
                    verdict.bad is None and not now.verdict_is_late and "incident" not in now.events
                )
            live.begin_step(number)


def _without_fail(work: Callable[[], object]) -> object:
    """What `work` returns; what it raises must not keep the other parts from coming off."""
    try:
        return work()
    except Exception:
        return None
