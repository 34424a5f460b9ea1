"""The audit trail of real processes: over workers, kills and restarts, and its commands."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from babelgate.observe.audit.lines import files_of
from tests.harness.gateway import GatewayProcess
from tests.harness.local import wait_for

pytestmark = pytest.mark.slow


def babelgate(gateway: GatewayProcess, *arguments: str) -> tuple[int, list[dict[str, object]], str]:
    """The status of an audit command, what it printed as JSON, and its errors."""
    config = str(gateway.directory / "babelgate.yaml")
    done = subprocess.run(
        [sys.executable, "-m", "babelgate", "audit", *arguments, "--config", config, "--json"],
        env=gateway.environ | {"PYTHONPATH": str(gateway.root / "app")},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_every_answered_change_survives_the_kill_of_all_workers(tmp_path: Path) -> None:
    trail = tmp_path / "audit"
    section = {"directory": str(trail), "node": "gw", "file_bytes": 8_192}
    gateway = GatewayProcess(tmp_path, {"workers": 2, "audit": section})
    answered: list[str] = []

    def both_have_begun(starts: int) -> None:
        """Each worker has a chain, and writes its start before it serves; the other may be slower."""

        def have() -> bool:
            files = files_of(trail)
            texts = [path.read_bytes() for paths in files.values() for _, path in paths]
            return len(files) == 2 and sum(text.count(b'"kind":"start"') for text in texts) == starts

        wait_for(have, 100)

    enough = threading.Event()

    def change(number: int) -> None:
        count = 0
        try:
            with gateway.client() as client:
                while True:
                    queue = f"q-{number}-{count}"
                    client.post(f"queues/{queue}:resume").raise_for_status()
                    answered.append(queue)
                    count += 1
                    if len(answered) > 60:
                        enough.set()
        except httpx.HTTPError:
            return

    try:
        gateway.start()
        both_have_begun(2)
        threads = [threading.Thread(target=change, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        assert enough.wait(100)
        gateway.kill()
        for thread in threads:
            thread.join(100)
        with (trail / files_of(trail)["gw-0"][-1][1].name).open("ab") as file:
            # What a power cut leaves.
            file.write(b'{"seq":')
        gateway.start()
        both_have_begun(4)
        with gateway.client() as client:
            client.post("queues/last:purge").raise_for_status()
        gateway.stop()
        status, found, errors = babelgate(gateway, "check")
        assert (status, errors) == (0, "")
        assert {each["name"] for each in found} == {"gw-0", "gw-1"}
        assert sum(int(str(each["interruptions"])) for each in found) == 1
        _, shown, _ = babelgate(gateway, "show", "--kind", "operation")
        assert set(answered) <= {str(each["queue"]) for each in shown}
        assert [each["operation"] for each in babelgate(gateway, "show", "--queue", "last")[1]] == [
            "POST /queues/{queue}:purge"
        ]
        ends = [f"--expect={each['name']}={each['last']}:{each['hash']}" for each in found]
        assert babelgate(gateway, "check", *ends)[0] == 0
        first = files_of(trail)["gw-0"][0][1]
        first.write_bytes(first.read_bytes().replace(b'"kind":"start"', b'"kind":"stop"', 1))
        status, found, _ = babelgate(gateway, "check", *ends)
        problems = [each for each in found if each["type"] == "problem"]
        assert status == 1 and [(each["kind"], each["file"]) for each in problems] == [("changed", first.name)]
    finally:
        gateway.close()
