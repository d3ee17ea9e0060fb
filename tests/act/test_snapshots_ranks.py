"""Several ranks: a snapshot counts when all have it, and all go back to the same one."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

RANKS = 2
PARTS = ("back_and_on", "new_processes", "bad_on_one_rank", "only_one_goes_back", "made_before_they_meet")
HERE = str(Path(__file__).parent)
PROGRAM = f"import sys; sys.path.insert(0, {HERE!r}); import test_snapshots_ranks as here; here.main()"


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What each rank said on stderr in each part of this file."""
    folder = tmp_path_factory.mktemp("ranks")
    subprocess.run([sys.executable, "-c", PROGRAM, str(folder)], timeout=150, check=True)
    return {part: [(folder / f"{part}-{rank}").read_text() for rank in range(RANKS)] for part in PARTS}


def lines_of_nanwatch(said: str) -> list[str]:
    """Only these: the rank ended well."""
    lines = said.splitlines()
    assert lines and lines[-1] == "well", said
    return [line for line in lines if line.startswith("nanwatch")]


def main() -> None:
    """All parts, on ranks that are forked: torch is imported once."""
    import torch.distributed.checkpoint
    from torch.distributed.fsdp import fully_shard  # noqa: F401

    torch.set_num_threads(1)  # no threads before a fork
    optimizer = torch.optim.Adam([torch.ones(1, requires_grad=True)])
    optimizer.step()
    for part in PARTS:
        ranks = []
        for rank in range(RANKS):
            child = os.fork()
            if child == 0:
                run(part, Path(sys.argv[1]), rank)
            ranks.append(child)
        for child in ranks:
            os.waitpid(child, 0)


def run(part: str, folder: Path, rank: int) -> None:
    """One rank of one part."""
    code = 1
    try:
        stderr = os.open(folder / f"{part}-{rank}", os.O_CREAT | os.O_WRONLY)
        os.dup2(stderr, 2)
        if part == "made_before_they_meet":
            globals()["early"] = made_early(rank, folder)
        limit = timedelta(seconds=40)
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{folder}/meeting-{part}", timeout=limit, rank=rank, world_size=RANKS
        )
        globals()[part](rank, folder)
        torch.distributed.barrier()
        os.write(2, b"well\n")
        code = 0
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def training_of(kind: str) -> Any:
    from snapshot_trainings import Training, net, seed
    from torch import nn

    seed()
    model: Any = net(nn.BatchNorm1d(8)) if kind == "ddp" else net()
    if kind == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    else:
        from torch.distributed.fsdp import fully_shard

        model = fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    seed(torch.distributed.get_rank())
    return Training(model, optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=99))


