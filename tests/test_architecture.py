"""The rooms and the order in which they may import each other; each check is shown to be able to fail."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "nanwatch"
ORDER = ["arguments", "records", "tensors", "watching", "replay", "explain", "act", "show", "adapters", "cli"]
LEAVES = ["errors", "messages", "signals", "version"]
BESIDE = {"scan": "watching", "lint": "watching", "stable": "watching"}
"""Rooms that stand beside another."""
WITHOUT_TORCH = ["arguments", "records", "show", "messages", "lint", "errors", "signals", "version"]

Imports = dict[str, set[str]]


def module_name(path: Path, source: Path) -> str:
    parts = list(path.relative_to(source).with_suffix("").parts)
    return ".".join(["nanwatch", *parts]).removesuffix(".__init__")


def imports_of(source: Path) -> Imports:
    """module -> what it imports, anywhere in it but under TYPE_CHECKING."""
    modules = {module_name(path, source): path for path in sorted(source.rglob("*.py"))}
    return {name: _imports_in(name, path, set(modules)) for name, path in modules.items()}


def _imports_in(name: str, path: Path, known: set[str]) -> set[str]:
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found: set[str] = set()
    for node in _running_nodes(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base]).rstrip(".")
            inner = {f"{base}.{alias.name}" for alias in node.names} & known
            found |= inner or {base}
    return found - {name}


def _running_nodes(tree: ast.AST) -> list[ast.AST]:
    found: list[ast.AST] = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        found += [node, *_running_nodes(node)]
    return found


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if parts[0] == "nanwatch" and len(parts) > 1 else ""


def wrong_order(imports: Imports) -> list[str]:
    """Imports that reach into a later room, out of a leaf, or to the package's root."""
    place = {room: index for index, room in enumerate(ORDER)}
    place |= {room: place[beside] for room, beside in BESIDE.items()}
    wrong = []
    for module, imported in imports.items():
        room = room_of(module)
        if room in ("", "__main__"):
            continue
        for other in sorted(imported):
            target = room_of(other)
            if other == "nanwatch":
                wrong.append(f"{module} imports the package's root")
            elif not target or target == room or target in LEAVES:
                continue
            elif room in LEAVES:
                wrong.append(f"{module} is a leaf and imports {other}")
            elif target not in place or room not in place:
                wrong.append(f"{module} imports {other}: a room without a place in the order")
            elif place[target] >= place[room]:
                wrong.append(f"{module} imports {other}, a later room")
    return wrong


def cycles(imports: Imports) -> list[list[str]]:
    """Rings of modules that import each other, from any module back to itself."""
    found: list[list[str]] = []
    done: set[str] = set()

    def walk(module: str, path: list[str]) -> None:
        if module in path:
            found.append([*path[path.index(module) :], module])
            return
        if module in done or module not in imports:
            return
        for other in sorted(imports[module]):
            walk(other, [*path, module])
        done.add(module)

    for module in imports:
        walk(module, [])
    return found


def importers_of_torch(imports: Imports, rooms: list[str]) -> list[str]:
    """Modules of `rooms` that lead to torch, themselves or through what they import."""

    def leads(module: str, seen: set[str]) -> bool:
        if module == "torch" or module.startswith("torch."):
            return True
        if module in seen or module not in imports:
            return False
        seen.add(module)
        return any(leads(other, seen) for other in imports[module])

    return [module for module in imports if room_of(module) in rooms and leads(module, set())]


def test_the_rooms_import_in_their_order() -> None:
    assert wrong_order(imports_of(SOURCE)) == []


def test_every_room_has_its_place() -> None:
    rooms = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms - {*ORDER, *LEAVES, *BESIDE} == set()


def test_no_module_leads_back_to_itself() -> None:
    assert cycles(imports_of(SOURCE)) == []


def test_rooms_without_torch() -> None:
    assert importers_of_torch(imports_of(SOURCE), WITHOUT_TORCH) == []


BAD = {
    "records/one.py": "from nanwatch.show.two import x",
    "show/two.py": "def late():\n    import torch",
    "show/three.py": "from nanwatch.show.two import late",
    "messages/four.py": "from nanwatch.records import one",
    "watching/five.py": "from ..replay import six",
    "replay/six.py": "import nanwatch\nfrom nanwatch.replay import seven",
    "replay/seven.py": "from nanwatch.replay.six import *",
    "adapters/eight.py": "if TYPE_CHECKING:\n    from nanwatch.cli import nine",
    "cli/nine.py": "from nanwatch.attic import ten",
    "attic/ten.py": "",
}


@pytest.fixture
def bad_source(tmp_path: Path) -> Path:
    for name, text in BAD.items():
        path = tmp_path / "nanwatch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        (path.parent / "__init__.py").touch()
    return tmp_path / "nanwatch"


def test_the_checks_can_fail(bad_source: Path) -> None:
    imports = imports_of(bad_source)
    assert sorted(wrong_order(imports)) == [
        "nanwatch.cli.nine imports nanwatch.attic.ten: a room without a place in the order",
        "nanwatch.messages.four is a leaf and imports nanwatch.records.one",
        "nanwatch.records.one imports nanwatch.show.two, a later room",
        "nanwatch.replay.six imports the package's root",
        "nanwatch.watching.five imports nanwatch.replay.six, a later room",
    ]
    assert cycles(imports) == [["nanwatch.replay.seven", "nanwatch.replay.six", "nanwatch.replay.seven"]]
    assert importers_of_torch(imports, WITHOUT_TORCH) == [
        "nanwatch.messages.four",
        "nanwatch.records.one",
        "nanwatch.show.three",
        "nanwatch.show.two",
    ]


def loads_torch(code: str) -> bool:
    """Whether `code`, in a Python of its own, ends with torch imported."""
    program = f"{textwrap.dedent(code)}\nimport sys\nprint('torch' in sys.modules or 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1] == "True"


def modules_of(*rooms: str) -> str:
    names = [m for m in imports_of(SOURCE) if room_of(m) in rooms]
    assert names
    return "\n".join(f"import {name}" for name in names)


@pytest.mark.parametrize("room", ["records", "show", "messages", "errors", "version"])
def test_no_torch_is_loaded_by(room: str) -> None:
    assert not loads_torch(modules_of(room))


def test_the_package_and_the_command_line_start_without_torch() -> None:
    assert not loads_torch("import nanwatch; nanwatch.__version__; nanwatch.NonFiniteError")
    assert not loads_torch(
        """
        import nanwatch.cli.main as main
        try:
            main.main(["run", "no-such-script.py"])
        except SystemExit as end:
            assert end.code == 2
        """
    )


def test_the_proof_without_torch_can_fail() -> None:
    assert loads_torch("import nanwatch; nanwatch.watch")
    assert loads_torch("import nanwatch.records, torch")


def test_public_names_are_frozen() -> None:
    import nanwatch

    assert nanwatch.__all__ == [
        "LastGood",
        "NanwatchError",
        "NonFiniteError",
        "Policy",
        "Session",
        "Traced",
        "__version__",
        "checkpoint_gate",
        "clip_grad_norm_",
        "clip_grad_value_",
        "stabilise",
        "trace",
        "watch",
    ]
    for name in nanwatch.__all__:
        assert getattr(nanwatch, name) is not None
    with pytest.raises(AttributeError, match="module 'nanwatch' has no attribute 'nope'"):
        nanwatch.nope  # noqa: B018
