"""One trace from client to consumer, over real brokers, as a real OTLP receiver gets it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from babelqueue import BabelQueue
from babelqueue import otel as sdk
from babelqueue.pika_transport import PikaTransport
from babelqueue.redis_transport import RedisTransport
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import SpanKind, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from babelgate.brokers.registry import driver
from tests.brokers import registry
from tests.brokers.rabbitmq.server import RabbitServer
from tests.brokers.redis.harness import redis_server
from tests.harness.broker import Variant
from tests.harness.gateway import ForkedGateway, GatewayProcess, gateway
from tests.harness.local import free_ports
from tests.harness.otlp import OtlpReceiver, Span, otlp_receiver, tree

pytestmark = pytest.mark.slow

URN = "urn:babel:orders:created"
UUID = "7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b"
UNSENT = "the collector did not take them within 3 s"
KEYS = [{"id": "shared", "secret": "a secret that all the replicas share"}]


@pytest.fixture
def otlp() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as receiver:
        yield receiver


@pytest.fixture
def program(otlp: OtlpReceiver) -> Iterator[Tracer]:
    """The tracer of a program beside the gateway; nothing of it is global."""
    exporter = OTLPSpanExporter(endpoint=f"{otlp.http_url}/v1/traces")
    provider = TracerProvider(resource=Resource({"service.name": "program"}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider.get_tracer("test")
    provider.shutdown()


def publish(client: httpx.Client, queue: str, tracer: Tracer) -> dict[str, Any]:
    """Publish as a program does that traces its HTTP calls."""
    headers: dict[str, str] = {}
    with tracer.start_as_current_span("POST", kind=SpanKind.CLIENT):
        TraceContextTextMapPropagator().inject(headers)
        answer = client.post(f"queues/{queue}/messages", json={"job": URN, "data": {}}, headers=headers)
    receipt: dict[str, Any] = answer.raise_for_status().json()
    return receipt


def receive(client: httpx.Client, queue: str) -> dict[str, Any]:
    answer = client.post(f"queues/{queue}/messages:receive", json={"wait_seconds": 30})
    (message,) = answer.raise_for_status().json()["messages"]
    found: dict[str, Any] = message
    return found


def ack(client: httpx.Client, queue: str, token: str) -> None:
    client.post(f"queues/{queue}/messages:ack", json={"ack_tokens": [token]}).raise_for_status()


def is_one_trace(spans: list[Span], *names: str) -> dict[str, Span]:
    """The spans by name, all of one trace; printed, for whoever reads the test's output."""
    print(tree(spans))
    assert len({span.trace_id for span in spans}) == 1, tree(spans)
    by_name = {span.name: span for span in spans}
    assert set(names) <= by_name.keys(), tree(spans)
    return by_name


