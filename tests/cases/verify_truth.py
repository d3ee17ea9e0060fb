"""An independent, naive check of the truths in `programs/`. Uses nothing of nanwatch.

    python tests/cases/verify_truth.py [-v] [NAME...]

Runs each program twice in a forked child. Once plainly: a bad program must really show a
non-finite loss, weight, gradient or output (or raise), a healthy one must end with finite losses
and weights. Once under a TorchDispatchMode that looks at the inputs and outputs of every op and
writes down each op that makes something non-finite out of finite inputs, or NaN out of infinities.
The truth must be among these events; `-v` prints them all, to reason about by hand which is the
first harmful one. An op that only hands on an infinity that was there before (a label that picks a
masked logit) is no event, but a truth may name it: then that is noted. Truths without an op
(`op: null`) are only checked plainly. Programs that need a GPU are left out where there is none; what
is on it is not looked at, since looking would make the program wait: they must print what is bad.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import re
import runpy
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # to ask for a GPU without touching it: we fork

import torch
import torch._dynamo  # the first optimizer would import it: a second that is not the program's
import truth as truths
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

SLOW = {"spawn": 6.0, "transformers": 8.0}  # seconds; others may take 1.5
UNWRITTEN = ("aten.empty", "aten.new_empty", "aten.resize_", "aten.set_")


def verdict(tensor):
    """(has NaN, has Inf) of a tensor of any kind."""
    if tensor.is_sparse:
        tensor = tensor._values()
    elif tensor.layout in (torch.sparse_csr, torch.sparse_csc):
        tensor = tensor.values()
    if tensor.device.type != "cpu" or not (tensor.is_floating_point() or tensor.is_complex()):
        return False, False
    tensor = tensor.detach()
    tensor = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    tensor = tensor.double()
    return bool(tensor.isnan().any()), bool(tensor.isinf().any())


def floats(tree):
    return [t for t in tree_leaves(tree) if isinstance(t, torch.Tensor)]


def both(tree):
    found = [verdict(t) for t in floats(tree)]
    return any(n for n, _ in found), any(i for _, i in found)


def bad_rows(tensor, nan_only):
    if tensor.dim() == 0 or tensor.is_sparse:
        return None
    t = tensor.detach().resolve_conj()
    t = (torch.view_as_real(t) if t.is_complex() else t).double()
    if not t.numel():
        return None
    bad = t.isnan() if nan_only else ~t.isfinite()
    return bad.reshape(len(t), -1).any(1).nonzero().flatten().tolist()


class Follow:
    """Where the program is: module stack, optimizer steps, what was shown so far."""

    def __init__(self):
        self.stack, self.path, self.roots = [], [], 0
        self.steps, self.in_step, self.optimizers = 0, 0, []
        self.losses, self.outputs, self.final = [], [], None
        self.bad_weights_ever, self.nan_output = False, False
        torch.nn.modules.module.register_module_forward_pre_hook(self.enter)
        torch.nn.modules.module.register_module_forward_hook(self.leave, always_call=True)
        register_optimizer_step_pre_hook(self.before)
        register_optimizer_step_post_hook(self.after)
        self.backward = torch.Tensor.backward
        follow = self

        def backward(loss, *args, **kwargs):
            with quiet():
                follow.losses.append(not any(verdict(loss)))
            return follow.backward(loss, *args, **kwargs)

        torch.Tensor.backward = backward

    @torch.compiler.disable
    def enter(self, module, args):
        if not self.stack:
            self.roots += 1
            self.names = {id(m): n for n, m in module.named_modules()}
        self.stack.append(module)

    @torch.compiler.disable
    def leave(self, module, args, output):
        if module in self.stack:
            while self.stack.pop() is not module:
                pass
        if not self.stack:
            with quiet():
                self.outputs.append(not any(both(output)))
                self.nan_output |= both(output)[0]

    def module(self):
        return self.names.get(id(self.stack[-1]), "?") if self.stack else None

    def before(self, optimizer, args, kwargs):
        self.in_step += 1
        if optimizer not in self.optimizers:
            self.optimizers.append(optimizer)

    def after(self, optimizer, args, kwargs):
        self.in_step -= 1
        self.steps += 1
        with quiet():
            self.bad_weights_ever |= not self.weights_finite()

    def weights_finite(self):
        weights = [p for o in self.optimizers for g in o.param_groups for p in g["params"]]
        return not any(both(weights))


@contextlib.contextmanager
def quiet():
    with torch.utils._python_dispatch._disable_current_modes():
        yield


def script_line(frames, script):
    for frame in frames:
        if frame.f_code.co_filename == script:
            return frame.f_lineno
    return None


def live_frames():
    frame = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back


class Look(TorchDispatchMode):
    def __init__(self, follow, script):
        super().__init__()
        self.follow, self.script, self.where = follow, script, {}
        self.events, self.carried = [], []

    def line(self, node):
        """The line of the script: a live frame, or in backward that of the node's forward."""
        if node is None:
            return script_line(live_frames(), self.script)
        for frame in live_frames():
            if frame.f_code.co_filename == self.script:
                return frame.f_lineno
            if frame.f_code.co_name == "_engine_run_backward":
                break
        return self.forward_line(node)

    def forward_line(self, node):
        while node is not None:
            text = "".join(node.metadata.get("traceback_", []))
            found = re.findall(rf'File "{re.escape(self.script)}", line (\d+)', text)
            if found:
                return int(found[-1])
            node = node.metadata.get("parent_")
        return None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        with quiet():
            nan_in, inf_in = both((args, kwargs))
        out = func(*args, **kwargs)
        name = str(func)
        with quiet():  # foreach and fused ops return nothing: look at what they wrote
            nan, inf = both((out, args) if func._schema.is_mutable else out)
        node = torch._C._current_autograd_node()
        if node is None:
            line = script_line(live_frames(), self.script)
            self.where.setdefault(line, []).append(self.follow.module())
        unwritten = name.startswith(UNWRITTEN)
        born = (nan and not nan_in) or (inf and not nan_in and not inf_in)
        if not unwritten and (born or nan or inf):
            f = self.follow
            line = self.line(node)
            inside = f.module()
            modules = [inside]
            if node is not None:  # any module that the forward line ran in
                modules = self.where.get(self.forward_line(node)) or [None]
                inside = modules[-1]
            phase = "backward" if node is not None else None
            phase = phase or ("optimizer" if f.in_step else None)
            phase = phase or ("forward" if f.stack else "outside")
            rows = [bad_rows(t, nan_only=inf_in if born else nan) for t in floats(out)[:1]]
            (self.events if born else self.carried).append(
                {
                    "op": name,
                    "line": line,
                    "phase": phase,
                    "module": inside,
                    "modules": modules,
                    "kind": "nan" if nan else "inf",
                    "steps": f.steps,
                    "calls": f.roots,
                    "rows": rows[0] if rows else None,
                    "node": node and node.name(),
                    "from_inf": inf_in,
                }
            )
        return out


