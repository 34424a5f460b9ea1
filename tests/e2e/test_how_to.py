"""The pages of docs/how-to: their commands run as they are written, each page on a gateway with its configuration."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.brokers.redis.harness import redis_server
from tests.harness.gateway import GatewayProcess, gateway
from tests.harness.local import free_port, wait_for
from tests.harness.pages import GATEWAY_URL, shell
from tools.helm import documents, only, template

FOLDER = Path(__file__).resolve().parents[2] / "docs/how-to"
PAGES = sorted(FOLDER.glob("*.md"))
UNCHANGED: Mapping[str, Any] = {"brokers": {"local": "sqlite:///local.db"}, "default": {"broker": "local"}}
"""The configuration of a page without one."""
REDIS_URL = "redis://127.0.0.1:6379/0"


def _blocks(name: str, kind: str) -> list[str]:
    text = (FOLDER / f"{name}.md").read_text("utf-8")
    return [str(found) for found in re.findall(rf"^```{kind}\n(.*?)^```$", text, re.M | re.S)]


def _config(text: str, directory: Path) -> dict[str, Any]:
    """A configuration of a page, with its files in ``directory``."""
    loaded: dict[str, Any] = yaml.safe_load(text.replace("sqlite:///", f"sqlite:///{directory}/"))
    if "journal" in loaded:
        loaded["journal"]["landing"] = str(directory / loaded["journal"]["landing"])
    return loaded


@contextmanager
def _served(name: str, directory: Path) -> Iterator[GatewayProcess]:
    """A gateway with the first configuration of the page."""
    given = (_blocks(name, "yaml") or [yaml.safe_dump(UNCHANGED)])[0]
    with gateway(directory, _config(given, directory)) as process:
        yield process


def _run(name: str, directory: Path) -> list[str]:
    """What each block of the page prints."""
    with _served(name, directory) as process:
        return shell(_blocks(name, "sh"), process.url, directory)


def test_delayed(tmp_path: Path) -> None:
    delayed, due, again = _run("delayed", tmp_path)
    assert re.search(r"}\s*1$", delayed)
    assert due.endswith('{"order":2}')
    assert again.split() == ["1", "2"]


def test_ordered(tmp_path: Path) -> None:
    _, ordering, states = _run("ordered", tmp_path)
    assert ordering == '"fifo"'
    assert states.split() == ["placed", "paid", "sent"]


def test_poison(tmp_path: Path) -> None:
    tried, letter, deleted = _run("poison", tmp_path)
    assert re.search(r"}\s*0\s+1\s+\[\]$", tried)
    assert '"error": "lease expired"' in letter and '"file": "bomb.png"' in letter
    assert deleted.endswith("0")


def test_tenants(tmp_path: Path) -> None:
    (printed,) = _run("tenants", tmp_path)
    assert "refused" in printed
    assert printed.endswith("tenant.acme.orders")


def test_request_reply(tmp_path: Path) -> None:
    *_, answer = _run("request-reply", tmp_path)
    assert answer.startswith("42\n")


def test_large_bodies(tmp_path: Path) -> None:
    small, large = _run("large-bodies", tmp_path)
    assert '"queue":"pictures"' in small and '"queue":"reports"' in large


def test_find(tmp_path: Path) -> None:
    (printed,) = _run("find", tmp_path)
    for event in ("accepted", "delivered", "rejected", "dead_lettered"):
        assert event in printed


def test_rotate(tmp_path: Path) -> None:
    _, rotated, revoked = _run("rotate", tmp_path)
    assert rotated.count("orders.new") >= 2
    assert revoked.endswith("refused")


def test_limit(tmp_path: Path) -> None:
    (printed,) = _run("limit", tmp_path)
    assert re.search(r"}\s*429\s+rate_exceeded$", printed)


def test_pause(tmp_path: Path) -> None:
    _, paused, resumed = _run("pause", tmp_path)
    assert paused == '{"messages":[],"paused":true}'
    assert resumed == "ada@example.com"


def _run_with_another_configuration(name: str, process: GatewayProcess, directory: Path) -> list[str]:
    """What each block of the page prints; the file is the second configuration of the page from the second block on."""
    _, after = _blocks(name, "yaml")
    running = yaml.safe_load((directory / "babelgate.yaml").read_text())
    first, second, *others = _blocks(name, "sh")
    given = _config(after, directory)
    # It has a time-out for a busy machine, which stays.
    given["brokers"] |= running["brokers"]
    (directory / "edited.yaml").write_text(yaml.safe_dump(running | given, sort_keys=False))
    scripts = [first, f"cp edited.yaml babelgate.yaml\n{second}", *others]
    return shell(scripts, process.url, directory)


def test_move_broker(tmp_path: Path) -> None:
    with _served("move-broker", tmp_path) as process:
        old, new, found = _run_with_another_configuration("move-broker", process, tmp_path)
    assert old == "old"
    assert new.endswith("\nnew") and "queues.orders" in new
    assert sorted(found.split()) == ['{"order":1}', '{"order":2}']


def test_sizing(tmp_path: Path) -> None:
    (printed,) = _run("sizing", tmp_path)
    assert re.fullmatch(r"1000\s+\d+ µs of CPU a message", printed)


def test_publish_once(tmp_path: Path) -> None:
    ids, depth, refused = _run("publish-once", tmp_path)
    assert len(ids.split()) == 3 and len(set(ids.split())) == 1
    assert (depth, refused) == ("1", "idempotency_key_reused")


def test_webhooks_in(tmp_path: Path) -> None:
    twice, forged, received = _run("webhooks-in", tmp_path)
    first, second = twice.split()
    assert first == second
    assert forged == "invalid_signature"
    assert received == '["Speak like a human.",{"x-github-event":"ping"}]'


def test_webhooks_out(tmp_path: Path) -> None:
    (receiver,) = _blocks("webhooks-out", "python")
    port = free_port()
    program = [sys.executable, "-c", receiver.replace("9000", str(port))]
    with (
        _served("webhooks-out", tmp_path) as process,
        (tmp_path / "received.txt").open("wb") as received,
        subprocess.Popen(program, stdout=received) as running,
    ):
        try:
            scripts = _blocks("webhooks-out", "sh")
            (printed,) = shell(scripts, process.url, tmp_path, {"127.0.0.1:9000": f"127.0.0.1:{port}"})
        finally:
            running.kill()
    assert printed == "{'order': 7}"


def test_browsers(tmp_path: Path) -> None:
    allowed, refused = _run("browsers", tmp_path)
    assert re.fullmatch(r"access-control-allow-origin: https://shop.example\s+clicks.home", allowed, re.I)
    assert refused.split() == ["403", "403"]


def test_upgrade(tmp_path: Path) -> None:
    checked, ready = _run("upgrade", tmp_path)
    assert "babelgate" in checked
    assert '"status":"ok"' in ready


def test_back_up(tmp_path: Path) -> None:
    copied, restored, received = _blocks("back-up", "sh")
    with _served("back-up", tmp_path) as process:
        shell([copied], process.url, tmp_path)
        with process.client() as client:
            # It is acknowledged after the copy, and another one is published.
            (message,) = client.post("/queues/orders/messages:receive", json={"wait_seconds": 20}).json()["messages"]
            client.post("/queues/orders/messages:ack", json={"ack_tokens": [message["ack_token"]]})
            client.post("/queues/orders/messages", json={"job": "urn:shop:order", "data": {"order": 2}})
        assert process.stop() == 0
        shell([restored], process.url, tmp_path)
        process.start()
        found = shell([f"Q={GATEWAY_URL}/queues/orders\n{received}"], process.url, tmp_path)
        with process.client() as client:
            assert client.post("/queues/orders/messages:receive").json() == {"messages": []}
    assert found == ['{"order":1}']
    assert all(file.stat().st_mode & 0o077 == 0 for file in (tmp_path / "backup").iterdir())


def test_disaster(tmp_path: Path) -> None:
    with _served("disaster", tmp_path) as process:
        printed = _run_with_another_configuration("disaster", process, tmp_path)
    assert printed[0].splitlines()[-2:] == ["broker_unavailable", "true"]
    assert '{"broker":"lost","up":false}' in printed[0] and '{"broker":"local","up":true}' in printed[0]
    assert "queues.orders" in printed[1] and printed[1].endswith("local")


def test_kubernetes() -> None:
    (values,) = _blocks("kubernetes", "yaml")
    found = documents(template(yaml.safe_load(values)))
    assert only(found, "Deployment")["spec"]["replicas"] == 2
    (config,) = (
        yaml.safe_load(each["data"]["babelgate.yaml"]) for each in found if "babelgate.yaml" in each.get("data", {})
    )
    assert config["queues"] == {"orders": {"broker": "rabbit", "queue_type": "quorum"}}
    assert [each["kind"] for each in found if each["kind"] == "ServiceMonitor"]


def test_behind_a_cloud_load_balancer(tmp_path: Path) -> None:
    """A gateway that stops is not ready, and still serves what it has."""
    (text,) = _blocks("behind-a-cloud-load-balancer", "yaml")
    # A busy machine may need longer than the page says to see it.
    config = _config(text, tmp_path) | {"drain_seconds": 240}
    del config["host"]
    with gateway(tmp_path, config) as process, process.client(headers={"authorization": "Bearer shop-token"}) as client:
        process.terminate()
        wait_for(lambda: client.get("/readyz").status_code == 503)
        answer = client.post("/queues/orders/messages", json={"job": "urn:shop:order", "data": {}})
        assert answer.status_code == 201
        process.kill()


def test_migrate_from_a_client(tmp_path: Path) -> None:
    with redis_server() as server:
        config = _blocks("migrate-from-a-client", "yaml")[0].replace(REDIS_URL, server.url())
        program = _blocks("migrate-from-a-client", "python")[0].replace(REDIS_URL, server.url())
        with gateway(tmp_path, yaml.safe_load(config)) as process:
            subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
            received, published = shell(_blocks("migrate-from-a-client", "sh"), process.url, tmp_path)
    assert received.startswith('["urn:babel:emails:send","ada@example.com","python"]\n')
    assert published.endswith('{"to":"bob@example.com"}')


def test_migrate_from_dapr(tmp_path: Path) -> None:
    target, published = _run("migrate-from-dapr", tmp_path)
    assert target == '{"url":"http://127.0.0.1:9000/orders","body":"cloudevents"}'
    assert published == "orders"


def test_migrate_from_kafka_rest(tmp_path: Path) -> None:
    accepted, received = _run("migrate-from-kafka-rest", tmp_path)
    assert accepted == "2"
    assert received.split() == ["placed", "paid", "2"]


def test_migrate_from_outpost(tmp_path: Path) -> None:
    paused, published = _run("migrate-from-outpost", tmp_path)
    assert (paused, published) == ("true", "1")


def test_migrate_from_a_cloud_queue(tmp_path: Path) -> None:
    (settled,) = _run("migrate-from-a-cloud-queue", tmp_path)
    assert settled.split() == ["1", "1"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_short_says_for_whom_it_is_and_runs_here(page: Path) -> None:
    lines = page.read_text("utf-8").splitlines()
    beginning = " ".join(lines[2:6])
    assert "**For** " in beginning and "**In the end** " in beginning
    # Cells of tables have a limit of their own, and some names have no place to break.
    wide = [line for line in lines if len(line) > 100 and not line.startswith("|")]
    assert [line for line in wide if max(map(len, line.split())) < 80] == []
    assert len(lines) <= 80
    test = f"test_{page.stem.replace('-', '_')}"
    assert test in globals() or Path(__file__).with_name(f"{test}.py").exists()
