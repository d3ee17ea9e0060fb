"""Plain PyTorch: `nanwatch.watch(model, optimizer)`, and what `nanwatch run` puts around a script.

A session joins the rooms: the watcher's trouble is located by a replay, acted upon by the policy, shown on
the terminal and written to the run folder.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from nanwatch import arguments
from nanwatch.act import checkpoint_gate
from nanwatch.act.alarm import Alarm
from nanwatch.act.policy import Decisions, Policy, action_of, policy_of
from nanwatch.act.precautions import Precautions
from nanwatch.act.saved_state import BadTensor
from nanwatch.adapters import micro_batches
from nanwatch.adapters.died_of import behind
from nanwatch.adapters.explaining import explained
from nanwatch.adapters.run_record import describe_run, devices_in_use, now, sentence_of
from nanwatch.adapters.unhurried import unhurried
from nanwatch.errors import NanwatchError, NonFiniteError
from nanwatch.messages import say
from nanwatch.records import Incident, Run, StepFacts
from nanwatch.replay.live import FIRST_SECONDS, SHARE, LiveTracer
from nanwatch.replay.locate import locate
from nanwatch.replay.located import Located
from nanwatch.show import terminal
from nanwatch.show.folder import RunFolder, reason
from nanwatch.show.repro import encode_call, repro_source
from nanwatch.signals import let_through
from nanwatch.watching import forbidden
from nanwatch.watching.shield import describe, warn
from nanwatch.watching.trouble import Trouble
from nanwatch.watching.watcher import MODES, Watcher

HISTORY = 1000
"""Steps whose facts are kept in memory."""

SNAPSHOT_EVERY = 100
"""Steps between two snapshots of the last good state, where the policy may go back to it."""

MOST_CHECKPOINTS = 3
"""Bad checkpoints that are looked into as long as none turns out to be an incident."""

FIRST_STEPS = 4
"""By then a program that uses a GPU does."""

MOST_LOCATED = 10
"""Incidents of one run that are traced and written in full; later ones are counted."""


class Session:
    """One watched program. Use as a context manager, or call `close()`."""

    def __init__(
        self,
        policy: str | Policy = "raise",
        mode: str = "auto",
        folder: str | os.PathLike[str] | None = None,
        name: str = "watch",
        command: tuple[str, ...] = (),
        audit_seconds: float = FIRST_SECONDS,
        audit_share: float = SHARE,
        explain: bool = True,
        checklist: bool = False,
        snapshot_every: int = SNAPSHOT_EVERY,
        early_warning: bool = True,
        gate: bool = True,
        kept: tuple[Any, ...] = (),
        patient: bool = False,
    ) -> None:
        self.policy = policy_of(policy)
        self.decisions = Decisions(self.policy)
        self.explain = explain
        self.checklist = checklist
        if mode not in MODES:
            raise NanwatchError(say("watch.unknown_mode", mode=mode, choices=", ".join(MODES)))
        self.rank = int(os.environ.get("RANK", "0"))
        self.incidents: list[Incident] = []
        self.history: deque[StepFacts] = deque(maxlen=HISTORY)
        self.warnings: list[Alarm] = []
        self.stopped_by_incident = False
        self.folder: RunFolder | None = None
        self._run: Run | None = None
        """What was written of the run, as long as it may still begin to use a GPU."""
        self._log_broken = False
        self._gated = False
        self._checkpoints_to_look_at = MOST_CHECKPOINTS
        self._summed_up = False
        self.precautions: Precautions | None = None
        self._told_of_other_rank = False
        self._open_folder(folder, name, command, policy)
        self._take_precautions(snapshot_every, early_warning, gate, kept)
        live = LiveTracer(audit_seconds, audit_share) if audit_seconds or audit_share else None
        self.watcher = Watcher(
            unhurried()(self._report), self._log, mode, self.policy.in_the_watchers_words, live
        )
        self.watcher.go_back = self._go_back
        self.watcher.outputs.at_once = self.policy.replace_by_zero
        self.watcher.outputs.patient = patient
        if self.precautions is not None:
            self.precautions.join_ranks(self.watcher, tells_why=self.rank != 0)
        if self.precautions is not None and self.policy.rollbacks:
            self.watcher.bad_state = functools.partial(self.precautions.bad_state, self.watcher)
        self.watcher.start()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and not isinstance(error, NonFiniteError):
            self.post_mortem(error)
        self.close()

    def close(self) -> None:
        """Judge what is still open, take every hook off, close the run folder."""
        try:
            self.watcher.finish()
        finally:
            if self._gated:
                self._gated = False
                checkpoint_gate.uninstall(self._bad_checkpoint, not self.policy.observe)
            if self.precautions is not None:
                self.precautions.close()
            forbidden.forget()
            if self.folder is not None:
                self._note_devices()
                self._write(self.folder.close)
            self._sum_up()

    def _sum_up(self) -> None:
        """Once: how many steps the policy has dealt with, where more were than the run folder has."""
        decisions, said = self.decisions, self._summed_up
        self._summed_up = True
        if decisions.skipped > 1 and not said:
            warn(say("watch.skipped_in_all", count=decisions.skipped, path=self._folder_text()))
        if decisions.let_be > MOST_LOCATED and not said:
            counts = {"count": decisions.let_be, "written": len(self.incidents)}
            warn(say("watch.let_be_in_all", path=self._folder_text(), **counts))

    @property
    def skipped(self) -> int:
        return self.decisions.skipped

    @property
    def rolled_back(self) -> int:
        return self.decisions.rolled_back

    # The run folder

    def _open_folder(
        self,
        folder: str | os.PathLike[str] | None,
        name: str,
        command: tuple[str, ...],
        policy: str | Policy,
    ) -> None:
        try:
            wanted = None if folder is None else Path(folder)
            self.folder, sentence = RunFolder.create_or_fall_back(wanted, name, self.rank)
            if sentence is not None:
                warn(sentence)
            if self.folder is not None and self.rank == 0:
                self._run = describe_run(command, str(policy))
                self._write(self.folder.write_run, self._run)
        except Exception as error:
            self.folder = None
            warn(say("watch.folder_lost", path=folder, fallback="-", why=describe(error)))

    def _note_devices(self) -> None:
        """The GPUs that the program has begun to use since the run was described."""
        run = self._run
        if run is not None and self.folder is not None and torch.cuda.is_initialized():
            self._run = None
            if (devices := devices_in_use()) != run.devices:
                self._write(self.folder.write_run, replace(run, devices=devices))

    def _write(self, work: Any, *args: Any) -> None:
        """Writing may fail at any time (a full disk): then say so once and go on without."""
        try:
            work(*args)
        except OSError as error:
            self._not_written(error)

    def _not_written(self, error: OSError) -> None:
        if not self._log_broken:
            self._log_broken = True
            path = self._folder_text()
            warn(say("watch.steps_not_written", rank=self.rank, path=path, why=reason(error)))

    def _take_precautions(self, every: int, early_warning: bool, gate: bool, kept: tuple[Any, ...]) -> None:
        try:
            where = None if self.folder is None else self.folder.path / "last-good"
            self.precautions = Precautions(self.policy, where, every, early_warning, kept)
            if gate:
                checkpoint_gate.install(self._bad_checkpoint, not self.policy.observe)
                self._gated = True
        except NanwatchError:
            raise
        except Exception as error:
            warn(say("watch.no_precautions", why=describe(error)))

    def _log(self, facts: StepFacts) -> None:
        """Of every step. Snapshots and early warnings may fail: then the watch goes on without."""
        self.history.append(facts)
        if facts.step < FIRST_STEPS:
            self._note_devices()
        precautions, folder = self.precautions, self.folder
        if precautions is not None:
            try:
                alarms = precautions.step_done(facts, self.watcher)
                if alarms:
                    for alarm in alarms:
                        self._warn_early(alarm)
                    precautions.lower_after(alarms, self.watcher)
            except Exception as error:
                let_through(error)
                self.precautions = None
                self.watcher.lockstep.wishes = None
                warn(say("watch.no_precautions", why=describe(error)))
        if folder is not None and not self._log_broken:
            try:
                folder.append_step(self.rank, facts)
            except OSError as error:
                self._not_written(error)

    def _folder_text(self) -> str:
        return str(self.folder.path) if self.folder is not None else "-"

    # Incidents

    def _report(self, trouble: Trouble) -> str | None:
        if trouble.scaler_search and self.watcher.lockstep.groups:
            return self._report_together(trouble)
        return self._deal_with(trouble)

    def _report_together(self, trouble: Trouble) -> str | None:
        """A GradScaler has left the step out on all ranks: they tell each other whose gradients are bad
        without its scale, too."""
        located = locate(trouble, self.watcher.calls)
        seen = self.watcher.lockstep.agreed(None if located is None else "gradients")
        if seen is None:
            return None
        trouble.seen_in = seen
        return self._deal_with(trouble, located)

    def _deal_with(self, trouble: Trouble, located: Located | None = None) -> str | None:
        can_skip, damaged = trouble.can_be_skipped, trouble.damaged
        if trouble.seen_in == "rank":
            return self._follow_the_other_rank(trouble)
        together = trouble.parts and bool(self.watcher.lockstep.groups)
        decided = self._decide_together(trouble, can_skip) if together else None
        if len(self.incidents) >= MOST_LOCATED and not trouble.scaler_search:
            decided = decided or self._decide_alone(trouble, can_skip, damaged)
            if decided != "raise":  # the one that stops the program is located, whatever its number
                return decided
        located = located or locate(trouble, self.watcher.calls)
        if located is None:
            return None
        damaged = damaged or (trouble.damage is None and located.phase == "weights")
        decided = decided or self._decide_alone(trouble, can_skip, damaged)
        if decided == "raise" and (self.skipped or self.rolled_back):
            counts = {"skipped": self.skipped, "rolled_back": self.rolled_back}
            located.notes.append(say("watch.policy_ended", **counts))
        if decided in ("skip", "observe") and damaged and self.policy.holds_back:
            located.notes.append(say("watch.skipping_helps_nothing"))
        located.notes += micro_batches.said_of(trouble, decided, self.watcher)
        incident = self._incident(located, action_of(decided), trouble.seen_in)
        self._note_devices()
        incident, path = self._settle(incident, trouble, located)
        if decided == "raise":
            self.stopped_by_incident = True
            raise NonFiniteError(sentence_of(incident, path), incident)
        return decided

    def _decide_alone(self, trouble: Trouble, can_skip: bool, damaged: bool) -> str:
        if trouble.seen_in == "checkpoint":
            return self._decide_on_checkpoint()
        decided = self._decide(trouble.step, can_skip, damaged)
        micro_batches.keep(trouble, decided, self.watcher)
        return decided

    def _decide(self, step: int, can_skip: bool, damaged: bool = False) -> str:
        """`damaged` counts only where no other rank has to decide the same."""
        can_roll_back = self.precautions is not None and self.precautions.ready
        damaged = damaged and not self.watcher.lockstep.groups
        return self.decisions.decide(step, can_skip, can_roll_back, damaged)

    def _bad_checkpoint(self, bad: list[BadTensor]) -> None:
        """The gate has found a state that is not finite. The first one is looked into; not what is saved once
        the program was stopped, nor what may just not have begun."""
        named = [(b.numbers.name or "", b.tensor) for b in bad if not b.may_be_a_start]
        if named and self._checkpoints_to_look_at and not self.stopped_by_incident:
            before, self._checkpoints_to_look_at = len(self.incidents), self._checkpoints_to_look_at - 1
            self.watcher.checkpoint_is_bad(named)
            self._checkpoints_to_look_at *= len(self.incidents) == before

    def _decide_on_checkpoint(self) -> str:
        """To skip a step or go back helps nothing here: that is done at the next step, if it is bad too. Of
        several ranks none stops alone."""
        alone = not torch.distributed.is_available() or not torch.distributed.is_initialized()
        return "raise" if alone and self.policy.in_the_watchers_words == "raise" else "observe"

    def _go_back(self, good_until: int | None) -> None:
        """To the last good state; if there is none after all, the program stops here."""
        try:
            if self.precautions is not None:
                self.precautions.roll_back(self.watcher, good_until)
        except NanwatchError as error:
            self.stopped_by_incident = True
            raise NonFiniteError(say("watch.not_rolled_back", why=error), self._was_raised()) from None

    def _was_raised(self) -> Incident | None:
        """The last incident, on record as one that stopped the program."""
        if not self.incidents:
            return None
        incident = self.incidents[-1] = replace(self.incidents[-1], action=action_of("raise"))
        self._write_incident(lambda folder: folder.rewrite_incident(folder.incidents()[-1], incident))
        return incident

    def _warn_early(self, alarm: Alarm) -> None:
        self.warnings.append(alarm)
        if self.rank == 0:
            warn(alarm.sentence())
        folder = self.folder
        if folder is not None and not self._log_broken:
            self._write(lambda: folder.append_warning(self.rank, alarm))

    def _decide_together(self, trouble: Trouble, can_skip: bool) -> str:
        """Where ranks train together: before anything that takes time or could fail here, since they wait."""
        decided = self._decide(trouble.step, can_skip)
        if decided == "skip":
            micro_batches.keep_together(trouble, self.watcher)
        return decided

    def _follow_the_other_rank(self, trouble: Trouble) -> str:
        """Another rank's step is bad and it reports it; this one only does the same."""
        sentence = say("watch.other_rank", step=trouble.step, path=self._folder_text())
        can_skip = not self.watcher.lockstep.only_state
        decided = (
            self._decide_together(trouble, can_skip)
            if trouble.parts
            else self._decide(trouble.step, can_skip)
        )
        if decided == "raise":
            self.stopped_by_incident = True
            raise NonFiniteError(sentence)
        if not self._told_of_other_rank:
            self._told_of_other_rank = True
            warn(sentence)
        return decided

    def _settle(self, incident: Incident, trouble: Trouble, located: Located) -> tuple[Incident, str | None]:
        """Written before it is explained: whoever kills the program meanwhile still has the place."""
        path = self._keep(incident, located)
        if self.explain:
            calls = (trouble, located, self.watcher, self.history, self.checklist)
            incident = explained(incident, *calls)
            whole = incident
            if path is not None:
                self._write_incident(lambda folder: folder.rewrite_incident(Path(path), whole))
        self.incidents.append(incident)
        self._show(incident, path)
        return incident, path

    def _incident(self, located: Located, action: str, seen_in: str) -> Incident:
        notes = tuple(located.notes)
        made_something = located.birth.op is not None and located.out_of_range is None
        if self.folder is not None and located.call is None and made_something:
            why = say("watch.too_large")
            notes = (*notes, say("watch.tensors_not_kept", op=located.birth.op, why=why))
        return Incident(
            step=located.step,
            rank=self.rank,
            kind=located.kind,
            phase=located.phase,
            birth=located.birth,
            action=action,
            seen_in=seen_in,
            located_by=located.by,
            travel=located.travel,
            hidden=located.hidden,
            notes=notes,
            time=now(),
        )

    def _keep(self, incident: Incident, located: Located) -> str | None:
        """The incident's folder, or None when it could not be written."""
        repro, save = None, None
        if located.call is not None and located.birth.op is not None:
            function, args, kwargs = located.call
            names = [a.name for a in function._schema.arguments]
            spec, tensors = encode_call(args, kwargs, lambda v: isinstance(v, torch.Tensor), names)
            repro = repro_source(located.birth.op, spec, incident)

            def save(path: Path) -> None:
                from safetensors.torch import save_file

                with checkpoint_gate.unchecked():  # the operands of a bad op are bad
                    save_file(tensors, str(path))

        return self._write_incident(lambda folder: folder.write_incident(incident, save, repro))

    def _write_incident(self, work: Callable[[RunFolder], Path]) -> str | None:
        if self.folder is None:
            return None
        try:
            return str(work(self.folder))
        except Exception as error:
            let_through(error)
            why = reason(error) if isinstance(error, OSError) else describe(error)
            warn(say("watch.incident_not_written", path=self._folder_text(), why=why))
            return None

    def _show(self, incident: Incident, path: str | None) -> None:
        terminal.write(terminal.render(incident, path), sys.stderr)
        if self.checklist:
            terminal.write(terminal.report(incident), sys.stderr)

    def post_mortem(self, error: BaseException) -> bool:
        """The program died of `error`: if non-finite values or a bad index were behind it, report them."""
        try:
            with unhurried():
                return self._post_mortem(error)
        except Exception as own:
            self.watcher.shield.give_up(own)
            return False

    def _post_mortem(self, error: BaseException) -> bool:
        if self.watcher.shield.broken or self.incidents:
            return False
        if self._died_of_its_models_answer():
            return True
        found = behind(error, self.watcher)
        if found is None:
            return False
        trouble, located = found
        self.watcher.outputs.forget()
        self._settle(self._incident(located, "raised", "exception"), trouble, located)
        return True

    def _died_of_its_models_answer(self) -> bool:
        """What a model returned was bad and left to the program, which died before it had dealt with it."""
        with contextlib.suppress(NonFiniteError):
            self.watcher.shield.run(self.watcher.outputs.judge_trial)
        return bool(self.incidents)