def is_below(child: Span, parent: Span) -> bool:
    return child.parent_id == parent.span_id and child.trace_id == parent.trace_id


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
@pytest.mark.parametrize("variant", registry.params(registry.WITH_SERVER))
def test_from_client_to_consumer_over_http(
    tmp_path: Path,
    servers: registry.Servers,
    variant: Variant,
    otlp: OtlpReceiver,
    program: Tracer,
    queue: str,
    protocol: str,
) -> None:
    broker = servers.broker(variant, tmp_path)
    route = {"broker": "main", **(broker.header_options or {})}
    config = {"brokers": {"main": {"url": broker.url, "timeout_seconds": 30}}, "default": route}
    with gateway(tmp_path, config, environ=otlp.environ(protocol)) as process, process.client() as client:
        receipt = publish(client, queue, program)
        message = receive(client, queue)
        ack(client, queue, message["ack_token"])
        assert process.stop() == 0
    spans = is_one_trace(otlp.wait_for(7), "POST", f"send {queue}", f"receive {queue}", f"ack {queue}")
    asked, sent = spans["POST /queues/{queue}/messages"], spans[f"send {queue}"]
    received, acked = spans[f"receive {queue}"], spans[f"ack {queue}"]
    assert is_below(asked, spans["POST"]) and is_below(sent, asked)
    assert is_below(spans["POST /queues/{queue}/messages:receive"], sent)
    assert is_below(received, spans["POST /queues/{queue}/messages:receive"])
    assert is_below(spans["POST /queues/{queue}/messages:ack"], sent)
    assert is_below(acked, spans["POST /queues/{queue}/messages:ack"])
    # A region is no address, but the URL of a queue has one.
    host = urlsplit(broker.url).hostname
    address = host if host == "127.0.0.1" else None
    if variant.broker.kind == "sqs":
        address = urlsplit(str(received.attributes["aws.sqs.queue.url"])).hostname
        assert address in ("127.0.0.1", "localhost")
    if variant.broker.kind == "kafka":
        assert "messaging.consumer.group.name" not in sent.attributes
        for span in (received, acked):
            assert span.attributes["messaging.consumer.group.name"] == "babelqueue"
            assert span.attributes["messaging.destination.partition.id"] == "0"
            assert span.attributes["messaging.kafka.offset"] == 0
    # The body's trace_id and the trace are one, because the gateway made it.
    assert receipt["trace_id"].replace("-", "") == sent.trace_id
    for span in (sent, received, acked):
        assert span.attributes["messaging.system"] == driver("main", broker.url).system
        assert span.attributes.get("server.address") == address
        assert span.attributes.get("aws.sqs.queue.url") == received.attributes.get("aws.sqs.queue.url")
        assert span.attributes["messaging.message.id"] == receipt["id"]
        assert span.resource["service.name"] == "babelgate"
        assert span.attributes["messaging.destination.name"] == queue
        # The default exchange has no name.
        routing_key = queue if variant.broker.kind == "rabbitmq" else None
        assert span.attributes.get("rabbitmq.destination.routing_key") == routing_key
    assert (sent.trace_id, sent.span_id) in {(link.trace_id, link.span_id) for link in received.links}
    assert otlp.protocols == {"http", "grpc"} if protocol == "grpc" else {"http"}


@pytest.mark.rabbitmq
def test_the_sdk_consumes_and_produces_in_the_same_trace(
    tmp_path: Path, rabbit: RabbitServer, otlp: OtlpReceiver, program: Tracer, queue: str
) -> None:
    with (
        gateway(tmp_path, {"brokers": {"rabbit": rabbit.url()}}, environ=otlp.environ()) as process,
        process.client() as client,
        ExitStack() as stack,
    ):
        publish(client, queue, program)
        transport = stack.enter_context(closing(PikaTransport(rabbit.url())))
        app = BabelQueue(transport=transport, queue=queue)
        app.register(URN, sdk.wrap_handler(program, lambda data, meta: None))
        app.consume(max_messages=1)
        spans = is_one_trace(otlp.wait_for(4), "POST", f"send {queue}", f"process {URN}")
        assert is_below(spans[f"process {URN}"], spans[f"send {queue}"])
        sdk.publish(program, app, URN, {})
        ack(client, queue, receive(client, queue)["ack_token"])
        (published,) = otlp.wait_for(1, name=f"publish {URN}")
        theirs = otlp.wait_for(5, trace_id=published.trace_id)
        assert is_below(is_one_trace(theirs)["POST /queues/{queue}/messages:receive"], published)


@pytest.mark.redis
def test_on_redis_the_trace_is_what_trace_id_gives(
    tmp_path: Path, otlp: OtlpReceiver, program: Tracer, queue: str
) -> None:
    with (
        redis_server() as redis,
        gateway(tmp_path, {"brokers": {"redis": redis.url()}}, environ=otlp.environ()) as process,
        process.client() as client,
        ExitStack() as stack,
    ):
        body = {"job": URN, "data": {}, "trace_id": UUID}
        client.post(f"queues/{queue}/messages", json=body).raise_for_status()
        message = receive(client, queue)
        assert message["headers"] == {"traceparent": f"00-{UUID.replace('-', '')}-980c512d6f4a8fba-01"}
        ack(client, queue, message["ack_token"])
        client.post(f"queues/{queue}/messages", json=body).raise_for_status()
        transport = stack.enter_context(closing(RedisTransport(redis.url())))
        app = BabelQueue(transport=transport, queue=queue)
        app.register(URN, sdk.wrap_handler(program, lambda data, meta: None))
        app.consume(max_messages=1)
        spans = otlp.wait_for(9)
        is_one_trace(spans)
        assert {span.trace_id for span in spans} == {UUID.replace("-", "")}
        outer = [span for span in spans if span.kind == "SERVER" or span.name == f"process {URN}"]
        assert {span.parent_id for span in outer} == {"980c512d6f4a8fba"}
        # Traced by a client: the draft's trace_id is that trace, and so is the consumer's.
        publish(client, queue, program)
        app.consume(max_messages=1)
        (asked,) = otlp.wait_for(1, name="POST")
        is_one_trace(otlp.wait_for(4, trace_id=asked.trace_id), f"process {URN}")


