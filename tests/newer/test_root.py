"""The root of Debian's next release leaves nothing behind on this machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psutil

from tests.harness import newer


def test_a_command_that_is_killed_leaves_neither_processes_nor_mounts() -> None:
    newer.need()
    with newer.entered("sh", "-c", "sleep 3600 & echo started; wait", environ={}) as line:
        with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None and running.stdout.readline() == "started\n"
            started = psutil.Process(running.pid).children(recursive=True)
            assert "sleep" in [process.name() for process in started]
            running.kill()
        _, alive = psutil.wait_procs(started, 60)
    assert alive == []
    assert ".brokers/newer/" not in Path("/proc/self/mounts").read_text()
