"""Headers that a broker cannot carry are the client's mistake, with their place, before anything is written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from babelgate.config import settings
from babelgate.server.server import uvicorn_config
from tests.brokers import registry
from tests.brokers.rabbitmq.server import RabbitServer
from tests.harness.broker import Variant
from tests.harness.local import free_port
from tests.harness.sockets import serving
from tests.harness.ways import Served

MIB = 1_048_576
DRAFT: dict[str, Any] = {"job": "urn:babel:orders:created", "data": {}}

REFUSED = [
    ("amqp", {"n" * 256: "x"}, "/headers/" + "n" * 256, "256 bytes"),
    ("amqp", {"ok": "x", "ü" * 128: "x"}, "/headers/" + "ü" * 128, "256 bytes"),
    ("amqp", {"CC": "other"}, "/headers/CC", "the broker's own"),
    ("amqp", {"BCC": "other"}, "/headers/BCC", "the broker's own"),
    ("kafka", {"a\0b": "x"}, "/headers/a\0b", "U+0000"),
    ("servicebus", {"a": "v" * 128 * 1024}, "/headers", "at most 61440"),
]


NDJSON = {"Content-Type": "application/x-ndjson"}
BOTH_WAYS = pytest.mark.parametrize("direct", [True, False], ids=["direct", "application"])


@contextmanager
def gateway(
    directory: Path, url: str, route: Mapping[str, Any], direct: bool, **options: Any
) -> Iterator[httpx.Client]:
    """A client of a gateway on the broker ``url`` with ``options``; paths are relative to ``/queues``."""
    path = directory / "babelgate.yaml"
    config = {
        "brokers": {"far": {"url": url, "timeout_seconds": 30, **options}},
        "default": {**route, "broker": "far"},
        "limits": {"max_message_bytes": 16 * MIB, "max_request_bytes": 64 * MIB},
        "state_dir": str(directory),
    }
    path.write_text(yaml.safe_dump(config))
    found = settings.load(path, {})
    with (
        serving(uvicorn_config(Served(found, direct=direct).build, found)) as (host, port),
        httpx.Client(base_url=f"http://{host}:{port}/queues", timeout=120) as client,
    ):
        yield client


def refusal(result: Mapping[str, Any], place: str = "/headers") -> str:
    """The sentence of a refused header."""
    assert (result["status"], result["code"]) == (422, "header_unsupported"), result
    assert [error["pointer"] for error in result["errors"]] == [place]
    detail: str = result["detail"]
    return detail


@BOTH_WAYS
@pytest.mark.parametrize(("scheme", "headers", "place", "words"), REFUSED)
def test_it_is_refused_everywhere(
    tmp_path: Path, scheme: str, headers: Mapping[str, str], place: str, words: str, direct: bool
) -> None:
    """No broker is there: nothing is asked."""
    url = f"{scheme}://127.0.0.1:{free_port()}/"
    if scheme == "servicebus":
        url = "servicebus://sample.servicebus.windows.net"
    entry = {"envelope": DRAFT, "headers": headers}
    with gateway(tmp_path, url, {}, direct) as client:
        answer = client.post("/q/messages", json=entry)
        batch = client.post("/q/messages:batch", json=[entry])
        upload = client.post("/q/messages:batch", content=json.dumps(entry), headers=NDJSON)
        validated = client.post("/q/messages:validate", json=entry)
    for each in (answer.json(), batch.json()["results"][0], upload.json()["results"][0], validated.json()):
        assert words in refusal(each, place)


@BOTH_WAYS
@pytest.mark.parametrize("name", ["job", "trace_id"])
def test_a_member_of_a_wrapped_envelope_is_pointed_at_in_the_entry(tmp_path: Path, name: str, direct: bool) -> None:
    draft = DRAFT | {name: "n" * 300}
    with gateway(tmp_path, f"amqp://127.0.0.1:{free_port()}/", {}, direct) as client:
        for body, place in ((draft, f"/{name}"), ({"envelope": draft, "ordering_key": None}, f"/envelope/{name}")):
            answer = client.post("/q/messages", json=body)
            batch = client.post("/q/messages:batch", json=[body])
            upload = client.post("/q/messages:batch", content=json.dumps(body), headers=NDJSON)
            validated = client.post("/q/messages:validate", json=body)
            for each in (answer.json(), batch.json()["results"][0], upload.json()["results"][0], validated.json()):
                assert [error["pointer"] for error in each["errors"]] == [place]
                assert each["code"] == f"{name}_too_long"


LIMITS = {"rabbitmq": 8_192, "kafka": 1_114_112, "artemis": 490 * 1024, "pulsar": 5 * MIB, "sqs": 262_144}
"""The most bytes of a message, or of a frame of RabbitMQ and a record of the journal of Artemis, as they are here."""


@contextmanager
def limited(server: Any) -> Iterator[None]:
    """RabbitMQ's frames are smaller than by default for new connections."""
    with server.configured(frame_max=8_192) if isinstance(server, RabbitServer) else nullcontext():
        yield