OPTIONS: dict[str, Callable[[str, str, Any], object]] = {
    "audit_seconds": arguments.number,
    "audit_share": arguments.share,
    "snapshot_every": functools.partial(arguments.whole_number, least=1),
    **dict.fromkeys(("explain", "checklist", "early_warning", "gate", "patient"), arguments.yes_or_no),
}
"""Of `watch`, besides those it names -> what looks at the value."""


def _check(folder: Any, options: dict[str, Any]) -> None:
    call = "nanwatch.watch"
    arguments.folder(call, "dir", folder)
    arguments.no_others(call, options, ("policy", "mode", "dir", *OPTIONS))
    for name, value in options.items():
        OPTIONS[name](call, name, value)


def watch(
    *watched: Any, policy: str | Policy = "raise", mode: str = "auto", dir: Any = None, **options: Any
) -> Session:
    """Watch this program from here on: `nanwatch.watch(model, optimizer)`.

    The model and the optimizer may be named for the reader's sake: every module and optimizer of the process
    is followed. Anything else with a state_dict that is named goes back with them in a rollback. `policy`:
    "raise", "skip", "rollback", "survive", "observe" or "zero", or a `nanwatch.Policy`. `mode`: "host",
    "device" (fused optimizers) or "auto". Returns a session: `with nanwatch.watch(...)`, or `.close()`.
    """
    _check(dir, options)
    for thing in watched:
        if not (hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict")):
            raise NanwatchError(say("watch.not_watchable", found=type(thing).__name__))
    name = Path(sys.argv[0] or "python").name
    return Session(policy, mode, dir, name=name, command=tuple(sys.argv), kept=watched, **options)