@pytest.mark.rabbitmq
def test_a_forwarded_settle_is_one_trace(tmp_path: Path, rabbit: RabbitServer, otlp: OtlpReceiver, queue: str) -> None:
    ports = free_ports(2)
    addresses = [f"127.0.0.1:{port}" for port in ports]
    with ExitStack() as stack:
        clients = []
        for name, listen in zip("ab", addresses, strict=True):
            (tmp_path / name).mkdir()
            config = {
                "brokers": {"rabbit": rabbit.url()},
                "token_keys": KEYS,
                "peers": {"listen": listen, "addresses": addresses},
            }
            environ = otlp.environ() | {"OTEL_SERVICE_NAME": name}
            process = ForkedGateway(tmp_path / name, config, environ=environ)
            stack.callback(process.close)
            clients.append(stack.enter_context(process.start().client()))
        owner, other = clients
        owner.post(f"queues/{queue}/messages", json={"job": URN, "data": {}}).raise_for_status()
        ack(other, queue, receive(owner, queue)["ack_token"])
        spans = otlp.wait_for(7)
        is_one_trace(spans)
        asked, done = sorted((span for span in spans if span.name == f"ack {queue}"), key=lambda span: span.began)
        assert (asked.resource["service.name"], done.resource["service.name"]) == ("b", "a")
        assert is_below(done, asked)


def spans_lost(process: GatewayProcess) -> dict[str, Any]:
    """What the log of a gateway that has ended says of the spans that it did not send."""
    (lost,) = [line for line in process.logged() if line["event"] == "spans lost at the end"]
    return lost


def test_a_collector_that_is_down_disturbs_nobody(tmp_path: Path, otlp: OtlpReceiver, queue: str) -> None:
    otlp.fails = True
    # The exporter repeats what is refused for longer than a stop may take.
    environ = otlp.environ("grpc") | {"OTEL_EXPORTER_OTLP_TIMEOUT": "600"}
    with gateway(tmp_path, environ=environ) as process, process.client() as client:
        for _ in range(20):
            client.post(f"queues/{queue}/messages", json={"job": URN, "data": {}}).raise_for_status()
        ack(client, queue, receive(client, queue)["ack_token"])
        assert process.stop() == 0
        assert spans_lost(process)["reason"] == UNSENT, "the end waited for the collector"
    assert not otlp.spans


def test_the_log_says_how_many_spans_a_hanging_collector_lost(tmp_path: Path, otlp: OtlpReceiver, queue: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        # Longer than the test: all spans wait for the end of the process.
        environ = otlp.environ() | {"OTEL_BSP_SCHEDULE_DELAY": "600000"}
        environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with gateway(tmp_path, environ=environ) as process, process.client() as client:
            for _ in range(5):
                client.post(f"queues/{queue}/messages", json={"job": URN, "data": {}}).raise_for_status()
            assert process.stop() == 0
            lost = spans_lost(process)
    # Each publish has the span of its request and its own.
    assert (lost["level"], lost["spans"], lost["reason"]) == ("warning", 10, UNSENT)


def test_an_exporter_that_is_unknown_is_refused_at_start(tmp_path: Path) -> None:
    process = GatewayProcess(tmp_path, environ={"OTEL_TRACES_EXPORTER": "jaeger"})
    with pytest.raises(AssertionError, match="OTEL_TRACES_EXPORTER"):
        process.start()
    process.close()
