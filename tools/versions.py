"""The versions of Python, brokers and other programs that the tests run on, where the project's own files say them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from babelgate.brokers.redis.server import OLDEST

ROOT = Path(__file__).resolve().parents[1]

DEBIAN: Mapping[str, Mapping[str, str]] = {
    "bookworm": {"Python": "3.11", "SQLite": "3.40", "Redis": "7.0", "RabbitMQ": "3.10"},
    "trixie": {"Python": "3.13", "SQLite": "3.46", "Redis": "8.0", "Valkey": "8.1", "RabbitMQ": "4.0"},
}
"""What is in Debian's releases. All tests run on the first one; tests/newer/ runs suites on the second one, and
compares these versions with what is there."""

EVERY = "all tests"
_QUALITY = "[the examples of their page](pipeline/quality.md)"
NEWER = "suites in a root of Debian 13 (trixie)"


def rows() -> list[list[str]]:
    """Of each thing: its name, its versions, the tests on them, and a remark."""
    old, new = DEBIAN.values()
    oldest = ".".join(map(str, OLDEST))
    return [
        ["Python", old["Python"], EVERY, "3.11 is the oldest; other versions are not in the tests"],
        ["Python", new["Python"], NEWER, "units, HTTP, SQLite, and the suites of Redis, Valkey and RabbitMQ below"],
        ["SQLite", f"{old['SQLite']}, {new['SQLite']}", f"{EVERY}; {NEWER}", "that of Python"],
        ["Redis", old["Redis"], EVERY, f"before {oldest} the gateway refuses it; so it does a cluster"],
        ["Redis", new["Redis"], NEWER, ""],
        ["Valkey", new["Valkey"], NEWER, "use the broker for Redis, with a `redis://` URL"],
        ["RabbitMQ", old["RabbitMQ"], EVERY, "[what depends on the version](rabbitmq.md)"],
        ["RabbitMQ", new["RabbitMQ"], NEWER, "classic and quorum queues"],
        ["Amazon SQS", f"ElasticMQ {_of_pom('sqs')}", EVERY, "in the place of Amazon's service"],
        ["Amazon SQS", f"moto {_locked('moto')}", EVERY, "what ElasticMQ does not have"],
        ["Azure Service Bus", "–", EVERY, "on [an emulator](servicebus.md#the-emulator-of-this-repository)"],
        ["Apache Kafka", _of_pom("kafka"), EVERY, ""],
        ["Apache Pulsar", _found("tests/harness/archives.py", r"server-distribution:([\d.]+):"), EVERY, ""],
        ["ActiveMQ Artemis", _found("tests/brokers/artemis/pom.xml", r"<artemis.version>([\d.]+)<"), EVERY, ""],
        ["Apache Spark", _locked("pyspark"), "all tests of the pipeline", "on Python 3.11 and Java 17"],
        ["Soda", _locked("soda-duckdb", "quality"), _QUALITY, "the package `soda-duckdb`"],
        ["dbt", _locked("dbt-core", "quality"), _QUALITY, f"`dbt-duckdb` {_locked('dbt-duckdb', 'quality')}"],
    ]


def _of_pom(kind: str) -> str:
    """The version of a broker's first dependency."""
    return _found(f"tests/brokers/{kind}/pom.xml", r"<dependency>.*?<version>([\d.]+)<")


def _locked(name: str, lock: str = "dev") -> str:
    return _found(f"requirements-{lock}.txt", rf"^{name}==([\w.]+)")


def _found(name: str, pattern: str) -> str:
    found = re.search(pattern, (ROOT / name).read_text("utf-8"), re.M | re.S)
    if found is None:
        raise LookupError(f"{name} has no version as in {pattern}")
    return found[1]
