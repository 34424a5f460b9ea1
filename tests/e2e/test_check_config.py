"""``check-config`` refuses what ``serve`` refuses, by the same key, and leaves nothing behind."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.harness import program
from tests.harness.local import certify

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
OTLP = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
GRPC = OTLP | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
RABBIT = "brokers: {r: 'amqp://127.0.0.1:1'}\n"
KEYS = "token_keys: [{id: a, secret: a secret of thirty-two characters}]\n"

# Nobody can create a file in /proc, not even root, to whom its permissions allow it.
BAD = [
    ("nonsense: 1", {}, "nonsense"),
    ("[]", {}, "{file}"),
    ("port: 0x", {}, "port"),
    ("", {"BABELGATE_PROT": "1"}, "prot"),
    ("host: 0.0.0.0", {}, "host"),
    ("brokers: {a: 'nonsense://h'}", {}, "brokers.a.url"),
    ("queues: {a: {broker: b}}", {}, "queues.a.broker"),
    ("queues: {a: {broker: local, nonsense: 1}}", {}, "queues.a.nonsense"),
    ("brokers: {local: 'sqlite:///{directory}/missing/x.db'}", {}, "brokers.local.url"),
    ("brokers: {local: 'sqlite:///{file}/x.db'}", {}, "brokers.local.url"),
    ("brokers: {local: 'sqlite:///{bad_key}'}", {}, "brokers.local.url"),
    ("brokers: {local: 'sqlite:////proc/x.db'}", {}, "brokers.local.url"),
    (KEYS + "state_dir: {directory}/missing", {}, "brokers.local.url"),
    (RABBIT + "idempotency: {store: r}", {}, "idempotency.store"),
    ("state_dir: {file}/state", {}, "state_dir"),
    ("state_dir: {bad_key}", {}, "state_dir"),
    ("token_keys: [{id: a, secret: x}]", {}, "token_keys.0.secret"),
    ("tls_cert: {directory}/server.crt", {}, "tls_cert"),
    ("tls_cert: /nowhere\ntls_key: /nowhere", {}, "tls_cert"),
    ("tls_cert: {directory}/server.crt\ntls_key: {directory}/ca.key", {}, "tls_cert"),
    ("tls_cert: {file}\ntls_key: {directory}/server.key", {}, "tls_cert"),
    ("journal: {landing: '{file}/journal'}", {}, "journal.landing"),
    ("journal: {landing: /proc/journal}", {}, "journal.landing"),
    ("journal: {landing: '{directory}/landed'}", {}, "journal.landing"),
    ("journal: {landing: '{directory}/journal', open_directory: /proc/journal}", {}, "journal.open_directory"),
    ("journal: {landing: 'nonsense://bucket'}", {}, "journal.landing"),
    ("journal: {landing: 'kafka://127.0.0.1:1'}", {}, "journal.landing"),
    ("journal: {landing: 'kafka://127.0.0.1:1/journal', max_bytes: 10000000}", {}, "journal.max_bytes"),
    ("journal: {landing: '{directory}/journal', open_directory: '{file}/open'}", {}, "journal.open_directory"),
    ("console: {report: 's3a://lake/report.html'}", {}, "console.report"),
    ("peers: {addresses: ['127.0.0.1:1'], listen: '127.0.0.1:2'}", {}, "token_keys"),
    (KEYS + "peers: {addresses: ['127.0.0.1:1']}", {}, "peers.listen"),
    (KEYS + "peers: {listen: nonsense}", {}, "peers.listen"),
    (RABBIT + "peers: {directory: '{file}/peers'}", {}, "peers.directory"),
    (RABBIT + KEYS + "state_dir: {file}/state\nworkers: 2", {}, "peers.directory"),
    ("", {"OTEL_TRACES_EXPORTER": "foo"}, "OTEL_TRACES_EXPORTER"),
    ("", {"OTEL_METRICS_EXPORTER": "foo"}, "OTEL_METRICS_EXPORTER"),
    ("", OTLP | {"OTEL_EXPORTER_OTLP_PROTOCOL": "foo"}, "OTEL_EXPORTER_OTLP_PROTOCOL"),
    ("", OTLP | {"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "foo"}, "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"),
    ("", OTLP | {"OTEL_METRIC_EXPORT_INTERVAL": "soon"}, "OTEL_METRIC_EXPORT_INTERVAL"),
    ("", OTLP | {"OTEL_TRACES_SAMPLER": "foo"}, "OTEL_TRACES_SAMPLER"),
    (
        "",
        OTLP | {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "2"},
        "OTEL_TRACES_SAMPLER_ARG",
    ),
    ("", OTLP | {"OTEL_SPAN_LINK_COUNT_LIMIT": "x"}, "OTEL_SPAN_LINK_COUNT_LIMIT"),
    ("", OTLP | {"OTEL_BSP_MAX_QUEUE_SIZE": "0"}, "OTEL_BSP_…"),
    ("", GRPC | {"OTEL_EXPORTER_OTLP_COMPRESSION": "foo"}, "OTEL_EXPORTER_OTLP_COMPRESSION"),
    ("", GRPC | {"OTEL_EXPORTER_OTLP_METRICS_COMPRESSION": "foo"}, "OTEL_EXPORTER_OTLP_METRICS_COMPRESSION"),
]


def environment(directory: Path, variables: Mapping[str, str]) -> dict[str, str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("BABELGATE_", "OTEL_"))}
    return environ | {"BABELGATE_CONFIG": str(directory / "babelgate.yaml"), **variables}


def files(directory: Path) -> set[Path]:
    return set(directory.rglob("*"))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with certificates, a file that is none, a token key that is too short, and a place for a journal
    in which a directory of its own is a file."""
    directory = tmp_path_factory.mktemp("configuration")
    certify(directory)
    (directory / "file").write_text("x")
    (directory / "landed").mkdir()
    (directory / "landed" / ".incoming").write_text("x")
    (directory / "bad_key").mkdir()
    (directory / "bad_key" / "token.key").write_text("00")
    return directory