def run(script, mode):
    torch.manual_seed(0)
    follow = Follow()
    look = Look(follow, script)
    error, text = None, io.StringIO()
    started = time.time()
    sys.argv = [script]
    main = sys.modules["__main__"]
    try:
        with contextlib.redirect_stdout(text), contextlib.ExitStack() as stack:
            if mode:
                stack.enter_context(torch.autograd.set_detect_anomaly(True, check_nan=False))
                stack.enter_context(look)
            runpy.run_path(script, run_name="__main__")
    except SystemExit as exit:
        error = None if not exit.code else f"exit {exit.code}"
    except BaseException as problem:
        error = f"{type(problem).__name__}: {str(problem)[:90]}"
        if "-v" in sys.argv:
            traceback.print_exc()
    sys.modules["__main__"] = main
    with quiet():
        good = follow.weights_finite()
    return {
        "error": error,
        "events": look.events,
        "carried": look.carried[:2000],
        "seconds": round(time.time() - started, 2),
        "weights": good,
        "losses": follow.losses,
        "outputs": follow.outputs,
        "ever": follow.bad_weights_ever,
        "optimizers": len(follow.optimizers),
        "nan_output": follow.nan_output,
        "text": text.getvalue(),
        "steps": follow.steps,
    }


def child(script, mode, pipe):
    torch.set_num_threads(1)
    import warnings

    warnings.simplefilter("ignore")
    pipe.send(run(script, mode))


def forked(script, mode):
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=child, args=(script, mode, theirs))
    process.start()
    theirs.close()
    try:
        return ours.recv()
    except EOFError:
        return None
    finally:
        process.join()


def step_of(event, plain):
    return event["steps"] if plain["optimizers"] else event["calls"] - 1


