"""Each command that needs an extra, without it: one line that says what to install, and exit status 2."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest
import yaml

from babelgate.brokers.registry import SCHEMES
from babelgate.pipeline.cli.main import COMMANDS
from tests.harness.program import Fork

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
MODULES = {
    "redis": ("redis", "hiredis"),
    "rabbitmq": ("aio_pika", "aiormq", "pamqp"),
    "sqs": ("aioboto3", "aiobotocore", "botocore", "aiohttp"),
    "servicebus": ("azure.servicebus", "aiohttp"),
    "azure": ("azure.identity",),
    "kafka": ("confluent_kafka",),
    "pulsar": ("google_crc32c", "lz4", "cramjam", "google.protobuf"),
    "artemis": ("proton", "cproton"),
    "otlp": ("opentelemetry.exporter",),
    "journal": ("fsspec", "s3fs"),
    "schemas": ("jsonschema_rs",),
    "openlineage": ("openlineage",),
    "spark": ("pyspark", "py4j", "pyarrow", "pandas", "vl_convert", "deltalake", "duckdb"),
}
"""What each extra installs."""
URLS = {
    "sqs": "sqs://eu-central-1",
    "sqs+http": "sqs+http://127.0.0.1:1/?region=eu-central-1",
    "servicebus": {
        "url": "servicebus://",
        "connection_string": "Endpoint=sb://example.net/;SharedAccessKeyName=a;SharedAccessKey=c2VjcmV0",
    },
}
"""A broker whose URL is not only a host and a port."""
LAKE = ["--lake", "lake"]
TARGET = [*LAKE, "--url", "http://127.0.0.1:1"]
PIPELINE = {
    "validate": ["in", *LAKE],
    "ingest": ["in", *LAKE],
    "compact": LAKE,
    "tables": LAKE,
    "maintain": LAKE,
    "erase": ["id", *LAKE],
    "metrics": LAKE,
    "report": [*LAKE, "--output", "report.html"],
    "message": ["id", *LAKE],
    "trace": ["id", *LAKE],
    "redrive": TARGET,
    "replay": TARGET,
    "backfill": ["in", *TARGET],
}


class Without:
    """Runs commands in ``directory`` without the modules of one extra."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def told(self, extra: str, *arguments: str, config: object = None, **variables: str) -> str:
        """The only line that the command prints, after checking that it says what to install."""
        (self._directory / "babelgate.yaml").write_text(yaml.safe_dump(config or {}))
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("BABELGATE_", "OTEL_", "AWS_"))} | variables
        streams = (Path(os.devnull), self._directory / "out", self._directory / "err")
        for each in streams[1:]:
            each.unlink(missing_ok=True)
        gone = ",".join(MODULES[extra])
        done = Fork("tests.harness.without", str(self._directory), gone, *arguments, environ=environ, streams=streams)
        status = done.wait(100)
        output, errors = (each.read_text() for each in streams[1:])
        assert errors.count("\n") == 1, errors
        (line,) = errors.splitlines()
        assert (status, output) == (2, ""), line
        assert f"install the extra {extra} with pip install '.[{extra}]' in the folder of babelgate's source" in line
        return line


@pytest.fixture
def without(tmp_path: Path) -> Without:
    return Without(tmp_path)


def test_each_extra_has_its_modules_here() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert MODULES.keys() == project["optional-dependencies"].keys() - {"dev"}
    assert PIPELINE.keys() == {command.name for command in COMMANDS}


@pytest.mark.parametrize("command", ["serve", "check-config"])
@pytest.mark.parametrize("scheme", [scheme for scheme, driver in SCHEMES.items() if driver.extra is not None])
def test_a_broker(without: Without, scheme: str, command: str) -> None:
    extra = SCHEMES[scheme].extra
    assert extra is not None
    url = URLS.get(scheme, f"{scheme}://127.0.0.1:1")
    config = {"brokers": {"main": url}, "default": {"broker": "main"}, "port": 0}
    line = without.told(extra, command, "--config", "babelgate.yaml", config=config)
    assert line.startswith("brokers.main: the client is not installed: ")


@pytest.mark.parametrize("command", ["serve", "check-config"])
def test_credentials_of_entra_id(without: Without, command: str) -> None:
    config = {"brokers": {"main": "servicebus://example.servicebus.windows.net"}, "default": {"broker": "main"}}
    line = without.told("azure", command, "--config", "babelgate.yaml", config=config)
    assert line.startswith("brokers.main.url: credentials of Microsoft Entra ID need ")


@pytest.mark.parametrize("command", ["serve", "check-config"])
def test_otlp(without: Without, command: str) -> None:
    line = without.told("otlp", command, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1")
    assert "OTLP is not installed: " in line


@pytest.mark.parametrize("command", ["serve", "check-config"])
def test_a_landing_place_elsewhere(without: Without, command: str) -> None:
    config = {"journal": {"landing": "s3://bucket/journal"}, "port": 0}
    line = without.told("journal", command, "--config", "babelgate.yaml", config=config)
    assert "needs the package fsspec: " in line


@pytest.mark.parametrize("command", ["serve", "check-config"])
def test_a_topic_as_landing_place(without: Without, command: str) -> None:
    config = {"journal": {"landing": "kafka://127.0.0.1:1/journal"}, "port": 0}
    line = without.told("kafka", command, "--config", "babelgate.yaml", config=config)
    assert line.startswith("journal.landing: the client of Kafka is not installed: ")


def test_ingest_from_a_topic(without: Without) -> None:
    line = without.told("kafka", "pipeline", "ingest", "kafka://127.0.0.1:1/journal", *LAKE)
    assert line.startswith("Error: the client of Kafka is not installed: ")


@pytest.mark.parametrize("command", ["serve", "check-config"])
def test_schemas_of_jobs(without: Without, tmp_path: Path, command: str) -> None:
    config = {"schemas": {"directory": str(tmp_path)}, "port": 0}
    line = without.told("schemas", command, "--config", "babelgate.yaml", config=config)
    assert "schemas need a library: " in line


def test_schemas_of_jobs_on_spark(without: Without, tmp_path: Path) -> None:
    line = without.told("schemas", "pipeline", "validate", *PIPELINE["validate"], "--schemas", str(tmp_path))
    assert "jsonschema_rs" in line


@pytest.mark.parametrize("command", PIPELINE)
def test_a_job_on_spark(without: Without, command: str) -> None:
    line = without.told("spark", "pipeline", command, *PIPELINE[command])
    lacking = "deltalake, pyarrow" if command in ("tables", "maintain", "erase") else "pyspark, py4j, pyarrow, pandas"
    assert line.startswith(f"Error: not installed here: {lacking}; ")


def test_the_page_of_a_report(without: Without, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODULES, "spark", ("vl_convert",))
    line = without.told("spark", "pipeline", "report", *PIPELINE["report"])
    assert line.startswith("Error: not installed here: vl_convert; ")
