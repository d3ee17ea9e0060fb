"""Which asynchronous copies somebody has to wait for. The meta device stands for the GPU: nothing is copied,
but the calls are recorded as they would be."""

from __future__ import annotations

import sys

import torch

from nanwatch.explain.experiments.synchronous_copies import _asynchronous, _must_be_awaited
from nanwatch.watching.recorder import Recorder
from nanwatch.watching.tape import Entry


def recorded(function: object, *args: object, **kwargs: object) -> Entry:
    recorder = Recorder()
    entry = recorder.called(function, args, kwargs, sys._getframe())  # type: ignore[arg-type]
    assert entry is not None
    recorder.returned(entry, function(*args, **kwargs))  # type: ignore[operator]
    return entry


def test_a_batch_sent_to_the_gpu_may_be_left_to_itself() -> None:
    batch = torch.randn(4)
    entry = recorded(torch.Tensor.to, batch, "meta", non_blocking=True)
    assert _asynchronous(entry)
    assert not _must_be_awaited(entry)


def test_not_when_its_source_is_written_to_afterwards() -> None:
    batch = torch.randn(4)
    entry = recorded(torch.Tensor.to, batch, "meta", non_blocking=True)
    batch.fill_(0)
    assert _must_be_awaited(entry)


def test_not_on_another_stream() -> None:
    entry = recorded(torch.Tensor.to, torch.randn(4), "meta", non_blocking=True)
    entry.on_side_stream = True
    assert _must_be_awaited(entry)


def test_what_goes_to_the_host_must_be_waited_for() -> None:
    recorder = Recorder()
    args, kwargs = (torch.zeros(4), torch.zeros(4, device="meta")), {"non_blocking": True}
    entry = recorder.called(torch.Tensor.copy_, args, kwargs, sys._getframe())
    assert entry is not None
    assert _asynchronous(entry)
    assert _must_be_awaited(entry)


def test_a_copy_on_one_device_is_none() -> None:
    assert not _asynchronous(recorded(torch.Tensor.to, torch.zeros(4), torch.float64, non_blocking=True))
    assert not _asynchronous(recorded(torch.Tensor.copy_, torch.zeros(4), torch.ones(4)))
