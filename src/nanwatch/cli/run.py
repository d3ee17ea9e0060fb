"""`nanwatch run SCRIPT [args…]`: the script as Python would run it, watched.

nanwatch run train.py --lr 1e-3
nanwatch run --dir runs/today --policy skip train.py
nanwatch run -m package.train
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from nanwatch import arguments
from nanwatch.cli.program import Program, find_module, find_script
from nanwatch.errors import EXIT_NON_FINITE, NanwatchError, NonFiniteError
from nanwatch.messages import say

if TYPE_CHECKING:
    from nanwatch.adapters.plain import Session

HELP = """usage: nanwatch run [options] SCRIPT [args…]
       nanwatch run [options] -m MODULE [args…]

Options come before SCRIPT; what follows it belongs to the script.
  --dir DIR         the run folder (default: nanwatch-runs/<time>-<script>)
  --policy POLICY   raise: stop at the first bad step, exit code 3 (default)
                    skip: leave a bad step out, as if its batch had never come, and go on
                    rollback: go back to the last good state and go on
                    survive: skip, then roll back with half the rate, then stop
                    observe: only report
                    zero: replace by 0 what is not finite; for debugging only
  --skip-in-a-row N, --skip-per-thousand N, --rollbacks N, --rate-factor F
                    the numbers of the policy, instead of its own
  --snapshot-every N  steps between two good states that a policy may go back to (default 100)
  --mode MODE       host: one scalar read per step; device: no read, for fused optimizers;
                    auto: device where it can be (default)
  --audit-seconds S trace every op until tracing has cost S seconds (default 5)
  --audit-share F   afterwards trace a step now and then, within this share of the time (default 0.01)
  --patient         a program that only infers may deal with what its models return itself: clean it,
                    leave padding unread; it is judged when a model is called again
  --checklist       after a bad step, also print a report: checklist, debugging steps, all causes
  --no-explain      only say where it was born; do not look for the cause
  --no-early-warning  say nothing before a bad step
  --no-gate         let checkpoints with non-finite values be written under their own name
  --help            this text

Exits with the script's own code, 3 if a non-finite value stopped it, 2 if it could not be run."""


@dataclass
class Options:
    dir: str | None = None
    policy: str = "raise"
    mode: str = "auto"
    audit_seconds: float | None = None
    audit_share: float | None = None
    patient: bool = False
    checklist: bool = False
    explain: bool = True
    early_warning: bool = True
    gate: bool = True
    snapshot_every: int | None = None
    limits: dict[str, float] = field(default_factory=dict)
    """Numbers of the policy."""
    module: str | None = None
    rest: list[str] = field(default_factory=list)


EXAMPLES = {
    "--dir": "--dir runs/today",
    "--policy": "--policy skip",
    "--skip-in-a-row": "--skip-in-a-row 3",
    "--skip-per-thousand": "--skip-per-thousand 10",
    "--rollbacks": "--rollbacks 2",
    "--rate-factor": "--rate-factor 0.5",
    "--snapshot-every": "--snapshot-every 100",
    "--mode": "--mode host",
    "--audit-seconds": "--audit-seconds 5",
    "--audit-share": "--audit-share 0.01",
    "-m": "-m package.train",
}


FLAGS = {
    "--patient": ("patient", True),
    "--checklist": ("checklist", True),
    "--no-explain": ("explain", False),
    "--no-early-warning": ("early_warning", False),
    "--no-gate": ("gate", False),
}
LIMITS = ("--skip-in-a-row", "--skip-per-thousand", "--rollbacks", "--rate-factor")


NUMBERS: dict[str, Callable[[str, str, Any], float]] = {
    "--skip-in-a-row": partial(arguments.whole_number, least=0),
    "--skip-per-thousand": partial(arguments.whole_number, least=0),
    "--rollbacks": partial(arguments.whole_number, least=0),
    "--rate-factor": partial(arguments.positive_number, most=1.0),
    "--snapshot-every": partial(arguments.whole_number, least=1),
    "--audit-seconds": arguments.number,
    "--audit-share": arguments.share,
}
"""Each with what looks at its value."""


def main(given: list[str]) -> int:
    options = parse(given)
    if options is None:
        print(HELP)
        return 0
    try:
        program = find(options)
    except NanwatchError:
        raise
    except Exception as error:  # a package on the way to the module failed
        from nanwatch.cli.own_frames import show_traceback

        show_traceback(error)
        return 1
    return run_watched(program, options)


def find(options: Options) -> Program:
    if options.module is None:
        return find_script(options.rest)
    return find_module(options.module, options.rest)


