"""`nanwatch run` against plain `python`: the same program, the same stdout, the same exit code."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from workshop import Workshop, environment


@pytest.fixture
def real(tmp_path: Path) -> Workshop:
    """Without a nursery: for what depends on how Python starts or ends."""
    folder = tmp_path / "work"
    folder.mkdir()
    return Workshop(folder)


FACTS = """
    import os, sys, re
    print(__name__, __file__, sys.argv, sys.path[0], __package__, __cached__, __doc__)
    print(type(__loader__).__name__, __builtins__, sorted(globals()))
    print(re.sub("0x[0-9a-f]+", "0x", str(__spec__)))
    print(sys.modules["__main__"].__dict__ is globals(), __annotations__)
    if __name__ == "__main__":
        print("main")
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["script.py"],
        ["script.py", "a", "--dir", "x", "-m", "y", "--help", "--policy", "skip", "--", ""],
        ["./script.py"],
        ["elsewhere/../script.py"],
        ["elsewhere/link.py"],
    ],
    ids=lambda a: f"{a[0]}+{len(a) - 1}",
)
def test_what_a_script_sees_of_itself(workshop: Workshop, arguments: list[str]) -> None:
    workshop.write("elsewhere/empty.py", "")
    script = workshop.write("script.py", FACTS)
    (workshop.folder / "elsewhere" / "link.py").symlink_to(script)
    plain, _ = workshop.same(*arguments)
    assert "main\n" in plain.stdout


@pytest.mark.parametrize("module", ["package.inner.module", "package.inner"])
def test_what_a_module_sees_of_itself(real: Workshop, module: str) -> None:
    real.write("package/__init__.py", "import sys\nprint('package', sys.argv, sys.path[0])")
    real.write("package/inner/__init__.py", "")
    real.write("package/inner/sibling.py", "value = 7")
    for name in ("module", "__main__"):
        real.write(f"package/inner/{name}.py", FACTS)
        with open(real.folder / f"package/inner/{name}.py", "a") as file:
            file.write(
                "from .sibling import value\nfrom ..inner import sibling\nprint(value, sibling.value)\n"
            )
    plain, _ = real.same("-m", module, "--lr", "1e-3", "-m", "x")
    assert "7 7\n" in plain.stdout


def test_a_folder_and_an_archive_with_a_main(workshop: Workshop) -> None:
    workshop.write("app/__main__.py", FACTS)
    workshop.write("app/beside.py", "")
    with zipfile.ZipFile(workshop.folder / "app.zip", "w") as archive:
        archive.write(workshop.folder / "app" / "__main__.py", "__main__.py")
    workshop.same("app", "x")
    workshop.same("app.zip", "x")


def test_the_script_is_found_from_another_folder_and_imports_its_neighbours(workshop: Workshop) -> None:
    workshop.write("far/neighbour.py", "value = 3")
    workshop.write("far/script.py", "import neighbour, os; print(neighbour.value, os.getcwd(), __file__)")
    plain, _ = workshop.same("far/script.py")
    assert plain.stdout.startswith("3 ")


