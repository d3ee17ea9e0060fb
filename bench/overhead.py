"""What watching costs: each way of it, side by side in one run, as a ratio to the unwatched step.

    python -m bench.overhead                 CPU models, and GPU models where there is one
    python -m bench.overhead --rounds 400 --json overhead.json
    python -m bench.overhead --only nanwatch
    python -m bench.overhead --all-host      a GPU model whose batch is so small that it waits for its host
    python -m bench.overhead --give-back     memory comes and goes as malloc has it where nobody asks

A model is trained on and on, and what watches it is taken off and put on again every few steps, so that both
meet the machine in the same moods. The ratio is that of all watched steps to all unwatched ones, with its
standard error; the middle one is that of the round which half of the others are above: where it is far from
the first, a few rounds have met a disturbed machine. The first steps after each change are not timed:
watching costs more in them. nanwatch is measured as it is between two of its audits, and when its early
warnings have learned from the first steps of a run: sentinel, recorder and run folder. The audit's share of
the time (1%) comes on top. The process keeps the memory that it lets go, unless told otherwise: which steps
have to fetch pages from the system again is chance, and where pages are dear it decides more than anything
that is measured here. How many a step fetches is shown. A GPU is timed by its own clock; how far its host was
ahead of it tells which of the two a step waited for. Its memory is what tensors take at the peak, as a ratio
too. Ctrl-C ends a model's turn, and shows what was measured so far.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import math
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.models import ROUNDS, Task, all_host_task, cpu_tasks, gpu_tasks

SNAPSHOT_EVERY = 240
"""Watched steps, of which about a hundred are timed."""
LEARNED = 67
"""Steps in which early warnings learn; so many that a snapshot falls on a timed one."""


class Way:
    """A way of watching that is put on and taken off between steps."""

    warm_up = 1
    """Steps that are not timed when it is put on for the first time."""
    is_cheap = False
    """It costs a few per cent, which are seen in many steps only, of which the first do not count."""

    def __init__(self, watch: Callable[[nn.Module], contextlib.AbstractContextManager[Any]]) -> None:
        self._watch = watch

    def put_on(self, model: nn.Module) -> None:
        self._worn = self._watch(model)
        self._worn.__enter__()

    def settled(self) -> None:
        """The steps from now on are timed."""

    def is_busy(self) -> bool:
        """Whether it does something beside the program, which belongs to the steps that are timed."""
        return False

    def take_off(self) -> None:
        self._worn.__exit__(None, None, None)

    def end(self) -> None:
        """It will not be put on again."""


class Nanwatch(Way):
    """One session, with its taps off for a while."""

    warm_up = LEARNED
    is_cheap = True

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._session: Any = None
        self._changed = 0.0
        """When it was put on or taken off."""

    def put_on(self, model: nn.Module) -> None:
        if self._session is not None:
            self._session.watcher.start()
            self._session.watcher.fingerprints.was_off(time.perf_counter() - self._changed)
            self._let_disk_rest()
            self._changed = time.perf_counter()
            return
        import nanwatch

        self._folder = tempfile.TemporaryDirectory()
        self._session = nanwatch.watch(dir=self._folder.name, **self._options)
        watcher = self._session.watcher
        watcher.live._first_seconds = watcher.live._share = 0.0  # one audit, in the first step
        watcher.fingerprints._first_seconds = 0.0

    def settled(self) -> None:
        self._let_disk_rest()

    def is_busy(self) -> bool:
        kept = self._session.precautions.last_good
        return kept is not None and kept._working is not None and kept._working.is_alive()

    def take_off(self) -> None:
        watcher = self._session.watcher
        watcher.shield.run(watcher.updates.late.act_on_those_that_came, True)
        watcher.recorder.finished.clear()  # what they hold is no part of unwatched steps
        watcher.close()
        self._changed = time.perf_counter()

    def end(self) -> None:
        self._session.close()
        self._folder.cleanup()

    def _let_disk_rest(self) -> None:
        """What is done within a share of the time is done within a share of that in which it is watched. The
        disk is written to beside steps that are timed, as snapshots are taken in them: within a share of
        those."""
        kept = self._session.precautions.last_good
        if kept is not None:
            kept._kept._rest_until += time.perf_counter() - self._changed


class VerdictByHand(Way):
    """What anybody can write with torch's own functions to keep bad gradients out of a fused optimizer and
    not wait for the GPU. Nothing is recorded, nobody learns of it: what nanwatch costs more is the price of
    knowing where a value was born."""

    is_cheap = True

    def __init__(self) -> None:
        super().__init__(lambda model: verdict_by_hand())


UNWATCHED = Way(lambda model: contextlib.nullcontext())
FUSED = {"cpu": None, "cuda": True}
"""Of the optimizer: as torch has it where nobody asks, and what device mode needs."""
PEERS_EVERY = 10
"""Rounds; their costs are multiples, and seen from a few."""
FEWEST_ROUNDS = 4
"""For a standard error."""
SETTLING, FEW = 2, 12
"""Steps of theirs until they take what they take from then on, and how many are timed then, at most."""


NEVER_TRIM, MOST_MAPPED = -1, -4
"""What glibc's `mallopt` is told: from which size on free memory goes back to the system, and how many blocks
may have pages of their own."""


@contextlib.contextmanager
def verdict_by_hand() -> Iterator[None]:
    latched: torch.Tensor | None = None

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        nonlocal latched
        gradients = [
            p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None
        ]
        norm = torch.nn.utils.get_total_norm(gradients)
        bad = torch.isfinite(norm).logical_not().float()
        latched = bad if latched is None else torch.maximum(latched, bad)
        optimizer.found_inf = latched

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        del optimizer.found_inf

    handles = [register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)]
    yield
    for handle in handles:
        handle.remove()


@contextlib.contextmanager
def anomaly(model: nn.Module) -> Iterator[None]:
    with torch.autograd.detect_anomaly():
        yield


@contextlib.contextmanager
def underflow_overflow(model: nn.Module) -> Iterator[None]:
    from transformers.debug_utils import DebugUnderflowOverflow

    before = {m: dict(m._forward_hooks) for m in model.modules()}
    with contextlib.redirect_stdout(None):
        DebugUnderflowOverflow(model)
        yield
    for module, hooks in before.items():
        module._forward_hooks.clear()
        module._forward_hooks.update(hooks)


@contextlib.contextmanager
def isfinite_hooks(model: nn.Module) -> Iterator[None]:
    def check(module: nn.Module, args: Any, output: Any) -> None:
        if isinstance(output, torch.Tensor) and not torch.isfinite(output).all():
            raise FloatingPointError(type(module).__name__)

    handles = [m.register_forward_hook(check) for m in model.modules()]
    yield
    for handle in handles:
        handle.remove()


def ways(task: Task, device: torch.device, compiled: bool) -> dict[str, Way]:
    found: dict[str, Way] = {"nanwatch, host mode": Nanwatch(mode="host")}
    if device.type == "cpu":
        if task.is_quick:
            survive = Nanwatch(policy="survive", snapshot_every=SNAPSHOT_EVERY)
            found["nanwatch, survive, snapshots"] = survive
    else:
        found["nanwatch, device mode"] = Nanwatch(mode="device")
        found["found_inf by hand, device mode"] = VerdictByHand()
    if not compiled and task.is_quick:
        found["torch detect_anomaly"] = Way(anomaly)
        found["isfinite hook on each module"] = Way(isfinite_hooks)
        with contextlib.suppress(ImportError):
            import transformers.debug_utils  # noqa: F401

            found["transformers DebugUnderflowOverflow"] = Way(underflow_overflow)
    return found


class Steps(NamedTuple):
    """Some that were made one after the other."""

    seconds: float
    """Of each."""
    count: int
    ahead: float
    """By how many seconds the host was ahead of its GPU in the end. Next to nothing: it is the host that
    says how long a step takes, and all that is done there is seen."""
    peak: int
    """Bytes of a GPU that tensors had at most; 0 on a CPU."""
    pages: float
    """That each fetched from the system."""


class Timed(NamedTuple):
    """Some watched steps, and unwatched ones before and after them."""

    before: Steps
    watched: Steps
    after: Steps

    @property
    def unwatched(self) -> float:
        return (self.before.seconds + self.after.seconds) / 2


class Trainer:
    """A model with its optimizer, trained a few steps at a time, watched or not."""

    def __init__(
        self, task: Task, device: torch.device, compiled: bool, clips: bool, fused: bool | None = None
    ) -> None:
        torch.manual_seed(0)
        self._task, self._device, self._clips = task, device, clips
        self.model = task.build().to(device)
        self._optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=1e-4, fused=fused or FUSED[device.type]
        )
        self._called = torch.compile(self.model) if compiled else self.model
        self._batches = [task.batch(device) for _ in range(4)]

    def train(self, steps: int) -> None:
        for index in range(steps):
            x, y = self._batches[index % len(self._batches)]
            loss = self._task.loss(self._called, x, y)
            self._optimizer.zero_grad()
            loss.backward()
            if self._clips:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self._optimizer.step()

    def timed(self, settling: int, steps: int, way: Way = UNWATCHED) -> Steps:
        """So many steps, or as many more as what is done beside them takes, after some that are not timed."""
        self.train(settling)
        way.settled()
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        pages, began, more = pages_fetched(), self.moment(), settling + steps
        self.train(steps)
        while way.is_busy():
            self.train(more)
            steps += more
        ended, sent = self.moment(), time.perf_counter()
        pages = pages_fetched() - pages
        seconds = seconds_between(began, ended)
        ahead = time.perf_counter() - sent
        peak = torch.cuda.max_memory_allocated() if self._device.type == "cuda" else 0
        return Steps(seconds / steps, steps, ahead, peak, pages / steps)

    def moment(self) -> float | torch.cuda.Event:
        """Of a GPU when it comes to this point: its host may be ahead, as it is in a training."""
        if self._device.type != "cuda":
            return time.perf_counter()
        moment = torch.cuda.Event(enable_timing=True)
        moment.record()
        return moment


def keep_memory() -> None:
    """What is let go stays with the process, where its libc can be told so."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        malloc = ctypes.CDLL(None).mallopt
        malloc(NEVER_TRIM, -1)
        malloc(MOST_MAPPED, 0)


