"""The gate before torch.save and safetensors: real files, what is refused, what is not, and what is left."""

from __future__ import annotations

import importlib.util
import io
import os
import pickle
import shutil
import stat
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file, save_model
from torch import nn, save, serialization

from nanwatch import LastGood
from nanwatch.act import checkpoint_gate as gate
from nanwatch.act import saved_state
from nanwatch.act.after_import import AfterImport
from nanwatch.act.saved_state import bad_tensors

NAN, INF = float("nan"), float("inf")
PATCHED = [
    (serialization, "_open_zipfile_writer"),
    (serialization, "_open_file_like"),
    (serialization, "_save"),
    (serialization, "_legacy_save"),
    (safetensors.torch, "_flatten_as_ptr"),
    (safetensors.torch, "serialize_file"),
    (safetensors.torch, "serialize"),
    (safetensors.torch, "save_model"),
]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NANWATCH_LANG", "en")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def gated() -> Iterator[None]:
    with gate.checkpoint_gate():
        yield


def trained() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


def spoiled(what: str, value: float = NAN) -> tuple[nn.Module, torch.optim.Optimizer]:
    model, optimizer = trained()
    places: dict[str, Any] = {
        "weight": model[0].weight,  # type: ignore[index]
        "buffer": model[1].running_mean,  # type: ignore[index]
        "optimizer": next(iter(optimizer.state.values()))["exp_avg"],
    }
    with torch.no_grad():
        places[what].view(-1)[0] = value
    return model, optimizer


