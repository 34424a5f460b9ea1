"""A real Prometheus that scrapes what a test serves, and promtool, which checks its files."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.harness.ci import missing
from tests.harness.local import free_port

_READY_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One series of an instant query."""

    labels: Mapping[str, str]
    value: float


class Prometheus:
    """A ``prometheus`` on a directory and a port of its own.

    ``scrapes`` and ``rules`` are what ``scrape_configs`` and the groups of a rules file say. Targets are scraped every
    ``interval_seconds`` and have as long to answer; rules are evaluated every half second.
    """

    def __init__(
        self,
        directory: Path,
        scrapes: Sequence[Mapping[str, Any]],
        rules: Sequence[Mapping[str, Any]] = (),
        *,
        interval_seconds: float = 1,
    ) -> None:
        self.directory = directory
        self.port = free_port()
        interval = f"{round(interval_seconds * 1000)}ms"
        (directory / "rules.yaml").write_text(yaml.safe_dump({"groups": list(rules)}))
        config = {
            "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": "500ms"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": list(scrapes),
        }
        (directory / "prometheus.yaml").write_text(yaml.safe_dump(config))
        self._process: subprocess.Popen[bytes] | None = None
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=240)

    def start(self) -> None:
        """Start; returns when it answers queries. The first scrape comes up to five seconds later, rules sooner."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    program("prometheus"),
                    f"--config.file={self.directory}/prometheus.yaml",
                    f"--storage.tsdb.path={self.directory}/data",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                    "--log.level=warn",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + _READY_SECONDS
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise RuntimeError(f"prometheus did not start:\n{self._log.read_text('utf-8', 'replace')[-3000:]}")
            time.sleep(0.02)

    def close(self) -> None:
        """End it; idempotent."""
        self._client.close()
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def query(self, expression: str) -> list[Sample]:
        """The instant vector (or the scalar, as a sample without labels) of ``expression`` now."""
        data = self._get("query", {"query": expression})
        result = [{"metric": {}, "value": data["result"]}] if data["resultType"] == "scalar" else data["result"]
        return [Sample(each["metric"], float(each["value"][1])) for each in result]

    def value(self, expression: str) -> float:
        """The one value of ``expression``; 0 where there is no series."""
        samples = self.query(expression)
        assert len(samples) < 2, f"{expression} has {len(samples)} series"
        return samples[0].value if samples else 0.0

    def series(self, expression: str, start: float, end: float, step_seconds: float = 1) -> list[Mapping[str, str]]:
        """The labels of what a graph of ``expression`` shows between two times (Unix seconds)."""
        parameters = {"query": expression, "start": start, "end": end, "step": step_seconds}
        return [each["metric"] for each in self._get("query_range", parameters)["result"]]

    def firing(self) -> dict[str, list[Mapping[str, str]]]:
        """The labels of each alert that fires now, by the alert's name."""
        found: dict[str, list[Mapping[str, str]]] = {}
        for alert in self._get("alerts", {})["alerts"]:
            if alert["state"] == "firing":
                found.setdefault(alert["labels"]["alertname"], []).append(alert["labels"])
        return found

    def fired(self, since: float) -> set[str]:
        """The names of all alerts that have fired since a time (Unix seconds)."""
        found = self.series('ALERTS{alertstate="firing"}', since, time.time(), 0.5)
        return {labels["alertname"] for labels in found}

    def broken_rules(self) -> dict[str, str]:
        """What is wrong with each rule that could not be evaluated at its last turn."""
        groups = self._get("rules", {})["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        return {rule["name"]: rule["lastError"] for rule in rules if rule["health"] == "err"}

    def scrape_errors(self) -> list[str]:
        """What is wrong with each target at its last scrape."""
        return [target["lastError"] for target in self._get("targets", {})["activeTargets"] if target["lastError"]]

    @property
    def _log(self) -> Path:
        return self.directory / "prometheus.log"

    def _ready(self) -> bool:
        try:
            return self._client.get("/-/ready").status_code == 200
        except httpx.TransportError:
            return False

    def _get(self, what: str, parameters: Mapping[str, Any]) -> Any:
        answer = self._client.get(f"/api/v1/{what}", params=dict(parameters))
        body = answer.json()
        assert body["status"] == "success", body
        return body["data"]


def program(name: str) -> str:
    """The path of one of the programs of the system's package."""
    found = shutil.which(name)
    if found is None:
        missing(name, "install the system's package prometheus")
    return found


def promtool(*arguments: str | Path, cwd: Path | None = None, stdin: bytes = b"") -> str:
    """What ``promtool`` prints. Raises AssertionError with it when promtool is not content."""
    command = [program("promtool"), *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, input=stdin, capture_output=True, timeout=240)
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, said
    return said


@contextmanager
def prometheus(
    scrapes: Sequence[Mapping[str, Any]],
    rules: Sequence[Mapping[str, Any]] = (),
    *,
    interval_seconds: float = 1,
) -> Iterator[Prometheus]:
    """A running server in a directory that goes with it."""
    with tempfile.TemporaryDirectory(prefix="babelgate-prometheus-") as directory:
        server = Prometheus(Path(directory), scrapes, rules, interval_seconds=interval_seconds)
        try:
            server.start()
            yield server
        finally:
            server.close()
