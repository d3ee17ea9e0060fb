"""An independent, naive check of the truths in `programs/`. Uses nothing of nanwatch.

    python tests/cases/verify_truth.py [-v] [NAME...]

It is the check of the public cases, bench/check_truth.py, for programs that carry their truth with them and
have no fix to try: a bad one must really go bad in the stated step, and the stated op on the stated line be
among those that made something non-finite; a healthy one must stay finite. `-v` prints all such ops, to
reason about by hand which is the first harmful one. Programs that need a GPU are left out where there is
none; what is on it is not looked at, since looking would make the program wait.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).resolve().parents[2])]
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # to ask for a GPU without touching it: we fork
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402
import truth as truths  # noqa: E402

from bench.case import Case  # noqa: E402
from bench.check_truth import ChildDied, check, show  # noqa: E402
from bench.witness import NOT_LOOKED_AT  # noqa: E402


def as_case(truth: truths.Truth) -> Case:
    return Case(
        truth.path.parent,
        title=truth.name,
        source=None,
        group="forward",
        healthy=truth.healthy,
        why="",
        phase=truth.phase,
        op=(None,) if truth.needs or None in truth.op else truth.op,
        line=() if truth.needs or None in truth.op else (truth.line, truth.other_line),
        module=truth.module,
        cause=truth.cause,
        also=truth.also,
        samples=truth.samples,
        step=truth.step,
        kind=truth.kind,
        file=truth.path.name,
    )


def problems_of(path: Path, verbose: bool) -> tuple[list[str], list[str]]:
    try:
        case = as_case(truths.read(path))
        if verbose:
            show(case)
        return check(case)
    except (ValueError, ChildDied) as error:
        return [str(error)], []


def main() -> int:
    names = [a for a in sys.argv[1:] if not a.startswith("-")]
    verbose = "-v" in sys.argv
    failed = 0
    NOT_LOOKED_AT.add("cuda")
    for path in truths.all_programs():
        if names and path.stem not in names:
            continue
        if '"needs": "cuda"' in path.read_text() and not torch.cuda.is_available():
            print(f"--   {path.stem}: needs a GPU")
            continue
        wrong, notes = problems_of(path, verbose)
        failed += bool(wrong)
        if verbose or wrong or notes:
            said = "; ".join([*wrong, *(f"note: {note}" for note in notes)]) or "ok"
            print(f"{'BAD ' if wrong else 'ok  '} {path.stem}: {said}", flush=True)
    print(f"{failed} problems")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