def parse(given: list[str]) -> Options | None:
    """None when help is asked for."""
    options = Options()
    rest = list(given)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        option, equals, value = rest.pop(0).partition("=")
        if option == "--":
            break
        if option in ("-h", "--help"):
            return None
        if option in FLAGS:
            if equals:
                raise NanwatchError(say("cli.option_takes_no_value", option=option, value=value))
            setattr(options, *FLAGS[option])
            continue
        if option not in EXAMPLES:
            raise NanwatchError(say("cli.unknown_option", option=option))
        if not equals:
            if not rest:
                raise NanwatchError(say("cli.option_needs_value", option=option, example=EXAMPLES[option]))
            value = rest.pop(0)
        if option == "--dir" and not value:
            raise NanwatchError(say("cli.option_needs_value", option=option, example=EXAMPLES[option]))
        _set(options, option, value)
        if option == "-m":
            break
    options.rest = rest
    return options


def _set(options: Options, option: str, value: str) -> None:
    from nanwatch.act.policy import policy_of

    if option == "--policy":
        policy_of(value)
        options.policy = value
    elif option in NUMBERS:
        number = NUMBERS[option]("nanwatch run", option, _number(value))
        name = option.removeprefix("--").replace("-", "_")
        if option in LIMITS:
            options.limits[name] = number
        else:
            setattr(options, name, number)
    elif option == "--mode":
        if value not in ("auto", "host", "device"):
            raise NanwatchError(say("watch.unknown_mode", mode=value, choices="auto, host, device"))
        options.mode = value
    elif option == "-m":
        options.module = value
    else:
        options.dir = value


def _number(value: str) -> Any:
    """What is no number stays as it is, to be refused."""
    try:
        number = float(value)
    except ValueError:
        return value
    return int(number) if number.is_integer() else number


def run_watched(program: Program, options: Options) -> int:
    from nanwatch.act.policy import policy_of
    from nanwatch.adapters.plain import Session
    from nanwatch.watching.stack import treat_as_user_code

    program.prepare()
    treat_as_user_code(program.folder)
    given: dict[str, Any] = {
        name: value
        for name in ("audit_seconds", "audit_share", "snapshot_every")
        if (value := getattr(options, name)) is not None
    }
    session = Session(
        policy_of(options.policy, **options.limits) if options.limits else options.policy,
        options.mode,
        options.dir,
        program.name,
        ("nanwatch", "run", *program.command),
        explain=options.explain,
        checklist=options.checklist,
        early_warning=options.early_warning,
        gate=options.gate,
        patient=options.patient,
        **given,
    )
    code, error = _run(program, session)
    try:
        session.close()
    except NonFiniteError as found:  # the last step's verdict came late
        if error is None:
            return _stopped(found, session)
        code = EXIT_NON_FINITE
    if isinstance(error, KeyboardInterrupt):
        _end_by(error)
    return EXIT_NON_FINITE if error is None and session.stopped_by_incident else code


def _run(program: Program, session: Session) -> tuple[int, BaseException | None]:
    """The exit code, and the exception that ended the program, already shown."""
    from nanwatch.cli.own_frames import show_traceback

    try:
        program.run()
        return 0, None
    except NonFiniteError as error:
        return _stopped(error, session), error
    except SystemExit as error:
        code = _exit_code(error)  # "loss is nan, stopping": an exit in the hands of a bad value
        return EXIT_NON_FINITE if code != 0 and session.post_mortem(error) else code, error
    except KeyboardInterrupt as error:
        return 130, error
    except BaseException as error:
        stopped = isinstance(error, Exception) and (session.post_mortem(error) or _came_of_incident(error))
        show_traceback(error)
        return EXIT_NON_FINITE if stopped else 1, error


def _stopped(error: NonFiniteError, session: Session) -> int:
    if not session.incidents:
        print(error, file=sys.stderr)
    return EXIT_NON_FINITE


def _came_of_incident(error: BaseException | None) -> bool:
    """Whether the program turned nanwatch's stop into an error of its own."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, NonFiniteError):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _exit_code(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code
    print(error.code, file=sys.stderr)
    return 1


def _end_by(interrupt: KeyboardInterrupt) -> None:
    """End as Python ends on Ctrl-C: traceback, atexit, output written, then a death by SIGINT that the shell
    sees. Python does all that by itself for a KeyboardInterrupt that nobody catches."""
    from nanwatch.cli.own_frames import hide_own_frames

    shown = sys.excepthook

    def without_own_frames(kind: type[BaseException], error: BaseException, traceback: object) -> None:
        hide_own_frames(error)
        shown(kind, error, error.__traceback__)

    sys.excepthook = without_own_frames
    raise interrupt
