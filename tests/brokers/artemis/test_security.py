"""TLS, client certificates, passwords and rights on a real server; a refusal is a clear error, and loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from proton.utils import BlockingConnection

from babelgate.brokers.artemis.binding import connect
from babelgate.brokers.binding import Outgoing, QueueStats
from babelgate.clock import now_ms
from babelgate.errors import BrokerRejected, BrokerUnavailable
from tests.brokers.artemis.harness import attribute, binding
from tests.brokers.artemis.server import ArtemisServer
from tests.harness.local import certify, free_port, free_ports
from tests.harness.proxy import proxy
from tests.harness.world import until

pytestmark = pytest.mark.artemis

BODY = b'{"job":"urn:a","trace_id":"t","data":{},"meta":{"id":"i","schema_version":1},"attempts":0}'
_MODULES = "org.apache.activemq.artemis.spi.core.security.jaas"

_LOGINS = f"""
users {{ {_MODULES}.PropertiesLoginModule required
  org.apache.activemq.jaas.properties.user="users.properties"
  org.apache.activemq.jaas.properties.role="roles.properties"; }};
certificates {{ {_MODULES}.TextFileCertificateLoginModule required
  org.apache.activemq.jaas.textfiledn.user="subjects.properties"
  org.apache.activemq.jaas.textfiledn.role="roles.properties"; }};
"""

_EVERYBODY = "operators,workers,askers,readers"
_WRITERS = "operators,workers,askers"
_RIGHTS = {
    "#": {
        **{right: _EVERYBODY for right in ("createAddress", "createDurableQueue", "createNonDurableQueue")},
        **{right: _EVERYBODY for right in ("consume", "browse")},
        "send": _WRITERS,
    },
    "activemq.management": {"send": "operators,askers", "manage": "operators"},
    "reserved.#": {"send": "operators", "consume": "operators"},
}
"""Workers may not use the management address; askers may send to it, and get no answer; readers only consume."""

_USERS = {"operator": "operators", "worker": "workers", "asker": "askers", "reader": "readers"}


class Secured:
    """A server that asks who its clients are, with an acceptor for each way to say it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        certify(directory)
        pem = (directory / "server.key").read_text() + (directory / "server.crt").read_text()
        (directory / "server.pem").write_text(pem)
        files = {
            "login.config": _LOGINS,
            "users.properties": "".join(f"{name}=a secret\n" for name in _USERS),
            "roles.properties": "".join(f"{role}={name}\n" for name, role in _USERS.items()),
            "subjects.properties": "operator=CN=localhost\n",
        }
        for name, content in files.items():
            (directory / name).write_text(content)
        self.ca_file = str(directory / "ca.crt")
        self.plain, self.tls, self.certified = free_ports(3)
        tls = f"sslEnabled=true;keyStoreType=PEM;keyStorePath={directory}/server.pem"
        trust = f"needClientAuth=true;trustStoreType=PEMCA;trustStorePath={directory}/ca.crt"
        acceptors = {
            self.plain: "securityDomain=users;amqpMinLargeMessageSize=30000",
            self.tls: f"securityDomain=users;{tls}",
            self.certified: f"securityDomain=certificates;saslMechanisms=EXTERNAL;{tls};{trust}",
        }
        self.server = ArtemisServer(
            directory,
            acceptors="".join(
                f'<acceptor name="a{port}">tcp://127.0.0.1:{port}?protocols=AMQP;useEpoll=false;{more}</acceptor>'
                for port, more in acceptors.items()
            ),
            settings=_settings(),
            secured=True,
            arguments=[f"-Djava.security.auth.login.config={directory}/login.config"],
        )

    def url(self, user: str) -> str:
        """The URL of ``user``, without TLS."""
        return f"artemis://{user}:a%20secret@127.0.0.1:{self.plain}"


def _settings() -> str:
    granted = {
        match: "".join(f'<permission type="{right}" roles="{roles}"/>' for right, roles in rights.items())
        for match, rights in _RIGHTS.items()
    }
    matches = (f'<security-setting match="{match}">{rights}</security-setting>' for match, rights in granted.items())
    return f"<security-settings>{''.join(matches)}</security-settings>"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """The running server."""
    made = Secured(tmp_path_factory.mktemp("secured"))
    made.server.start()
    yield made
    made.server.kill()