def local_bits(training: Any) -> Any:
    """This rank's own part of all state."""

    def local(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return getattr(value, "_local_tensor", value).detach().clone()
        if isinstance(value, dict):
            return {key: local(item) for key, item in value.items()}
        if isinstance(value, list):
            return [local(item) for item in value]
        return value

    model = {**dict(training.model.named_parameters()), **dict(training.model.named_buffers())}
    others = [thing.state_dict() for thing in training.objects[1:]]
    return local([model, *others, torch.get_rng_state()])


def spoil(training: Any) -> None:
    with torch.no_grad():
        for tensor in (*training.model.parameters(), *training.model.buffers()):
            getattr(tensor, "_local_tensor", tensor).fill_(
                1 if not tensor.is_floating_point() else float("nan")
            )
    training.optimizer.state.clear()
    training.optimizer.param_groups[0]["lr"] = 7.0
    torch.rand(3)


def back_and_on(rank: int, folder: Path) -> None:
    """Snapshots of a replicated and of a sharded model; the newest part of rank 1 is spoilt."""
    from snapshot_trainings import assert_same

    from nanwatch import LastGood

    for kind in ("ddp", "fsdp"):
        training, bits = training_of(kind), []
        with LastGood(*training.objects, every=1, dir=folder / kind) as last_good:
            for step in range(6):
                training.step()
                last_good.step(step)
                bits.append(local_bits(training))
            last_good.wait()
            torch.distributed.barrier()
            assert len(list((folder / kind).glob(f"*-rank{rank}"))) in range(2, 6)
            spoil(training)
            assert last_good.rollback() == 5
            assert_same(bits[5], local_bits(training))
            training.step()
            after = local_bits(training)
            if rank == 1:
                (newest,) = (folder / kind).glob("*step5-rank1")
                (newest / "state.json").unlink()
            spoil(training)
            assert last_good.rollback() == 4
            assert_same(bits[4], local_bits(training))
            for _ in range(2):
                training.step()
            assert_same(after, local_bits(training))
            torch.save(bits[4], folder / f"{kind}-bits-{rank}")


def new_processes(rank: int, folder: Path) -> None:
    from snapshot_trainings import assert_same

    from nanwatch import LastGood

    for kind in ("ddp", "fsdp"):
        training = training_of(kind)
        with LastGood(*training.objects, dir=folder / kind) as last_good:
            assert last_good.rollback() == 4
        assert_same(torch.load(folder / f"{kind}-bits-{rank}", weights_only=False), local_bits(training))


def test_all_ranks_go_back_to_what_all_have(said: dict[str, list[str]]) -> None:
    for part in ("back_and_on", "new_processes"):
        whole, spoilt = map(lines_of_nanwatch, said[part])
        assert whole == []
        assert [line.split("passed over: ")[1] for line in spoilt] == ["state.json is missing."] * 2


def bad_on_one_rank(rank: int, folder: Path) -> None:
    """Rank 1 keeps nothing after step 1: the others hold on to what all have, and to no more than need be."""
    from nanwatch import LastGood

    training = training_of("fsdp")
    with LastGood(*training.objects, every=1) as last_good:
        for step in range(12):
            training.optimizer.param_groups[0]["lr"] = float("nan") if (rank, step > 1) == (1, True) else 0.1
            last_good.step(step)
            last_good.wait()
            torch.distributed.barrier()
        assert len(last_good._shelf.ids()) == (5 if rank == 0 else 2)
        assert last_good.rollback() == 1


def test_what_is_bad_on_one_rank_counts_on_none(said: dict[str, list[str]]) -> None:
    good, bad = map(lines_of_nanwatch, said["bad_on_one_rank"])
    assert good == []
    assert bad == [
        "nanwatch: no snapshot at step 2: 1.Adam.param_groups.0.lr holds NaN or Inf. "
        "The last good snapshots are kept."
    ]


def only_one_goes_back(rank: int, folder: Path) -> None:
    from nanwatch import LastGood, NanwatchError
    from nanwatch.act import snapshot_ranks

    snapshot_ranks.PATIENCE = 1.0
    training = training_of("ddp")
    with LastGood(*training.objects, every=1) as last_good:
        last_good.step(0)
        last_good.wait()
        training.step()
        if rank == 0:
            before = local_bits(training)
            with pytest.raises(NanwatchError, match=r"rank 1 did not call rollback\(\) within 1 seconds"):
                last_good.rollback()
            from snapshot_trainings import assert_same

            assert_same(before, local_bits(training))


def test_no_rank_goes_back_alone(said: dict[str, list[str]]) -> None:
    assert [lines_of_nanwatch(text) for text in said["only_one_goes_back"]] == [[], []]


def made_early(rank: int, folder: Path) -> Any:
    """As for a program that is watched from its first line, under a launcher."""
    from nanwatch import LastGood

    os.environ |= {"WORLD_SIZE": str(RANKS), "RANK": str(rank)}
    return LastGood(torch.nn.Linear(2, 2), every=1, dir=folder / "early")


def made_before_they_meet(rank: int, folder: Path) -> None:
    early: Any = globals()["early"]
    early.step(0)
    early.step(1)
    assert early.rollback() == 1
    early.close()
    assert len(list((folder / "early").glob(f"*-step1-rank{rank}"))) == 1


def test_it_may_be_made_before_the_ranks_meet(said: dict[str, list[str]]) -> None:
    assert [lines_of_nanwatch(text) for text in said["made_before_they_meet"]] == [[], []]