def ways_to_hold(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    return {
        "module": {"net": model, "opt": optimizer.state_dict()},
        "state dicts": {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3},
        "deep": {"a": [{"b": (model.state_dict(), {"c": optimizer.state_dict()})}]},
        "copied": {"net": {k: v.clone() for k, v in model.state_dict().items()}, "o": optimizer},
    }


HELD = ["module", "state dicts", "deep", "copied"]


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("what", ["weight", "buffer", "optimizer"])
def test_a_bad_state_never_gets_the_name_of_a_good_one(
    what: str, held: str, legacy: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    options: Any = {"_use_new_zipfile_serialization": not legacy}
    save(ways_to_hold(*trained())[held], "model.pt", **options)
    good = Path("model.pt").read_bytes()
    with gate.checkpoint_gate():
        save(ways_to_hold(*spoiled(what))[held], "model.pt", **options)  # a name imported before the gate
        torch.save(ways_to_hold(*spoiled(what, INF))[held], Path("model.pt"), **options)
    assert Path("model.pt").read_bytes() == good
    assert sorted(os.listdir()) == ["model.nonfinite-2.pt", "model.nonfinite.pt", "model.pt"]
    kept = torch.load("model.nonfinite.pt", weights_only=False)
    assert [b.numbers.nan for b in bad_tensors(kept)] == [1]
    first, second = capfd.readouterr().err.splitlines()
    assert "(1 NaN, 0 +Inf, 0 -Inf of" in first and "model.nonfinite.pt" in first and " model.pt," in first
    assert "(0 NaN, 1 +Inf, 0 -Inf of" in second and "model.nonfinite-2.pt" in second


@pytest.mark.parametrize("name", ["model.pt", "model", "model.v1.bin", "größe.pt", "a.größe"])
@pytest.mark.parametrize("legacy", [False, True])
def test_a_healthy_save_is_byte_for_byte_the_same(name: str, legacy: bool) -> None:
    held = ways_to_hold(*trained())["state dicts"]
    held["mask"] = torch.full((3, 3), -INF).triu(1)
    Path("plain").mkdir()
    Path("gated").mkdir()
    save(held, f"plain/{name}", _use_new_zipfile_serialization=not legacy)
    with gate.checkpoint_gate():
        save(held, f"gated/{name}", _use_new_zipfile_serialization=not legacy)
    assert Path("plain", name).read_bytes() == Path("gated", name).read_bytes()
    assert os.listdir("gated") == [name]


def test_safetensors_by_names_imported_earlier(capfd: pytest.CaptureFixture[str]) -> None:
    model, _ = trained()
    save_file(model.state_dict(), "plain.safetensors", metadata={"format": "pt"})
    with gate.checkpoint_gate():
        save_file(model.state_dict(), "m.safetensors", metadata={"format": "pt"})
        assert Path("m.safetensors").read_bytes() == Path("plain.safetensors").read_bytes()
        save_file(spoiled("weight")[0].state_dict(), Path("m.safetensors"))
        save_model(spoiled("buffer")[0], "m.safetensors")
    assert Path("m.safetensors").read_bytes() == Path("plain.safetensors").read_bytes()
    assert load_file("m.nonfinite.safetensors")["0.weight"].isnan().sum() == 1
    assert load_file("m.nonfinite-2.safetensors")["1.running_mean"].isnan().sum() == 1
    assert len(capfd.readouterr().err.splitlines()) == 2


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([NAN]))


@pytest.mark.usefixtures("gated")
def test_a_model_is_a_state_whatever_its_names() -> None:
    safetensors.torch.save_model(Scale(), "m.safetensors")
    save(Scale().state_dict(), "m.pt")
    save({"model": {"scale": torch.tensor([NAN])}}, "n.pt")
    assert sorted(os.listdir()) == ["m.nonfinite.pt", "m.nonfinite.safetensors", "n.nonfinite.pt"]


@pytest.mark.usefixtures("gated")
def test_data_that_somebody_saves_on_purpose_is_not_refused(capfd: pytest.CaptureFixture[str]) -> None:
    bad = torch.tensor([1.0, NAN, INF])
    for index, data in enumerate(
        [bad, [bad, bad], {"features": bad, "labels": bad}, (bad, {"x": {"y": bad}})]
    ):
        save(data, f"{index}.pt")
    save({"model": trained()[0].state_dict(), "loss": bad, "history": [bad], "best": INF}, "c.pt")
    save_file({"features": bad}, "d.safetensors")
    best = {"best_k_models": {"/runs/a.b/epoch=1.ckpt": bad}, "best_score": bad}
    save({"callbacks": {"ModelCheckpoint{'monitor': 'val.loss'}": best}, "args": object}, "e.pt")
    save("text", "f.pt")
    names = ["0.pt", "1.pt", "2.pt", "3.pt", "c.pt", "d.safetensors", "e.pt", "f.pt"]
    assert sorted(os.listdir()) == names
    assert capfd.readouterr().err == ""


class Masked(nn.Module):
    def __init__(self, mask: torch.Tensor) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.register_buffer("mask", mask)


@pytest.mark.usefixtures("gated")
@pytest.mark.parametrize("held", [lambda m: m, lambda m: m.state_dict(), lambda m: {"model": m.state_dict()}])
def test_masks_of_zeros_and_minus_infinity_are_healthy(held: Any) -> None:
    save(held(Masked(torch.full((3, 3), -INF).triu(1))), "m.pt")
    save(held(Masked(torch.full((2,), -INF))), "n.pt")
    assert sorted(os.listdir()) == ["m.pt", "n.pt"]
    save(held(Masked(torch.tensor([0.5, -INF]))), "o.pt")
    save(held(Masked(torch.tensor([0.0, INF]))), "p.pt")
    model = Masked(torch.zeros(1))
    with torch.no_grad():
        model.linear.bias.copy_(torch.tensor([0.0, -INF]))  # a parameter is no mask
    save(held(model), "q.pt")
    norm = nn.BatchNorm1d(2)
    norm.running_mean = torch.tensor([0.0, -INF])  # nor is a statistic
    save(held(norm), "r.pt")
    kept = {"o.nonfinite.pt", "p.nonfinite.pt", "q.nonfinite.pt", "r.nonfinite.pt"}
    assert set(os.listdir()) == {"m.pt", "n.pt"} | kept


def alibi(heads: int, size: int, window: int) -> torch.Tensor:
    distance = torch.arange(size)[None] - torch.arange(size)[:, None]
    slopes = 2.0 ** -torch.arange(1, heads + 1)[:, None, None]
    return (slopes * distance).masked_fill((distance > 0) | (distance <= -window), -INF)


@pytest.mark.usefixtures("gated")
@pytest.mark.parametrize("held", [lambda m: m, lambda m: m.state_dict()])
def test_a_bias_of_attention_with_a_mask_in_it_is_healthy(held: Any) -> None:
    for name, window in (("a.pt", 8), ("b.pt", 3)):
        save(held(Masked(alibi(2, 8, window))), name)
    with LastGood(Masked(alibi(2, 8, 8)), every=1) as last_good:
        last_good.step(0)
        assert last_good.rollback() == 0
    assert sorted(os.listdir()) == ["a.pt", "b.pt"]
    for name, place, value in (("c.pt", (1, 5, 2), -INF), ("d.pt", (0, 7, 7), NAN), ("e.pt", (0, 3, 0), INF)):
        spoiled = alibi(2, 8, 8)
        spoiled[place] = value
        save(held(Masked(spoiled)), name)
    few = torch.randn(6, 6)
    few[2, 5] = -INF
    save(held(Masked(few)), "f.pt")
    assert [n for n in sorted(os.listdir()) if "nonfinite" not in n] == ["a.pt", "b.pt"]


@pytest.mark.usefixtures("gated")
def test_functions_that_are_watched_are_those_of_their_modules() -> None:
    for function in (os.replace, os.remove, os.unlink, os.link, shutil.copy2, torch.save):
        assert pickle.loads(pickle.dumps(function)) is function and function.__doc__
    assert os.unlink in os.supports_dir_fd and os.link in os.supports_follow_symlinks


@pytest.mark.usefixtures("gated")
def test_parameters_are_weights_wherever_they_are() -> None:
    good, bad = nn.Linear(2, 2), nn.Linear(2, 2)
    nn.init.constant_(bad.bias, NAN)
    for name, saved in (("a.pt", lambda m: list(m.parameters())), ("b.pt", lambda m: m.bias)):
        save(saved(good), name)
        save(saved(bad), name)
        found = torch.load(name)
        assert (found[1] if isinstance(found, list) else found).isfinite().all()


@pytest.mark.usefixtures("gated")
def test_the_first_few_are_named_and_the_others_counted(capfd: pytest.CaptureFixture[str]) -> None:
    save({f"layers.{i}.weight": torch.tensor([NAN, INF, -INF, 1.0]) for i in range(7)}, "m.pt")
    said = capfd.readouterr().err
    assert "layers.0.weight (1 NaN, 1 +Inf, 1 -Inf of 4), " in said and " and 4 more." in said
    assert "layers.3" not in said


@pytest.mark.usefixtures("gated")
def test_a_stream_gets_what_was_asked_for_and_a_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    buffer = io.BytesIO()
    save(spoiled("weight")[0].state_dict(), buffer)
    buffer.seek(0)
    assert torch.load(buffer)["0.weight"].isnan().sum() == 1
    with open("open.pt", "wb") as file:
        save(spoiled("weight")[0].state_dict(), file)
    assert safetensors.torch.save(spoiled("weight")[0].state_dict())
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 3 and all("0.weight (1 NaN" in line and "all the same" in line for line in said)
    save(trained()[0].state_dict(), io.BytesIO())
    save(spoiled("weight")[0].state_dict(), "/dev/null")
    assert "/dev/null all the same" in capfd.readouterr().err
    assert os.listdir() == ["open.pt"]


@pytest.mark.usefixtures("gated")
def test_mode_and_links_are_kept() -> None:
    Path("real").mkdir()
    Path("real/model.pt").touch(mode=0o640)
    os.chmod("real/model.pt", 0o640)
    if os.geteuid() == 0:
        os.chown("real/model.pt", 12345, 23456)
    owner = os.stat("real/model.pt").st_uid, os.stat("real/model.pt").st_gid
    os.symlink("real/model.pt", "latest.pt")
    save(trained()[0].state_dict(), "latest.pt")
    assert os.path.islink("latest.pt") and stat.S_IMODE(os.stat("real/model.pt").st_mode) == 0o640
    assert (os.stat("real/model.pt").st_uid, os.stat("real/model.pt").st_gid) == owner
    good = Path("real/model.pt").read_bytes()
    assert torch.load("latest.pt")["0.weight"].isfinite().all()
    save(spoiled("weight")[0].state_dict(), "latest.pt")
    assert os.path.islink("latest.pt") and Path("real/model.pt").read_bytes() == good
    assert sorted(os.listdir()) == ["latest.nonfinite.pt", "latest.pt", "real"]
    before = os.umask(0o027)
    try:
        save(trained()[0].state_dict(), "new.pt")
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat("new.pt").st_mode) == 0o640