async def assert_serves(url: str, options: Mapping[str, Any], queue: str) -> QueueStats:
    """A message can be published, looked at, received and acknowledged; the counts while it was leased."""
    async with binding(url, options) as opened:
        native = opened.native_queue(queue, {})
        await opened.ping()
        assert await opened.publish(native, [Outgoing(BODY)]) == [None]
        assert [each.body for each in await opened.peek(native, 1)] == [BODY]
        (delivery,) = await opened.reserve(native, 1, 30, 30)
        assert delivery.body == BODY
        stats = await opened.stats(native)
        assert await opened.ack(native, [delivery.handle]) == [None]
        assert await opened.reserve(native, 1, 0, 30) == []
        return stats


async def assert_refused(url: str, options: Mapping[str, Any], reason: str) -> None:
    """A start and a publish are refused for a ``reason`` with this text, and no error shows a secret."""
    refused = connect("artemis", url, options, now_ms)
    native = refused.native_queue("orders", {})
    for call in (refused.open, lambda: refused.publish(native, [Outgoing(BODY)])):
        with pytest.raises(BrokerUnavailable) as error:
            await call()
        assert reason in error.value.reason
        assert "secret" not in str(error.value)
    await refused.close()


async def test_tls(secured: Secured, queue: str) -> None:
    url = f"artemis+ssl://worker:a%20secret@127.0.0.1:{secured.tls}"
    await assert_serves(url, {"ssl_ca_certs": secured.ca_file}, queue)
    await assert_serves(url, {"ssl_cert_reqs": "none"}, queue)


async def test_tls_needs_a_certificate_that_fits(secured: Secured, tmp_path: Path) -> None:
    certify(tmp_path)
    url = f"artemis+ssl://worker:a%20secret@127.0.0.1:{secured.tls}"
    for options in ({}, {"ssl_ca_certs": str(tmp_path / "ca.crt")}):
        await assert_refused(url, options, "certificate verify failed")
    await assert_refused(url, {"ssl_ca_certs": str(tmp_path / "none.crt")}, "ssl_ca_certs: No such file")


async def test_a_client_certificate(secured: Secured, tmp_path: Path, queue: str) -> None:
    url = f"artemis+ssl://127.0.0.1:{secured.certified}"

    def ours(directory: Path) -> dict[str, str]:
        files = {"ssl_certfile": str(directory / "server.crt"), "ssl_keyfile": str(directory / "server.key")}
        return files | {"ssl_ca_certs": secured.ca_file}

    stats = await assert_serves(url, ours(secured.directory), queue)
    assert stats.in_flight == 1, "the certificate is that of an operator"
    certify(tmp_path)
    # The server refuses a certificate by an alert of TLS.
    await assert_refused(url, ours(tmp_path), "ALERT")
    await assert_refused(url, {"ssl_ca_certs": secured.ca_file}, "ALERT")


async def test_a_mechanism_that_the_server_does_not_offer(secured: Secured) -> None:
    ours = {"ssl_certfile": f"{secured.directory}/server.crt", "ssl_keyfile": f"{secured.directory}/server.key"}
    url = f"artemis+ssl://127.0.0.1:{secured.tls}"
    await assert_refused(url, {"ssl_ca_certs": secured.ca_file} | ours, "the login was refused")


async def test_a_password(secured: Secured, queue: str) -> None:
    stats = await assert_serves(secured.url("operator"), {}, queue)
    assert (stats.depth, stats.in_flight, stats.delayed, stats.dead) == (0, 1, 0, 0)


@pytest.mark.parametrize(
    "login", ["worker:another%20secret@", "nobody:a%20secret@", ""], ids=["wrong", "unknown", "none"]
)
async def test_a_login_that_is_refused(secured: Secured, login: str) -> None:
    await assert_refused(f"artemis://{login}127.0.0.1:{secured.plain}", {}, "the login was refused")