@pytest.mark.parametrize(("yaml", "variables", "key"), BAD)
def test_both_refuse_it_by_the_same_key(place: Path, yaml: str, variables: dict[str, str], key: str) -> None:
    named = {"{file}": place / "file", "{bad_key}": place / "bad_key", "{directory}": place}
    for name, path in named.items():
        yaml = yaml.replace(name, str(path))
    path = place / "babelgate.yaml"
    path.write_text(yaml if "state_dir" in yaml or yaml == "[]" else f"{yaml}\nstate_dir: {place}/state\n")
    before = files(place)
    environ = environment(place, variables)
    checked = program.run("check-config", "--offline", environ=environ)
    served = program.run("serve", environ=environ)
    for done in (checked, served):
        assert done.returncode == 1, done.stdout + done.stderr
        assert done.stderr.decode().startswith(f"{key.replace('{file}', str(path))}: "), done.stderr
    assert served.stderr == checked.stderr
    assert files(place) == before


@pytest.mark.parametrize(
    "variables",
    [
        {},
        OTLP | {"OTEL_BSP_MAX_QUEUE_SIZE": "1000", "OTEL_SPAN_LINK_COUNT_LIMIT": "10"},
        GRPC | {"OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"},
        {"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "console"},
        # Nothing is counted, so nobody reads the variable.
        {"BABELGATE_METRICS": "false", "OTEL_METRICS_EXPORTER": "foo"},
    ],
)
def test_what_is_good_is_accepted_and_makes_nothing(tmp_path: Path, variables: dict[str, str]) -> None:
    certify(tmp_path)
    lines = ["state_dir: {0}/state", "tls_cert: {0}/server.crt", "tls_key: {0}/server.key"]
    lines += ["journal: {{landing: '{0}/landing', open_directory: '{0}/open'}}", "peers: {{directory: '{0}/peers'}}"]
    (tmp_path / "babelgate.yaml").write_text("\n".join(lines).format(tmp_path))
    before = files(tmp_path)
    done = program.run("check-config", environ=environment(tmp_path, variables))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"BROKER ")
    assert files(tmp_path) == before


def test_a_certificate_that_ends_soon_is_warned_of_by_both(tmp_path: Path) -> None:
    """The one of the tests is valid for two days. ``serve`` ends here because its port is taken."""
    certify(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        lines = ["state_dir: {0}", "tls_cert: {0}/server.crt", "tls_key: {0}/server.key", "port: {1}", "default: null"]
        text = "\n".join(lines).format(tmp_path, taken.getsockname()[1])
        (tmp_path / "babelgate.yaml").write_text(text)
        environ = environment(tmp_path, {})
        checked = program.run("check-config", "--offline", "--strict", environ=environ)
        served = program.run("serve", environ=environ)
    warning = f"tls_cert: the certificate in {tmp_path}/server.crt expires on "
    assert (checked.returncode, served.returncode) == (1, 1)
    assert warning in checked.stderr.decode()
    assert warning in served.stdout.decode()


ORDERS = "queues:\n  '*': {broker: local}\n  orders.*: {broker: local}\n"


@pytest.mark.parametrize(
    ("yaml", "variables", "line"),
    [
        (
            "port: 1\nqueues:\n  a:\n    brokr: x\n",
            {},
            "queues.a.broker: is required; it must be a text ({file}, line 3)",
        ),
        ("brokers:\n  a: nonsense://h\n", {}, "({file}, line 2)"),
        ("queues:\n  a: {broker: local}\n  a: {broker: local}\n", {}, "a: duplicate key, repeated in line 3 of {file}"),
        (
            "port: 1\n",
            {"BABELGATE_LIMIT__X": "1"},
            "limit: unknown key; did you mean limits? (set by BABELGATE_LIMIT__X)",
        ),
        ("port: 1\n", {"BABELGATE_BROKERS__A": "nonsense://h"}, "(set by BABELGATE_BROKERS__A)"),
    ],
)
def test_an_error_says_where_its_key_was_set(tmp_path: Path, yaml: str, variables: dict[str, str], line: str) -> None:
    file = tmp_path / "babelgate.yaml"
    file.write_text(yaml)
    done = program.run("check-config", "--offline", environ=environment(tmp_path, variables))
    assert done.returncode == 1
    assert done.stderr.decode().splitlines()[0].endswith(line.replace("{file}", str(file))), done.stderr


def test_a_route_that_can_never_match_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "babelgate.yaml").write_text(ORDERS)
    environ = environment(tmp_path, {"BABELGATE_STATE_DIR": str(tmp_path)})
    done = program.run("check-config", "--offline", environ=environ)
    assert done.returncode == 0
    assert (
        "warning: queues.orders.* is never used, because queues.* before it matches all its queues"
        in done.stderr.decode()
    )