def test_classes_and_functions_of_the_script(workshop: Workshop) -> None:
    """Pickles, source, type hints and dataclasses that need `__main__` to be the script."""
    workshop.write(
        "script.py",
        """
        from __future__ import annotations
        import dataclasses, inspect, io, os, pickle, typing
        import torch

        @dataclasses.dataclass
        class Point:
            x: Later
            y: int = 2

        class Later:
            '''Defined after it is named.'''

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.ones(2))

            def forward(self, x):
                return x * self.weight

        def function():
            return 1

        if __name__ == "__main__":
            os.chdir("/")
            print(pickle.loads(pickle.dumps(Point(1))), pickle.loads(pickle.dumps(function)) is function)
            stream = io.BytesIO()
            torch.save(Model(), stream)
            stream.seek(0)
            model = torch.load(stream, weights_only=False)
            print(type(model) is Model, type(model).__module__, model(torch.ones(2)).tolist())
            stream = io.BytesIO()
            torch.save(model.state_dict(), stream)
            stream.seek(0)
            print(torch.load(stream, weights_only=True))
            print(inspect.getsource(Model), inspect.getsourcefile(Model), inspect.getmodule(Model).__name__)
            print(typing.get_type_hints(Point), dataclasses.asdict(Point(1)))
        """,
    )
    plain, _ = workshop.same("script.py")
    assert plain.returncode == 0, plain.stderr


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        ("sys.exit(7)", 7, ""),
        ("sys.exit(None)", 0, ""),
        ("sys.exit('no data')", 1, "no data\n"),
        ("raise SystemExit((1, 2))", 1, "(1, 2)\n"),
        ("os._exit(9)", 9, ""),
    ],
)
def test_exit_codes(real: Workshop, end: str, code: int, said: str) -> None:
    real.write(
        "script.py",
        f"import os, sys, atexit\natexit.register(print, 'bye')\nprint('hi', flush=True)\n{end}\n",
    )
    plain, watched = real.same("script.py")
    assert (plain.returncode, watched.returncode) == (code, code)
    assert watched.stderr == plain.stderr == said
    assert plain.stdout == ("hi\n" if "_exit" in end else "hi\nbye\n")


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("if accuracy.nanmean() < 2: sys.exit(4)", 4),  # it minds nothing of the class that no batch holds
        ("if accuracy.isnan().any(): sys.exit(4)", 3),
        ("total = loss * accuracy.mean()\n        if float(total) != float(total): sys.exit(4)", 3),
    ],
)
def test_an_exit_of_the_program_over_a_metric(workshop: Workshop, end: str, code: int) -> None:
    workshop.write(
        "script.py",
        f"""
        import sys, torch
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 3)
        optimizer = torch.optim.Adam(net.parameters())
        for step in range(3):
            label = torch.randint(0, 2, (8,))
            scores = net(torch.randn(8, 3))
            loss = torch.nn.functional.cross_entropy(scores, label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            hit = (scores.argmax(1) == label).float()
            accuracy = torch.stack([hit[label == c].mean() for c in range(3)])
        try:
            torch.linalg.cholesky(-torch.eye(2))
        except torch.linalg.LinAlgError:
            print("as expected")
        {end}
        """,
    )
    assert workshop.python("script.py").returncode == 4
    assert workshop.watched("script.py").returncode == code


def test_exit_inside_atexit(real: Workshop) -> None:
    real.write("script.py", "import atexit, sys\natexit.register(lambda: sys.exit(5))\nprint('body')\n")
    real.same("script.py")


def test_an_uncaught_exception_reads_as_without_nanwatch(real: Workshop) -> None:
    real.write(
        "script.py",
        """
        import torch
        class Model(torch.nn.Module):
            def forward(self, x):
                return self.inner(x)
            def inner(self, x):
                return x @ torch.ones(5, 5)
        def run():
            try:
                {}["key"]
            except KeyError as error:
                raise RuntimeError("wrapped") from error
        try:
            run()
        except RuntimeError:
            print("before", flush=True)
            Model()(torch.ones(2, 3))
        """,
    )
    plain, watched = real.same("script.py")
    assert watched.returncode == 1
    assert watched.stderr == plain.stderr
    assert "mat1 and mat2 shapes cannot be multiplied" in watched.stderr


def test_the_scripts_own_excepthook_is_called(real: Workshop) -> None:
    real.write(
        "script.py",
        """
        import sys, traceback
        def hook(kind, error, shown):
            print(kind.__name__, error, len(traceback.extract_tb(shown)))
        sys.excepthook = hook
        raise ValueError("mine")
        """,
    )
    plain, _ = real.same("script.py")
    assert plain.stdout == "ValueError mine 1\n"


def test_an_exception_whose_globals_hold_the_whole_program(workshop: Workshop) -> None:
    """The post-mortem looks at the dying program's variables: modules and cycles must not hold it up."""
    workshop.write(
        "script.py",
        """
        import os, sys, torch
        class Node: pass
        nodes = [Node() for _ in range(30)]
        for node in nodes:
            node.others = nodes
            node.system = sys
        raise ValueError("quick")
        """,
    )
    plain, watched = workshop.same("script.py")
    assert watched.stderr == plain.stderr


def test_exception_in_the_package_on_the_way_to_a_module(workshop: Workshop) -> None:
    workshop.write("package/__init__.py", "import nowhere_to_be_found")
    workshop.write("package/module.py", "print('never')")
    done = workshop.watched("-m", "package.module")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'nowhere_to_be_found'"
    assert "nanwatch" not in done.stderr.replace(str(workshop.folder), "")


def test_standard_input(workshop: Workshop) -> None:
    workshop.write("script.py", "import sys\nprint(input(), sys.stdin.read().split(), sys.stdin.isatty())\n")
    workshop.same("script.py", input="first\nsecond third\n")