@pytest.mark.usefixtures("gated")
def test_a_save_that_fails_leaves_the_old_file_and_nothing_else() -> None:
    save(trained()[0].state_dict(), "model.pt")
    good = Path("model.pt").read_bytes()
    with pytest.raises(Exception, match=r"pickle|local"):
        save({"model": trained()[0].state_dict(), "f": lambda: 0}, "model.pt")
    assert Path("model.pt").read_bytes() == good and os.listdir() == ["model.pt"]
    for state in (trained()[0].state_dict(), spoiled("weight")[0].state_dict()):
        with pytest.raises(RuntimeError, match="Parent directory nowhere does not exist"):
            save(state, "nowhere/model.pt")


def test_a_name_too_long_for_a_second_file_is_written_in_place() -> None:
    name = "m" * 250 + ".pt"
    with gate.checkpoint_gate():
        save(trained()[0].state_dict(), name)
    assert os.listdir() == [name] and torch.load(name)["0.weight"].isfinite().all()


def test_where_no_file_can_be_made_beside_it_the_bad_one_goes_to_the_temporary_folder(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "tmp"
    elsewhere.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))
    name = "m" * 240 + ".pt"  # the part beside it would have a name that is too long
    save(trained()[0].state_dict(), name)
    good = Path(name).read_bytes()
    with gate.checkpoint_gate():
        save(spoiled("weight")[0].state_dict(), name)
    assert Path(name).read_bytes() == good
    (kept,) = elsewhere.glob("*/*")
    assert torch.load(kept)["0.weight"].isnan().any() and str(kept) in capfd.readouterr().err