async def test_a_refusal_that_comes_in_parts(secured: Secured) -> None:
    """Artemis opens its end of the connection before it says why it closes it."""

    async def forward(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while part := await source.read(1):
            sink.write(part)
            await sink.drain()
            # The client reads it.
            await asyncio.sleep(0)
        sink.close()

    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        upstream_reader, upstream = await asyncio.open_connection("127.0.0.1", secured.plain)
        try:
            await asyncio.gather(forward(reader, upstream), forward(upstream_reader, writer), return_exceptions=True)
        finally:
            for each in (writer, upstream):
                each.transport.abort()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        await assert_refused(f"artemis://127.0.0.1:{port}", {}, "the login was refused")
        await asyncio.wait(tasks)
        # Sockets that were aborted are closed in the next turn.
        await asyncio.sleep(0)


@pytest.mark.parametrize("user", ["worker", "asker"])
async def test_without_the_right_to_manage_only_counts_are_unknown(secured: Secured, user: str, queue: str) -> None:
    assert await assert_serves(secured.url(user), {}, queue) == QueueStats()
    async with binding(secured.url(user)) as opened:
        native = opened.native_queue(queue, {})
        assert await opened.queues() == []
        assert await opened.warnings() == []
        assert await opened.delivery_limit(native) is None
        await opened.publish(native, [Outgoing(BODY), Outgoing(BODY, delay_seconds=600)])
        assert await opened.purge(native) == 1, "a delayed message can be removed by the management address only"
        assert await opened.publish_dead_letters(native, [Outgoing(BODY)]) == [None]
        (record,), _ = await opened.read_dead(native, None, 10)
        assert await opened.remove_dead(native, [record], None) == ([True], None)


async def test_a_limit_below_which_attempts_are_not_counted_is_warned_of(secured: Secured) -> None:
    async with binding(secured.url("operator")) as opened:
        (warning,) = await opened.warnings()
        assert "does not count the failed attempts of messages of 30000 bytes and more" in warning


def consumers(server: Secured) -> int:
    """How many the broker has, with that of this question."""
    address = f"amqp://operator:a%20secret@127.0.0.1:{server.plain}"
    connection = BlockingConnection(address, timeout=60, allowed_mechs="PLAIN")
    try:
        return attribute(connection, "broker", "TotalConsumerCount")
    finally:
        connection.close()


async def test_a_denied_question_leaves_no_link_behind(secured: Secured, queue: str) -> None:
    async def alone() -> bool:
        return await asyncio.to_thread(consumers, secured) == 1

    await until(alone)
    async with binding(secured.url("asker")) as opened:
        assert await opened.stats(opened.native_queue(queue, {})) == QueueStats()
        await until(alone)


async def test_without_the_right_to_send_nothing_is_lost(secured: Secured, queue: str) -> None:
    async with binding(secured.url("worker")) as worker, binding(secured.url("reader")) as reader:
        native = worker.native_queue(queue, {})
        await worker.publish(native, [Outgoing(BODY)])
        for refused in (reader.publish, reader.publish_dead_letters):
            with pytest.raises(BrokerRejected, match="reader does not have permission='SEND'"):
                await refused(native, [Outgoing(BODY)])
        (delivery,) = await reader.reserve(native, 1, 30, 30)
        with pytest.raises(BrokerRejected, match="permission"):
            await reader.publish_dead_letters(native, [Outgoing(BODY)])
        assert reader.outstanding(native, [delivery.handle]) == [True]
        assert await reader.release(native, [delivery.handle], 0, failed=True) == [None]
        (again,) = await worker.reserve(native, 1, 30, 30)
        assert (again.body, again.delivery_count) == (BODY, 1)
        assert await worker.ack(native, [again.handle]) == [None]


async def test_a_queue_of_others_is_refused_by_itself(secured: Secured, queue: str) -> None:
    async with binding(secured.url("worker")) as worker, binding(secured.url("operator")) as operator:
        own, others = worker.native_queue(queue, {}), worker.native_queue(f"reserved.{queue}", {})
        await operator.publish(own, [Outgoing(BODY)])
        (delivery,) = await worker.reserve(own, 1, 30, 30)
        with pytest.raises(BrokerRejected, match="worker does not have permission='CREATE_ADDRESS'"):
            await worker.publish(others, [Outgoing(BODY)])
        with pytest.raises(BrokerRejected, match="worker does not have permission"):
            await worker.reserve(others, 1, 0, 30)
        assert await worker.ack(own, [delivery.handle]) == [None], "the connection stays"


async def test_the_next_host_serves_where_one_does_not_answer(secured: Secured, queue: str) -> None:
    await assert_serves(f"artemis://worker:a%20secret@127.0.0.1:{free_port()},127.0.0.1:{secured.plain}", {}, queue)


async def test_the_next_host_serves_when_one_is_lost(secured: Secured, queue: str) -> None:
    async with proxy("127.0.0.1", secured.plain) as first:
        url = f"artemis://worker:a%20secret@127.0.0.1:{first.port},127.0.0.1:{secured.plain}"
        async with binding(url) as opened:
            native = opened.native_queue(queue, {})
            assert await opened.publish(native, [Outgoing(BODY)]) == [None]
            (lost,) = await opened.reserve(native, 1, 30, 30)
            await first.stop()

            async def answers() -> bool:
                await opened.ping()
                return True

            await until(answers)
            assert opened.outstanding(native, [lost.handle]) == [False]
            (delivery,) = await opened.reserve(native, 1, 30, 30)
            assert await opened.ack(native, [delivery.handle]) == [None]