def matches(event, truth, plain):
    phase = event["phase"]
    phases = {"outside": {"loss", "data", "weights", "forward", "backward", "optimizer"}}
    allowed = phases.get(phase, {phase})
    if phase == "forward":  # a criterion, or weights made inside a module
        allowed = {"forward", "loss", "weights"}
    if phase == "optimizer":  # a closure called by step()
        allowed = {"forward", "loss", "optimizer"}
    if truth.phase == ("data",) or truth.phase == ("weights",):
        steps_ok = True
    else:
        steps_ok = step_of(event, plain) in truth.step
    return (
        event["op"] in truth.op
        and event["line"] == truth.line
        and bool(allowed & set(truth.phase))
        and bool(set(event["modules"]) & set(truth.module))
        and event["kind"] in truth.kind
        and steps_ok
        and (truth.samples is None or list(truth.samples) == event["rows"])
    )


def check(path, verbose):
    truth = truths.read(path)
    script = str(path)
    plain = forked(script, mode=False)
    if plain is None:
        return ["the child died"]
    problems = []
    shown = not all(plain["losses"]) or not all(plain["outputs"]) or not plain["weights"]
    shown = shown or plain["ever"] or plain["error"]
    if truth.needs:
        shown = shown or re.search(r"\b(nan|inf)\b", plain["text"])
    limit = max(
        [6.0 if truth.needs else 1.5, *(seconds for word, seconds in SLOW.items() if word in path.stem)]
    )
    if plain["seconds"] > limit:
        problems.append(f"slow: {plain['seconds']} s")
    if truth.healthy:
        if plain["error"]:
            problems.append(f"raised {plain['error']}")
        good = all(plain["losses"]) and plain["weights"] and not plain["nan_output"]
        if not good or plain["ever"]:  # a model may return -inf on purpose
            problems.append(
                f"not healthy: losses {plain['losses']} outputs {plain['outputs']} weights {plain['weights']}"
            )
    elif not shown:
        problems.append("shows nothing bad when run plainly")
    if verbose:
        print(
            f"== {path.stem}: {plain['seconds']} s, {plain['steps']} steps, "
            f"{plain['optimizers']} optimizers, error {plain['error']}"
        )
        print(
            "   losses",
            "".join(".X"[not g] for g in plain["losses"]),
            "outputs",
            "".join(".X"[not g] for g in plain["outputs"]),
            "weights finite",
            plain["weights"],
        )
        print("   prints", repr(plain["text"][-150:]))
        if not truth.healthy:
            print(
                f"   truth line {truth.line} {truth.phase} {truth.op} module {truth.module} "
                f"step {truth.step} {truth.kind} samples {truth.samples}"
            )
    if truth.healthy and not verbose:
        return problems
    looked = forked(script, mode=True)
    if looked is None:
        return [*problems, "the child died under the mode"]
    hits = [e for e in looked["events"] if not truth.healthy and matches(e, truth, plain)]
    if verbose:
        for event in looked["events"][:14]:
            mark = "*" if event in hits else " "
            print(
                f"  {mark} line {event['line']} {event['phase']} {event['op']} "
                f"{event['module']!r} step {step_of(event, plain)} (calls {event['calls']}) "
                f"{event['kind']}{' from inf' if event['from_inf'] else ''} "
                f"rows {event['rows']} {event['node'] or ''}"
            )
        if looked["error"] != plain["error"]:
            print("   under the mode:", looked["error"])
    if not truth.healthy and None not in truth.op:
        if not hits and any(matches(e, truth, plain) for e in looked["carried"]):
            problems.append("note: it hands on what was not finite before")
        elif not hits:
            problems.append("the truth is not among the events")
        else:
            earlier = looked["events"][: looked["events"].index(hits[0])]
            places = {(e["line"], e["op"]) for e in earlier}
            if places:
                problems.append(f"note: earlier events {sorted(places, key=str)}")
    return problems


def main():
    names = [a for a in sys.argv[1:] if not a.startswith("-")]
    verbose = "-v" in sys.argv
    failed = 0
    for path in truths.all_programs():
        if names and path.stem not in names:
            continue
        if '"needs": "cuda"' in path.read_text() and not torch.cuda.is_available():
            print(f"--   {path.stem}: needs a GPU")
            continue
        try:
            problems = check(path, verbose)
        except ValueError as error:
            problems = [str(error)]
        hard = [p for p in problems if not p.startswith("note:")]
        failed += bool(hard)
        if verbose or problems:
            print(f"{'BAD ' if hard else 'ok  '} {path.stem}: {'; '.join(problems) or 'ok'}", flush=True)
    print(f"{failed} problems")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