WAITS = """
    import atexit, os, signal, sys, time
    atexit.register(print, "atexit ran")
    {handler}
    print("in the buffer")
    os.write(1, b"ready\\n")
    time.sleep(30)
"""
TERM = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(17))"


@pytest.mark.parametrize(
    ("handler", "sent", "code"),
    [
        ("", signal.SIGINT, -signal.SIGINT),
        ("", signal.SIGTERM, -signal.SIGTERM),
        (TERM, signal.SIGTERM, 17),
        ("signal.signal(signal.SIGINT, lambda *_: sys.exit(18))", signal.SIGINT, 18),
    ],
    ids=["SIGINT", "SIGTERM", "SIGTERM handled", "SIGINT handled"],
)
def test_signals(real: Workshop, handler: str, sent: signal.Signals, code: int) -> None:
    real.write("script.py", WAITS.format(handler=handler))
    results = []
    for command in (["script.py"], ["-m", "nanwatch", "run", "--dir", str(real.runs), "script.py"]):
        process = real.start(*command)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.3)  # from the write to the sleep
        process.send_signal(sent)
        out, err = process.communicate(timeout=30)
        results.append((process.returncode, out, err))
    assert results[1] == results[0]
    assert results[1][0] == code


def test_an_interrupt_that_the_script_handles(real: Workshop) -> None:
    real.write(
        "script.py",
        """
        import os, signal
        try:
            os.kill(os.getpid(), signal.SIGINT)
            import time; time.sleep(5)
        except KeyboardInterrupt:
            print("saved the checkpoint")
        """,
    )
    real.same("script.py")


