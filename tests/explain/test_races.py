"""Races with worker threads are told from what a race looks like, and from programs that wait."""

from __future__ import annotations

from collections.abc import Callable

from nanwatch.records import Incident

IncidentOf = Callable[..., Incident]

SCRATCH = """
    import time
    from concurrent.futures import ThreadPoolExecutor
    import torch
    from torch import nn

    class Shares(nn.Module):
        def __init__(self):
            super().__init__()
            self.scratch = torch.zeros(4)
            self.workers = ThreadPoolExecutor({workers})

        def work(self, x, before, after):
            time.sleep(before)
            out = self.scratch.zero_()
            time.sleep(after)
            return out.add_(x)

        def forward(self, x):
            first = self.workers.submit(self.work, x, 0.0, 0.0)
            {wait}
            second = self.workers.submit(self.work, x, 0.1, 0.4)
            made = first.result()
            time.sleep(0.2)
            return made / made.sum() + {second}

    model = Shares()
    with torch.no_grad():
        model(torch.{given}(4))
"""


def test_a_result_that_another_task_clears_is_a_race(incident_of: IncidentOf) -> None:
    source = SCRATCH.format(workers=2, wait="pass", second="second.result()", given="ones")
    incident = incident_of(source)
    assert (incident.cause.id, incident.cause.certainty) == ("data-race", "proved"), incident.cause
    assert [r.id for r in incident.remedies if r.verified] == ["one-worker-or-lock"]


def test_a_zero_that_no_task_made_is_none(incident_of: IncidentOf) -> None:
    source = SCRATCH.format(workers=1, wait="first.result()", second="second.result()", given="zeros")
    incident = incident_of(source)
    assert incident.cause.id == "divide-by-zero", incident.cause


STAGED = """
    import time
    from concurrent.futures import ThreadPoolExecutor
    import torch
    from torch import nn

    staging, link = torch.zeros(3, 2), ThreadPoolExecutor(1)

    class Stager:
        def __init__(self):
            self.staging = torch.zeros(3, 2)

        def send(self, number):
            time.sleep(0.3 if number == 2 else 0.0)
            return self.staging.clone()

    stager, model = Stager(), nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(3):
        stager.staging.copy_(torch.ones(3, 2){broken})
        sent = link.submit(stager.send, number)
        time.sleep(0.05)
        {wait}
        stager.staging.zero_()
        x = sent.result()
        x = x / x.norm(dim=1, keepdim=True)
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
"""


def test_a_buffer_cleared_under_a_task_is_a_race(incident_of: IncidentOf) -> None:
    incident = incident_of(STAGED.format(broken="", wait="pass"))
    assert incident.cause.id == "data-race" and "stager.staging.zero_()" in incident.cause.why, incident.cause
    assert "await-task" in {r.id for r in incident.remedies}


def test_a_buffer_cleared_after_its_task_is_none(incident_of: IncidentOf) -> None:
    incident = incident_of(STAGED.format(broken=" * (number < 2)", wait="sent.result()"))
    assert incident.cause.id == "divide-by-zero", incident.cause


CARRIED = """
    import threading
    import torch
    from torch import nn

    class Carries(nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = torch.ones(3)

        def forward(self, x):
            share = self.seen / self.seen.sum()
            self.seen = self.seen + x
            return share

    model, may_reset, may_end = Carries(), threading.Event(), threading.Event()

    def reset():
        may_reset.wait()
        model.seen = torch.zeros(3)
        was_reset.set()
        may_end.wait()

    was_reset = threading.Event()
    other = threading.Thread(target=reset)
    other.start()
    try:
        with torch.no_grad():
            for call in range(3):
                if call == 2:
                    {reset}
                model(torch.ones(3))
    finally:
        may_reset.set(), may_end.set()
        other.join()
"""


def test_a_state_that_another_thread_replaced_is_a_race(incident_of: IncidentOf) -> None:
    incident = incident_of(CARRIED.format(reset="may_reset.set(), was_reset.wait()"))
    assert incident.cause.id == "data-race" and incident.cause.why.startswith("seen,"), incident.cause


def test_a_state_that_this_thread_replaced_is_none(incident_of: IncidentOf) -> None:
    incident = incident_of(CARRIED.format(reset="model.seen = torch.zeros(3)"))
    assert incident.cause.id == "divide-by-zero", incident.cause


KEPT = """
    import torch

    class Ring:
        def __init__(self, slots):
            self.memory, self.used = torch.zeros(slots, 4, dtype=torch.{dtype}), 0

        def pack(self, tensor):
            slot = self.used % len(self.memory)
            self.used += 1
            self.memory[slot].copy_(tensor.detach())
            return slot

        def unpack(self, slot):
            return self.memory[slot].float()

    weight = torch.full((4,), {start}, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for step in range(2):
        ring = Ring({slots} if step else 8)
        with torch.autograd.graph.saved_tensors_hooks(ring.pack, ring.unpack):
            loss = (weight.log() * 0.0 * torch.relu(-weight)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_what_was_saved_and_came_back_as_something_else_is_stale(incident_of: IncidentOf) -> None:
    incident = incident_of(KEPT.format(dtype="float32", start="2.0", slots=1))
    assert (incident.cause.id, incident.cause.certainty) == ("stale-copy", "proved"), incident.cause
    assert [r.id for r in incident.remedies if r.verified] == ["own-buffer"]


def test_a_call_that_moves_its_own_state_is_no_transient_fault(incident_of: IncidentOf) -> None:
    incident = incident_of("""
        import torch
        from torch import nn

        class Reader(nn.Module):
            def forward(self, filled):
                out = 1.0 / filled.sum() * 0.0 + filled / filled.sum()
                filled.add_(1.0)
                return out

        model, filled = Reader(), torch.ones(3)
        with torch.no_grad():
            for call in range(3):
                if call == 2:
                    filled.zero_()
                model(filled)
    """)
    assert incident.cause.id == "divide-by-zero", incident.cause
