"""SIGKILL at any moment leaves a run folder that can be read."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from workshop import Workshop, environment

from nanwatch.show.folder import incident_folders, read_incident, read_run, read_steps

KILLS = 12
TRAINING = """
    import os, sys, time
    import torch
    import nanwatch
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def train(folder):
        nanwatch.watch(model, optimizer, policy="skip", dir=folder)
        print("watching", flush=True)
        step = 0
        while True:
            optimizer.zero_grad()
            loss = model(torch.randn(2, 2)).square().mean()
            if step % 5 == 4:
                loss = (loss * 0 - 1).log()
            loss.backward()
            optimizer.step()
            step += 1

    for folder in sys.stdin:  # one watched child for each line: torch is imported once
        child = os.fork()
        if child == 0:
            train(folder.strip())
        print(child, flush=True)
        os.waitpid(child, 0)
        print("dead", flush=True)
"""


def check(folder: Path) -> tuple[int, int]:
    """How many steps and incidents are there, each of them whole."""
    if (folder / "run.json").exists():
        assert read_run(folder).policy == "skip"
    steps = 0
    path = folder / "steps-rank0.jsonl"
    if path.exists():
        numbers = [facts.step for facts in read_steps(path)]
        assert numbers == list(range(len(numbers)))
        steps = len(numbers)
    incidents = incident_folders(folder)
    for place in incidents:
        incident = read_incident(place)
        assert incident.birth.op == "aten.log.default"
        assert incident.step % 5 == 4
        assert (place / "repro.py").exists() and (place / "tensors.safetensors").exists()
    return steps, len(incidents)


def test_killed_at_random_moments(workshop: Workshop, tmp_path: Path) -> None:
    script = workshop.write("script.py", TRAINING)
    parent = subprocess.Popen(
        [sys.executable, str(script)],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert parent.stdin is not None and parent.stdout is not None
    chance = random.Random(0)
    seen = []
    until_the_first_incident = 0.0
    try:
        for turn in range(KILLS):
            folder = tmp_path / f"run{turn}"
            parent.stdin.write(f"{folder}\n")
            parent.stdin.flush()
            said = {parent.stdout.readline().strip(), parent.stdout.readline().strip()}
            child = int(next(iter(said - {"watching"})))
            if turn == 0:  # how long a moment is on this machine
                began = time.monotonic()
                while not incident_folders(folder) and time.monotonic() < began + 120:
                    time.sleep(0.01)
                until_the_first_incident = time.monotonic() - began
            else:
                time.sleep(chance.uniform(0, 4 * until_the_first_incident))
            os.kill(child, signal.SIGKILL)
            assert parent.stdout.readline() == "dead\n"
            seen.append(check(folder))
    finally:
        parent.kill()
        parent.wait()
    assert max(steps for steps, _ in seen) > 0, seen
    assert max(incidents for _, incidents in seen) > 0, seen


def test_a_killed_run_is_read_up_to_its_last_whole_line(workshop: Workshop) -> None:
    """Under `nanwatch run`: what was written a second ago is there."""
    workshop.write(
        "script.py",
        """
        import os, signal, time, torch
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(200):
            optimizer.zero_grad(); model(torch.randn(2, 2)).square().mean().backward(); optimizer.step()
            if step == 150:
                os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    done = workshop.watched("script.py")
    assert done.returncode == -signal.SIGKILL
    assert read_run(workshop.runs).command == ("nanwatch", "run", "script.py")
    steps = [facts.step for facts in read_steps(workshop.runs / "steps-rank0.jsonl")]
    assert steps == list(range(len(steps))) and len(steps) >= 64
    assert json.loads((workshop.runs / "run.json").read_text())["schema"] == 1
