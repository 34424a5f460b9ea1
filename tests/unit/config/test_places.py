"""Where a key was set: the line of the file, the variable, or the option."""

from __future__ import annotations

from pathlib import Path

import pytest

from babelgate.config.places import place_of

FILE = """\
port: 1
brokers:
  a: redis://h
  b: {url: 'redis://h',
      required: perhaps}
queues:
  orders: {broker: a}
  orders.eu:
    broker: nowhere
auth:
  tokens:
  - name: x
    sha256: y
  - name: z
"""


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("port", 1),
        ("brokers.a", 3),
        # The short form of a broker has no key of its own for the URL.
        ("brokers.a.url", 3),
        ("brokers.b.required", 5),
        ("queues.orders.broker", 7),
        ("queues.orders.eu.broker", 9),
        ("queues.orders.eu.lease_seconds", 8),
        ("auth.tokens.1.name", 14),
        ("auth.tokens.1.sha256", 14),
        ("host", None),
        ("por", None),
    ],
)
def test_the_line_of_a_key_or_of_its_section(tmp_path: Path, key: str, line: int | None) -> None:
    file = tmp_path / "babelgate.yaml"
    file.write_text(FILE)
    assert place_of(key, file, {}) == (None if line is None else f"{file}, line {line}")


def test_a_variable_precedes_the_file_and_an_option_both(tmp_path: Path) -> None:
    file = tmp_path / "babelgate.yaml"
    file.write_text(FILE)
    environ = {
        "BABELGATE_PORT": "2",
        "BABELGATE_BROKERS__A": "redis://i",
        "BABELGATE_QUEUES__ORDERS__LEASE_SECONDS": "1",
    }
    assert place_of("port", file, environ) == "set by BABELGATE_PORT"
    assert place_of("port", file, environ, ["port"]) == "set by --port"
    assert place_of("log_level", None, {}, ["log_level"]) == "set by --log-level"
    assert place_of("brokers.a.url", file, environ) == "set by BABELGATE_BROKERS__A"
    assert place_of("queues.orders.lease_seconds", file, environ) == "set by BABELGATE_QUEUES__ORDERS__LEASE_SECONDS"
    # The section is the file's.
    assert place_of("queues.orders", file, environ) == f"{file}, line 7"


def test_an_unknown_section_names_the_variable_as_it_was_written() -> None:
    environ = {"BABELGATE_LIMIT__X": "1", "BABELGATE_PORT__X__FILE": "/nowhere"}
    assert place_of("limit", None, environ) == "set by BABELGATE_LIMIT__X"
    assert place_of("limits", None, environ) is None


def test_a_file_that_cannot_be_read_has_no_lines(tmp_path: Path) -> None:
    file = tmp_path / "babelgate.yaml"
    assert place_of("port", file, {}) is None
    file.write_text("port: [")
    assert place_of("port", file, {}) is None


def test_a_file_that_contains_itself_has_lines(tmp_path: Path) -> None:
    file = tmp_path / "babelgate.yaml"
    file.write_text("port: 1\nhosts: &all [a, *all]\n")
    assert place_of("hosts.1.0", file, {}) == f"{file}, line 2"