@BOTH_WAYS
@pytest.mark.parametrize("variant", registry.params(each for each in registry.ORDINARY if each.name in LIMITS))
def test_what_depends_on_the_broker_is_refused_alone(
    tmp_path: Path, servers: registry.Servers, variant: Variant, queue: str, direct: bool
) -> None:
    """The sentence has the truth: so many bytes of headers are possible, and the other messages are stored once."""
    broker = servers.broker(variant, tmp_path)
    large = LIMITS[variant.name] + 100

    def entry(size: int) -> dict[str, Any]:
        return {"envelope": DRAFT, "headers": {"other": "x", "a": "v" * size}}

    options = {"max_body_bytes": LIMITS["sqs"]} if variant.name == "sqs" else {}
    several = [DRAFT, entry(large), DRAFT]
    stored = []
    with (
        limited(servers.server(variant.broker)),
        gateway(tmp_path, broker.url, broker.route("far"), direct, **options) as client,
    ):
        first = client.post(f"/{queue}/messages", json=DRAFT)
        assert first.status_code == 201, first.text
        stored.append(first.json()["id"])
        answer = client.post(f"/{queue}/messages", json=entry(large)).json()
        assert not answer["retryable"]
        if variant.name == "rabbitmq":
            validated = client.post(f"/{queue}/messages:validate", json=entry(large))
            assert refusal(validated.json()) == answer["detail"]
        found = re.search(r"together have (\d+) bytes, and at most (\d+) ", refusal(answer))
        assert found is not None, answer
        fitting = large - (int(found[1]) - int(found[2]))
        assert fitting > large - 4096, "beside headers there is little"
        text = "\n".join(map(json.dumps, several))
        for batch in (
            client.post(f"/{queue}/messages:batch", json=several),
            client.post(f"/{queue}/messages:batch", content=text, headers=NDJSON),
        ):
            before, refused, after = batch.json()["results"]
            assert refusal(refused) == answer["detail"]
            assert before["status"] == after["status"] == 201
            stored += before["id"], after["id"]
        largest = client.post(f"/{queue}/messages", json=entry(fitting))
        assert largest.status_code == 201, (fitting, largest.text)
        stored.append(largest.json()["id"])
        received: list[str] = []
        while len(received) < len(stored):
            messages = client.post(f"/{queue}/messages:receive", params={"max_messages": 10, "wait_seconds": 30}).json()
            received += [each["envelope"]["meta"]["id"] for each in messages["messages"]]
            client.post(
                f"/{queue}/messages:ack", json={"ack_tokens": [each["ack_token"] for each in messages["messages"]]}
            )
    assert sorted(received) == sorted(stored)


@BOTH_WAYS
@pytest.mark.rabbitmq
def test_a_frame_of_the_connection_is_the_measure(
    tmp_path: Path, rabbit: RabbitServer, queue: str, direct: bool
) -> None:
    """More than fits by default is possible where the server allows it. A dry run knows, too; without a connection it
    expects the default."""
    entry = {"envelope": DRAFT, "headers": {"a": "v" * 200_000}}
    with gateway(tmp_path, f"amqp://127.0.0.1:{free_port()}/", {}, direct) as client:
        assert "at most 131064 fit" in refusal(client.post(f"/{queue}/messages:validate", json=entry).json())
    with rabbit.configured(frame_max=1_048_576), gateway(tmp_path, rabbit.url(), {}, direct) as client:
        assert client.post(f"/{queue}/messages", json=entry).status_code == 201
        assert client.post(f"/{queue}/messages:validate", json=entry).status_code == 200


@BOTH_WAYS
@pytest.mark.rabbitmq
def test_the_headers_of_a_job(tmp_path: Path, rabbit: RabbitServer, queue: str, direct: bool) -> None:
    """They come from members of the job. It has no member of that name, so that the whole job is pointed at."""
    job = {"type": "a", "args": [], "tags": ["t" * 2_000], "meta": {"tracestate": "s" * 2_000}}
    plain = {"type": "a", "args": []}
    media = {"Content-Type": "application/openjobspec+json"}
    with (
        rabbit.configured(frame_max=4_096),
        gateway(tmp_path, rabbit.url(), {"profile": "ojs"}, direct) as client,
    ):
        assert client.post(f"/{queue}/messages", json=plain, headers=media).status_code == 201
        answer = client.post(f"/{queue}/messages", json=job, headers=media)
        batch = client.post(f"/{queue}/messages:batch", json=[plain, job, plain], headers=media)
        validated = client.post(f"/{queue}/messages:validate", json=job, headers=media)
        long = client.post(f"/{queue}/messages", json=plain | {"type": "t" * 300}, headers=media)
    before, refused, after = batch.json()["results"]
    assert before["status"] == after["status"] == 201
    for each in (answer.json(), refused, validated.json()):
        assert "cannot carry the headers" in refusal(each, "")
    assert (long.json()["code"], long.json()["errors"][0]["pointer"]) == ("job_too_long", "/type")