def pages_fetched() -> int:
    """By this process, from the system, so far."""
    try:
        import resource
    except ImportError:  # not on this system
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def seconds_between(began: Any, ended: Any) -> float:
    if isinstance(began, float):
        return float(ended - began)
    ended.synchronize()
    return float(began.elapsed_time(ended) / 1000)


def measure(
    task: Task, device: torch.device, rounds: int, only: str, compiled: bool = False, clips: bool = False
) -> list[dict[str, Any]]:
    chosen = {name: way for name, way in ways(task, device, compiled).items() if only in name}
    trainer = Trainer(task, device, compiled, clips)
    trainer.train(3)
    for way in chosen.values():
        way.put_on(trainer.model)
        trainer.train(way.warm_up)
        way.take_off()
    timed: dict[str, list[Timed]] = {name: [] for name in chosen}
    with contextlib.suppress(KeyboardInterrupt):
        for number in range(rounds):
            peers_too = number % PEERS_EVERY == 0 or number == rounds - 1
            before = trainer.timed(task.settling, task.steps)
            for name, way in chosen.items():
                if not (way.is_cheap or peers_too):
                    continue
                steps = (task.settling, task.steps) if way.is_cheap else (SETTLING, min(task.steps, FEW))
                watched = watched_steps(trainer, way, *steps)
                after = trainer.timed(*steps)
                timed[name].append(Timed(before, watched, after))
                before = after
            print(f"\r{task.name}: round {number + 1} of {rounds}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    for way in chosen.values():
        way.end()
    what = {
        "task": task.name + (", compiled" if compiled else "") + (", clipped" if clips else ""),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
    }
    return [{**what, "way": name, **ratio_of(found)} for name, found in timed.items() if len(found) > 1]


def watched_steps(trainer: Trainer, way: Way, settling: int, steps: int) -> Steps:
    way.put_on(trainer.model)
    try:
        return trainer.timed(settling, steps, way)
    finally:  # after Ctrl-C too: it would watch the next model's unwatched steps
        way.take_off()


def ratio_of(timed: list[Timed]) -> dict[str, Any]:
    """Of all watched steps to as many unwatched ones beside them."""
    unwatched = statistics.fmean(each.unwatched for each in timed)
    steps = statistics.fmean(each.watched.count for each in timed)
    ratio = sum(each.watched.seconds * each.watched.count for each in timed) / sum(
        each.unwatched * each.watched.count for each in timed
    )
    apart = [(each.watched.seconds - ratio * each.unwatched) * each.watched.count for each in timed]
    return {
        "ratio": round(ratio, 4),
        "standard_error": round(statistics.stdev(apart) / (steps * unwatched) / math.sqrt(len(timed)), 4),
        "unwatched_ms": round(1000 * unwatched, 3),
        "middle": round(statistics.median(each.watched.seconds / each.unwatched for each in timed), 4),
        "times": len(timed),
        "unwatched_ahead_ms": round(1000 * statistics.fmean(each.before.ahead for each in timed), 1),
        "ahead_ms": round(1000 * statistics.fmean(each.watched.ahead for each in timed), 1),
        "unwatched_peak": max(max(each.before.peak, each.after.peak) for each in timed),
        "peak": max(each.watched.peak for each in timed),
        "unwatched_pages": round(statistics.fmean((e.before.pages + e.after.pages) / 2 for e in timed), 1),
        "pages": round(statistics.fmean(each.watched.pages for each in timed), 1),
    }


def show(rows: list[dict[str, Any]]) -> None:
    first = rows[0]
    on_gpu = first["device"] != "cpu"
    beside = f", host {first['unwatched_ahead_ms']} ms ahead, {first['unwatched_peak'] / 2**30:.2f} GiB"
    print(f"\n{first['task']} on {first['device']}")
    print(f"  {'unwatched':38} {first['unwatched_ms']} ms{beside if on_gpu else ''}")
    for row in rows:
        error = f"\u00b1 {row['standard_error']:.3f}"
        times = f"middle x{row['middle']:.3f} of {row['times']}"
        if on_gpu:
            memory = row["peak"] / row["unwatched_peak"]
            times += f", host {row['ahead_ms']} ms ahead, memory x{memory:.3f}"
        else:
            times += f", pages {row['pages']:.0f} a step, unwatched {row['unwatched_pages']:.0f}"
        print(f"  {row['way']:38} x{row['ratio']:.3f} {error}  ({times})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help="with a quick model on the CPU; others take fewer"
    )
    parser.add_argument("--only", default="", help="only the ways whose name contains this")
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--skip-cpu", action="store_true")
    parser.add_argument(
        "--all-host",
        action="store_true",
        help="a GPU that waits for its host: what is done there is all seen",
    )
    parser.add_argument(
        "--give-back",
        action="store_true",
        help="memory goes back to the system as malloc has it, and its pages are fetched again",
    )
    parser.add_argument("--clip", action="store_true", help="gradients are clipped, as in most trainings")
    parser.add_argument("--task", default="", help="only the models whose name contains this")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: at least 1")
    if not options.give_back:
        keep_memory()
    wanted = [] if options.skip_cpu or options.all_host else [(task, "cpu", False) for task in cpu_tasks()]
    if torch.cuda.is_available():
        on_gpu = [all_host_task()] if options.all_host else gpu_tasks()
        wanted += [(task, "cuda", compiled) for task in on_gpu for compiled in (False, True)]
    elif options.all_host:
        parser.error("--all-host: there is no GPU here")
    print(
        f"torch {torch.__version__}; ratio of watched to unwatched steps, with its standard error", flush=True
    )
    rows: list[dict[str, Any]] = []
    for task, device, compiled in wanted:
        if options.task not in task.name:
            continue
        rounds = max(FEWEST_ROUNDS, task.rounds * options.rounds // ROUNDS)
        found = measure(task, torch.device(device), rounds, options.only, compiled, options.clip)
        if not found:
            continue
        rows += found
        show(found)
        if options.json is not None:
            options.json.write_text(json.dumps(rows, indent=1))
    if not rows:
        parser.error(f"--only {options.only!r} --task {options.task!r}: no model here has such a way")


if __name__ == "__main__":
    main()
