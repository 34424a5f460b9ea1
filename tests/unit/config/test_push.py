"""The keys of pushes: what is refused at start-up, and how it is said."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from babelgate.config.settings import Settings, load
from babelgate.errors import ConfigError
from babelgate.push.targets import PushTarget
from tests.harness.webhooks import SECRET

URL = "https://shop.example/hook"
PUSH: dict[str, Any] = {"url": URL, "secrets": [SECRET]}


def loaded(tmp_path: Path, push: Any, more: Any = None, queue: str = "orders") -> Settings:
    file = tmp_path / "babelgate.yaml"
    tree = {"brokers": {"local": "sqlite:///x.db"}, "queues": {queue: {"broker": "local", "push": push}}}
    file.write_text(yaml.safe_dump(tree | (more or {})))
    return load(file, {"HOOK_SECRET": SECRET})


def target(settings: Settings) -> PushTarget:
    push = settings.queues["orders"].push
    assert push is not None
    return push.target


def test_a_target_with_its_defaults(tmp_path: Path) -> None:
    found = target(
        loaded(tmp_path, PUSH | {"secrets": ["${env:HOOK_SECRET}"], "headers": {"Authorization": "Bearer x"}})
    )
    assert found == PushTarget(URL, (bytes(range(32)),), headers=(("authorization", "Bearer x"),))
    assert (found.concurrency, found.timeout_seconds, found.reject_statuses) == (10, 30, (410,))


@pytest.mark.parametrize(
    ("push", "key", "reason"),
    [
        ({"url": "ftp://shop.example/"}, "url", "must be a URL such as https://"),
        ({"url": "https://"}, "url", "must be a URL such as https://"),
        ({"url": "https://u:p@shop.example/"}, "url", "put credentials in headers"),
        ({"url": "https://shop.example/#x"}, "url", "neither a user nor a fragment"),
        ({"url": "https://shop.example:99999/"}, "url", "a valid host and port"),
        ({"url": "https://shöp.example/"}, "url", "printable ASCII"),
        ({"url": "https://shop.example/a b"}, "url", "printable ASCII"),
        ({"url": "http://shop.example/"}, "url", "unless push.allow_http is set"),
        ({"url": "https://127.0.0.1/"}, "url", "127.0.0.1 is a loopback address"),
        ({"url": "https://[::ffff:10.0.0.1]/"}, "url", "leads to a private address"),
        ({"secrets": []}, "secrets", "1 to 8 items"),
        ({"secrets": ["whsec_c2hvcnQ="]}, "secrets.0", "base64 of 24 to 64 random bytes"),
        ({"concurrency": 0}, "concurrency", "from 1 to 1000|1"),
        ({"body": "xml"}, "body", "envelope"),
        ({"body": "cloudevents_binary", "max_messages": 5}, "max_messages", "whose posts have one event"),
        ({"headers": {"Host": "x"}}, "headers", "the gateway sets the header host itself"),
        ({"headers": {"webhook-id": "x"}}, "headers", "the gateway sets the header webhook-id itself"),
        ({"headers": {"x": "a\r\nb: c"}}, "headers", "printable ASCII"),
        ({"headers": {"x y": "a"}}, "headers", "characters that HTTP allows"),
        ({"headers": {"x": "a", "X": "b"}}, "headers", "two headers have the same name"),
        ({"reject_statuses": [200]}, "reject_statuses.0", "300"),
        ({"secret": "x"}, "secret", "did you mean secrets"),
        ({"url": "https://a..b/"}, "url", "valid host"),
        ({"url": f"https://{'a' * 64}.example/"}, "url", "valid host"),
    ],
)
def test_a_bad_target_is_refused_by_its_key(tmp_path: Path, push: Any, key: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, PUSH | push)
    assert caught.value.key == f"queues.orders.push.{key}"
    assert re.search(reason, caught.value.reason), caught.value.reason
    for secret in ("c2hvcnQ", "u:p", "a\r\nb"):
        assert secret not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "push"),
    [
        ("http://127.0.0.1:9/", {"allow_http": True, "allow_private": True}),
        ("https://10.1.2.3/", {"networks": ["10.1.0.0/16"]}),
    ],
)
def test_the_guard_of_the_gateway_allows_more(tmp_path: Path, url: str, push: Any) -> None:
    assert target(loaded(tmp_path, PUSH | {"url": url}, {"push": push})).url == url


def test_metadata_services_are_not_private(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="link-local"):
        loaded(tmp_path, PUSH | {"url": "https://169.254.169.254/"}, {"push": {"allow_private": True}})


@pytest.mark.parametrize("queue", ["orders.*", "*"])
def test_a_pattern_has_no_push(tmp_path: Path, queue: str) -> None:
    with pytest.raises(ConfigError, match="needs the exact name of a queue") as caught:
        loaded(tmp_path, PUSH, queue=queue)
    assert caught.value.key == f"queues.{queue}.push"


def test_the_default_has_no_push(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"default\.push"):
        loaded(tmp_path, PUSH, {"default": {"broker": "local", "push": PUSH}})


def test_nothing_of_a_target_is_printed(tmp_path: Path) -> None:
    shown = repr(loaded(tmp_path, PUSH | {"url": "https://shop.example/hook?key=sesame", "headers": {"x": "sesame"}}))
    assert "sesame" not in shown
    assert SECRET not in shown