def test_others_who_open_files_like_torch_get_a_file() -> None:
    with gate.checkpoint_gate(), serialization._open_file_like("proto.onnx", "wb") as file:
        file.write(b"abc")
    assert Path("proto.onnx").read_bytes() == b"abc"


def test_it_leaves_no_trace() -> None:
    originals = [vars(owner)[name] for owner, name in PATCHED]
    finders = list(sys.meta_path)
    gate.install()
    gate.install()
    assert all(vars(owner)[name] is not f for (owner, name), f in zip(PATCHED, originals, strict=True))
    gate.uninstall()
    assert serialization._save is not originals[2]  # somebody still wants it
    gate.uninstall()
    assert all(vars(owner)[name] is f for (owner, name), f in zip(PATCHED, originals, strict=True))
    assert sys.meta_path == finders
    gate.uninstall()
    save(spoiled("weight")[0].state_dict(), "model.pt")
    assert os.listdir() == ["model.pt"]


def test_something_to_do_after_an_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("gate_late_one", "gate_late_two", "gate_late_three"):
        (tmp_path / f"{name}.py").write_text("value = 1")
    monkeypatch.syspath_prepend(tmp_path)
    finders = list(sys.meta_path)
    later, done = AfterImport(), []
    later.do("json", lambda module: done.append(module.__name__))
    later.do("gate_late_one", lambda module: done.append(module.value))
    later.do("gate_late_three", lambda module: done.append("never"))
    assert importlib.util.find_spec("gate_late_one") is not None  # only asked for: it still has to come
    assert done == ["json"]
    module = importlib.import_module("gate_late_one")
    assert done == ["json", 1]
    assert "exec_module" not in vars(module.__spec__.loader)  # type: ignore[arg-type, union-attr]
    monkeypatch.setattr(gate._judge, "_complained", False)
    later.do("gate_late_two", partial(gate._put_on, lambda module: module.not_in_this_version))
    assert importlib.import_module("gate_late_two").value == 1
    assert "not_in_this_version" in capfd.readouterr().err
    later.end()
    importlib.import_module("gate_late_three")
    assert done == ["json", 1] and sys.meta_path == finders


def test_what_is_wanted_as_it_is() -> None:
    with gate.checkpoint_gate(), gate.unchecked():
        save(spoiled("weight")[0].state_dict(), "model.pt")
    assert os.listdir() == ["model.pt"]


def test_a_failing_gate_lets_every_save_through_and_says_so_once(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def boom(*_: object) -> Any:
        raise ValueError("boom")

    monkeypatch.setattr(saved_state, "norms_by_device", boom)
    monkeypatch.setattr(gate._judge, "_complained", False)
    with gate.checkpoint_gate():
        for name in ("a.pt", "b.pt"):
            save(spoiled("weight")[0].state_dict(), name)
    assert sorted(os.listdir()) == ["a.pt", "b.pt"]
    said = capfd.readouterr().err
    assert said.count("boom") == 1 and "an error of its own" in said


@pytest.mark.usefixtures("gated")
def test_a_healthy_save_looks_at_each_tensor_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def noting(function: Any) -> Any:
        def noted(tensors: Any, *rest: Any) -> Any:
            seen.extend(t.data_ptr() for t in tensors)
            return function(tensors, *rest)

        return noted

    for name in ("norms_by_device", "many_numbers"):
        monkeypatch.setattr(saved_state, name, noting(getattr(saved_state, name)))
    model, optimizer = trained()
    tied = nn.ModuleList([model, model[0]])  # type: ignore[index]
    save({"model": tied.state_dict(), "optimizer": optimizer.state_dict()}, "model.pt")
    floats = [t for t in tied.state_dict().values() if t.is_floating_point()]
    assert {t.data_ptr() for t in floats} <= set(seen)
    assert len(seen) == len(set(seen))


floats = st.floats(width=32, allow_nan=True, allow_infinity=True)
states = st.dictionaries(
    st.from_regex(r"[a-z]{1,3}(\.[0-9a-z]{1,3}){1,2}", fullmatch=True),
    st.lists(floats, max_size=5),
    max_size=5,
)


@given(states, st.sampled_from([torch.float32, torch.float64, torch.bfloat16]))
@settings(max_examples=60, deadline=None)
def test_the_verdict_is_that_of_isfinite(state: dict[str, list[float]], dtype: torch.dtype) -> None:
    tensors = {name: torch.tensor(values, dtype=dtype) for name, values in state.items()}
    with torch.no_grad():
        expected = {
            name
            for name, t in tensors.items()
            if not t.isfinite().all() and not bool(((t == 0) | (t == -INF)).all())
        }
    assert {b.numbers.name for b in bad_tensors(tensors)} == expected