PROCESSES = """
    import multiprocessing as mp
    import sys
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Squares(Dataset):
        def __len__(self):
            return 8
        def __getitem__(self, i):
            return torch.tensor(float(i * i))

    def worker_seed(worker):
        torch.manual_seed(worker)

    def double(x):
        return float(torch.tensor(x) * 2)

    def main(method):
        loader = DataLoader(Squares(), batch_size=4, num_workers=1, multiprocessing_context=method,
                            worker_init_fn=worker_seed)
        model = torch.nn.Linear(4, 1)
        torch.nn.init.ones_(model.weight); torch.nn.init.zeros_(model.bias)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        for batch in loader:
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            print(loss.item())
        with mp.get_context(method).Pool(1) as pool:
            print(pool.map(double, [1.0, 2.0]))
        print(method, "done")

    if __name__ == "__main__":
        main(sys.argv[1])
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_processes(real: Workshop, method: str) -> None:
    real.write("script.py", PROCESSES)
    plain, watched = real.same("script.py", method)
    assert plain.stdout.endswith(f"[2.0, 4.0]\n{method} done\n"), plain.stderr
    assert watched.stderr == ""


@pytest.mark.parametrize("stderr", ["sys.stderr", "None"])
def test_what_is_left_of_an_exception(real: Workshop, stderr: str) -> None:
    real.write(
        "script.py",
        f"""
        import atexit, sys
        atexit.register(lambda: print(sys.last_type.__name__, sys.last_value, sys.last_traceback is not None))
        sys.stderr = {stderr}
        raise KeyError("lost")
        """,
    )
    plain, watched = real.same("script.py")
    assert plain.stdout == "KeyError 'lost' True\n"
    assert watched.stderr.splitlines()[-1:] == plain.stderr.splitlines()[-1:]


def test_what_spawned_processes_send_back_may_be_of_the_programs_own_classes(real: Workshop) -> None:
    real.write(
        "script.py",
        """
        import collections, dataclasses
        import multiprocessing as mp
        import torch
        from torch.utils.data import DataLoader, Dataset
        Pair = collections.namedtuple("Pair", "x y")
        @dataclasses.dataclass
        class Square:
            value: int
        def square(number):
            return Square(number * number)
        class Pairs(Dataset):
            def __len__(self):
                return 4
            def __getitem__(self, index):
                return Pair(torch.ones(2) * index, index)
        if __name__ == "__main__":
            for batch in DataLoader(Pairs(), 2, num_workers=1, multiprocessing_context="spawn"):
                print(type(batch).__name__, batch.x.sum().item())
            with mp.get_context("spawn").Pool(1) as pool:
                print(pool.map(square, [2, 3]))
        """,
    )
    plain, watched = real.same("script.py")
    assert plain.stdout == "Pair 2.0\nPair 10.0\n[Square(value=4), Square(value=9)]\n", plain.stderr
    assert watched.stderr == ""


def test_spawned_workers_of_a_module(real: Workshop) -> None:
    real.write("package/__init__.py", "")
    real.write("package/sibling.py", "factor = 2")
    real.write(
        "package/train.py",
        """
        import multiprocessing as mp
        from .sibling import factor
        def double(x):
            return x * factor
        if __name__ == "__main__":
            with mp.get_context("spawn").Pool(1) as pool:
                print(pool.map(double, [1, 2]))
        """,
    )
    plain, watched = real.same("-m", "package.train")
    assert (plain.stdout, watched.stderr) == ("[2, 4]\n", "")


def test_a_forked_child_that_trains_is_not_the_parents_business(workshop: Workshop) -> None:
    """A child goes NaN in its own process: the parent is watched, the child is as under plain Python."""
    workshop.write(
        "script.py",
        """
        import os, torch
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        def step(x):
            optimizer.zero_grad(); loss = model(x).mean(); loss.backward(); optimizer.step()
        step(torch.ones(1, 2))
        pid = os.fork()
        if pid == 0:
            step(torch.full((1, 2), float("nan")))
            os._exit(11 if model.weight.isnan().all() else 12)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        step(torch.ones(1, 2))
        print(bool(model.weight.isfinite().all()))
        """,
    )
    plain, _ = workshop.same("script.py")
    assert plain.stdout == "11\nTrue\n"


def test_threads_of_the_script(workshop: Workshop) -> None:
    """What another thread computes beside its models is not recorded and does not disturb the watched one."""
    workshop.write(
        "script.py",
        """
        import threading, torch
        torch.manual_seed(0)
        stop = threading.Event()
        other = torch.nn.Linear(3, 3)
        def noise():
            while not stop.is_set():
                with torch.no_grad():
                    other(torch.ones(2, 3)) * float("nan")
        thread = threading.Thread(target=noise); thread.start()
        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(20):
            optimizer.zero_grad()
            loss = model(torch.ones(2, 3)).square().mean()
            loss.backward()
            optimizer.step()
        stop.set(); thread.join()
        print(loss.item(), model.weight.tolist())
        """,
    )
    _, watched = workshop.same("script.py")
    assert watched.stderr == ""


def test_the_installed_command(real: Workshop) -> None:
    """`nanwatch` itself, as pip installs it, is `python -m nanwatch`."""
    command = Path(sys.executable).parent / "nanwatch"
    if not command.exists():
        pytest.skip("the package is not installed")
    real.write("script.py", FACTS)
    plain = real.python("script.py", "x")
    done = subprocess.run(
        [str(command), "run", "--dir", str(real.runs), "script.py", "x"],
        cwd=real.folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.returncode) == (plain.stdout, 0)


@pytest.mark.parametrize("end", ["raise ValueError('another')", "sys.exit(7)"])
def test_infinities_on_purpose_are_not_blamed_for_another_end(workshop: Workshop, end: str) -> None:
    workshop.write(
        "script.py",
        f"""
        import sys, torch
        best = torch.tensor(float("inf"))
        mask = torch.full((3, 3), float("-inf")).triu(1)
        scores = torch.zeros(3, 3) + mask
        {end}
        """,
    )
    plain, watched = workshop.same("script.py")
    assert watched.stderr == plain.stderr
    assert list((workshop.runs / "incidents").iterdir()) == []


def test_a_virtual_environment_inside_the_project(real: Workshop) -> None:
    """Scripts often lie beside their `.venv`: what is installed there is library all the same."""
    (real.folder / ".venv").symlink_to(sys.prefix)
    real.write(
        "script.py",
        """
        import torch
        model = torch.nn.Sequential(torch.nn.Linear(2, 2))
        torch.nn.init.constant_(model[0].weight, 3e38)
        with torch.no_grad():
            model(torch.ones(1, 2))
        """,
    )
    command = [".venv/bin/python", "-m", "nanwatch", "run", "--dir", str(real.runs), "script.py"]
    done = subprocess.run(
        command, cwd=real.folder, env=environment(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 3, done.stderr
    birth = json.loads((real.runs / "incidents/0001/incident.json").read_text())["birth"]
    assert (birth["file"], birth["line"]) == (str(real.folder / "script.py"), 6)
    assert birth["code"] == "model(torch.ones(1, 2))"
