"""What needs a restart, what has changed, and that no secret is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from babelgate.config.changes import changed_keys, needs_restart, shown
from babelgate.config.differences import between
from babelgate.config.settings import Settings, load

SECRET = "whsec_UExBTlRFRHBsYW50ZWRwbGFudGVkcGxhbnRlZA=="
TLS = {"tls_cert": "x", "tls_key": "x"}
PUSH = {"url": "https://example.com/in", "headers": {"authorization": "PLANTED"}, "secrets": [SECRET]}
TOKEN = {"name": "shop", "sha256": "ab" * 32, "rights": {"*": ["send"]}}
BASE: dict[str, Any] = {
    "brokers": {
        "one": {"url": "redis://:PLANTED@127.0.0.1/0", "required": True},
        "two": {"url": "amqp://user:PLANTED@127.0.0.1/"},
    },
    "default": {"broker": "one"},
    "queues": {
        "hooks": {
            "broker": "two",
            "push": PUSH,
        }
    },
    "token_keys": [{"id": "a", "secret": "PLANTED and long enough to be one"}],
    "auth": {"tokens": [TOKEN]},
}


@pytest.fixture
def settings(tmp_path: Path) -> Any:
    def made(**changes: Any) -> Settings:
        path = tmp_path / "babelgate.yaml"
        path.write_text(yaml.safe_dump({**BASE, **changes}))
        return load(path, {})

    return made


def test_no_secret_is_shown(settings: Any) -> None:
    text = json.dumps(shown(settings()))
    assert "PLANTED" not in text
    assert SECRET not in text
    assert "ab" * 32 not in text
    assert json.loads(text)["default"]["lease_seconds"] == 60, "defaults are shown"


@pytest.mark.parametrize("query", ["sig=ab'PLANTED\"PLANTED", "sig=ab<PLANTED>", "PLANTED", "=PLANTED"])
def test_no_part_of_the_query_of_a_url_is_shown(settings: Any, query: str) -> None:
    push = {**PUSH, "url": f"https://example.com/in?{query}"}
    url = shown(settings(queues={"hooks": {"broker": "two", "push": push}}))["queues"]["hooks"]["push"]["url"]
    assert url.startswith("https://example.com/in?")
    assert "PLANTED" not in url


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({}, []),
        ({"port": 9_000, "workers": 2}, ["port", "workers"]),
        ({"log_level": "debug", "default": {"broker": "two"}, "cors": {"origins": ["https://a.example"]}}, []),
        ({"brokers": {**BASE["brokers"], "three": "sqlite:///three.db"}}, []),
        ({"brokers": {**BASE["brokers"], "one": "redis://127.0.0.1/1"}}, []),
        ({"brokers": {**BASE["brokers"], "one": {**BASE["brokers"]["one"], "required": False}}}, []),
        ({"auth": "none"}, ["auth"]),
        (
            {"auth": {"tokens": [{**TOKEN, "rights": {"*": ["listen"]}}, {**TOKEN, "name": "b", "sha256": "cd" * 32}]}},
            [],
        ),
        ({"auth": {**BASE["auth"], "made_tokens": {"enabled": False}}}, ["auth.made_tokens"]),
        (
            {"auth": {**BASE["auth"], "certificates": [{"san": "DNS:a", "rights": {}}]}, "tls_client_ca": "x", **TLS},
            ["tls_cert", "tls_key", "tls_client_ca"],
        ),
        ({"rate_limits": {"store": "one"}}, ["rate_limits.store"]),
        ({"rate_limits": {"identity": {"requests_per_second": 1}}}, []),
    ],
)
def test_what_needs_a_restart(settings: Any, changes: dict[str, Any], keys: list[str]) -> None:
    before, after = settings(), settings(**changes)
    assert needs_restart(before, after) == keys
    marked = [each.key for each in between(before, after) if each.restart]
    assert len(marked) >= len(keys)
    assert all(any(f"{key}.".startswith(f"{known}.") for known in keys) for key in marked), "config diff says the same"


def test_the_broker_that_counts_rates_stays(settings: Any) -> None:
    rates = {"rate_limits": {"store": "one"}}
    for change, keys in (({"required": False}, []), ({"url": "redis://127.0.0.1/1"}, ["brokers.one.url"])):
        brokers = {**BASE["brokers"], "one": {**BASE["brokers"]["one"], **change}}
        assert needs_restart(settings(**rates), settings(**rates, brokers=brokers)) == keys


@pytest.mark.parametrize(
    ("change", "keys"),
    [
        ({"required": False, "timeout_seconds": 7}, []),
        ({"url": "redis://:another@127.0.0.1/0"}, []),
        ({"url": "redis://127.0.0.1/1", "timeout_seconds": 7}, ["brokers.one.url"]),
    ],
)
def test_the_broker_that_keeps_all_idempotency_keys_stays_at_its_server(
    settings: Any, change: dict[str, Any], keys: list[str]
) -> None:
    named = {"idempotency": {"store": "one"}}
    brokers = {**BASE["brokers"], "one": {**BASE["brokers"]["one"], **change}}
    assert needs_restart(settings(**named), settings(**named, brokers=brokers)) == keys
    assert needs_restart(settings(), settings(brokers=brokers)) == [], "keys of each queue's own broker"


@pytest.mark.parametrize("later", [{"store": "two"}, {}])
def test_another_store_of_rates_and_none_need_a_restart(settings: Any, later: dict[str, Any]) -> None:
    brokers = {name: "redis://127.0.0.1/0" for name in ("one", "two")}
    before = settings(brokers=brokers, rate_limits={"store": "one"})
    assert needs_restart(before, settings(brokers=brokers, rate_limits=later)) == ["rate_limits.store"]


def test_keys_are_spelled_as_in_the_file(settings: Any) -> None:
    schemas = {"directory": "."}
    before, after = settings(schemas=schemas), settings(schemas=schemas, default={"broker": "one", "schema": "warn"})
    assert shown(after)["default"]["schema"] == "warn" and "schema_mode" not in shown(after)["default"]
    assert changed_keys(before, after) == ["default.schema"]
    assert [each.key for each in between(before, after)] == ["default.schema"]


def test_changed_keys_are_those_of_two_levels(settings: Any) -> None:
    push = {**PUSH, "headers": {"authorization": "another"}}
    after = settings(queues={"hooks": {"broker": "two", "push": push}}, log_level="debug")
    assert changed_keys(settings(), after) == ["queues.hooks", "log_level"]
