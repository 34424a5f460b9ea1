"""``make up-local`` starts a gateway with brokers, Prometheus and a list of spans, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from tests.brokers.registry import HARNESSES
from tests.harness.gateway import is_alive
from tests.harness.local import eventually
from tests.harness.monitoring import queries
from tests.harness.pages import blocks, shell
from tools import up_local

ROOT = Path(__file__).resolve().parents[2]


class LocalSet:
    """The set with Redis, in a process group of its own; its files are in ``directory``."""

    def __init__(self, directory: Path) -> None:
        self.files = directory / "files"
        self.files.mkdir()
        self._output = directory / "output"
        command = [sys.executable, "-m", "tools.up_local", "redis", "--port", "0"]
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=os.environ | {"TMPDIR": str(self.files)},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self._output.read_text()

    async def prints(self, text: str) -> None:
        await eventually(lambda: text in self.output or self.process.poll() is not None)
        assert text in self.output, self.output

    def address(self, part: str) -> str:
        (line,) = (line for line in self.output.splitlines() if line.startswith(f"{part} "))
        return line.split()[-1]

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    async def ends(self) -> None:
        """Wait for its end. Nothing of it is left."""
        await eventually(lambda: self.process.poll() is not None)
        assert self.process.returncode == 0, self.output
        assert list(self.files.iterdir()) == []


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalSet]:
    started = LocalSet(tmp_path)
    yield started
    with contextlib.suppress(ProcessLookupError):
        os.killpg(started.process.pid, signal.SIGKILL)
    started.process.wait()


@pytest.mark.redis
@pytest.mark.prometheus
@pytest.mark.slow
async def test_it_shows_a_trace_a_panel_and_a_dead_letter_and_ctrl_c_ends_it(local: LocalSet, tmp_path: Path) -> None:
    """By the commands of docs/local.md."""
    await local.prints("\ntrace ")
    lettered, panel, _ = blocks("From nothing to a trace, a panel and a dead letter", "sh")
    there = {"http://127.0.0.1:9090": local.address("Prometheus")}

    def run(block: str) -> str:
        return shell([block], local.address("gateway"), tmp_path, there)[0]

    *_, answer = run(lettered).partition('{"dead_letters"')
    (letter,) = json.loads('{"dead_letters"' + answer)["dead_letters"]
    assert letter["error"] == "no such address"
    for span in ("PRODUCER  send demo", "CLIENT    receive demo", "CLIENT    reject demo"):
        await local.prints(f"{letter['trace_id'].replace('-', '')}  {span}")
    (asked,) = (query.expression for query in queries() if query.panel == "Dead letters by queue")
    assert panel.partition("query=")[2].partition("'")[0] in re.sub("{.*?}", "", asked)
    await eventually(lambda: '"queue":"demo"},"value":[' in run(panel))

    children = local.children()
    assert {"redis-server", "prometheus"} < {child.name() for child in children}
    # As a terminal does it: to each process of the group.
    os.killpg(local.process.pid, signal.SIGINT)
    await local.ends()
    assert not [child for child in children if is_alive(child.pid)]


@pytest.mark.redis
@pytest.mark.prometheus
async def test_it_can_be_ended_while_it_starts(local: LocalSet) -> None:
    """SIGTERM is what `make` sends when it is terminated."""
    await local.prints("Starting redis and Prometheus")
    local.process.terminate()
    await local.ends()
    assert "\ntrace " not in local.output


def test_an_unknown_broker_is_refused_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        up_local.main(["redis", "nats"])
    assert f"no such broker: nats; there are {', '.join(HARNESSES)}" in capsys.readouterr().err


def test_its_queues_have_the_names_of_those_in_containers() -> None:
    environments = [
        yaml.safe_load((ROOT / file).read_text().replace("!reset", ""))["services"]["gateway"]["environment"]
        for file in ("docker-compose.yml", "docker/servicebus.yml")
    ]
    prefix = "BABELGATE_QUEUES__"
    names = (name for each in environments for name in each if name.startswith(prefix))
    inside = {name.removeprefix(prefix).lower() for name in names}
    # In containers Redis has all other queues.
    assert {up_local.pattern(kind) for kind in HARNESSES if kind != "redis"} == inside
