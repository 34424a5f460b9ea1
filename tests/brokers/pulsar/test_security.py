"""TLS, client certificates, tokens and OAuth 2.0 on a real server; what it refuses is a clear error."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from babelgate.brokers.binding import Outgoing, QueueStats
from babelgate.brokers.pulsar.binding import connect
from babelgate.clock import now_ms
from babelgate.errors import BrokerRejected, BrokerUnavailable
from tests.brokers.pulsar.harness import binding
from tests.brokers.pulsar.identity import SECRET_KEY, token, token_provider
from tests.brokers.pulsar.server import PulsarServer, pulsar_server
from tests.harness.local import certify, eventually, free_ports
from tests.harness.world import until

pytestmark = [pytest.mark.pulsar, pytest.mark.slow]

BODY = b'{"job":"urn:a","trace_id":"t","data":{},"meta":{"id":"i","schema_version":1},"attempts":0}'
_PROVIDERS = "org.apache.pulsar.broker.authentication.AuthenticationProvider"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    certify(folder)
    return folder


@pytest.fixture(scope="module")
def tls_ports() -> tuple[int, int]:
    """The port of the broker with TLS, and that of its admin interface."""
    service, web = free_ports(2)
    return service, web


@pytest.fixture(scope="module")
def guarded(certificates: Path, tls_ports: tuple[int, int]) -> Iterator[PulsarServer]:
    """A server that asks for a token or a certificate, with and without TLS. ``nobody`` has no rights there."""
    settings = {
        "authenticationEnabled": "true",
        "authenticationProviders": f"{_PROVIDERS}Token,{_PROVIDERS}Tls",
        "authenticationRefreshCheckSeconds": "5",
        "tokenSecretKey": "data:;base64," + base64.b64encode(SECRET_KEY).decode(),
        "authorizationEnabled": "true",
        # The certificate is that of ``localhost``.
        "superUserRoles": "admin,broker,shop,localhost",
        "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": f"token:{token('broker')}",
        "brokerServicePortTls": str(tls_ports[0]),
        "webServicePortTls": str(tls_ports[1]),
        "tlsCertificateFilePath": str(certificates / "server.crt"),
        "tlsKeyFilePath": str(certificates / "server.key"),
        "tlsTrustCertsFilePath": str(certificates / "ca.crt"),
    }
    with pulsar_server(settings, token("admin")) as running:
        yield running


@pytest.fixture
def secure(guarded: PulsarServer, tls_ports: tuple[int, int]) -> str:
    """The URL of the broker with TLS. The admin interface has TLS, too."""
    return f"pulsar+ssl://127.0.0.1:{tls_ports[0]}/?admin_url=https://127.0.0.1:{tls_ports[1]}"


async def assert_serves(url: str, options: Mapping[str, Any], queue: str) -> QueueStats:
    """A message can be published, received and acknowledged; the counts while it was leased."""
    async with binding(url, options) as opened:
        native = opened.native_queue(queue, {})
        await opened.ping()
        assert await opened.publish(native, [Outgoing(BODY)]) == [None]
        (delivery,) = await opened.reserve(native, 1, 30, 30)
        assert delivery.body == BODY
        stats = await opened.stats(native)
        assert await opened.ack(native, [delivery.handle]) == [None]
        assert (await opened.stats(native)).in_flight in (0, None)
        return stats


async def assert_refused(url: str, options: Mapping[str, Any], reason: str) -> None:
    """A start and a publish are refused for a ``reason`` with this text, and no error shows a secret."""
    refused = connect("pulsar", url, options, now_ms)
    native = refused.native_queue("orders", {})
    for call in (refused.open, lambda: refused.publish(native, [Outgoing(BODY)])):
        with pytest.raises(BrokerUnavailable) as error:
            await call()
        assert reason in error.value.reason
        assert "\n" not in error.value.reason
        assert not any(secret in str(error.value) for secret in ("secret", options.get("token", "secret")))
    await refused.close()


async def test_tls(secure: str, certificates: Path, queue: str) -> None:
    """The counts come from the admin interface, by the same certificate and token."""
    known = {"token": token("shop"), "ssl_ca_certs": str(certificates / "ca.crt")}
    assert (await assert_serves(secure, known, queue)).in_flight == 1
    await assert_serves(secure, {"token": token("shop"), "ssl_cert_reqs": "none"}, queue)


async def test_tls_needs_a_certificate_that_fits(secure: str, tmp_path: Path) -> None:
    certify(tmp_path)
    for options in ({}, {"ssl_ca_certs": str(tmp_path / "ca.crt")}):
        await assert_refused(secure, options, "certificate verify failed")
    await assert_refused(secure, {"ssl_ca_certs": str(tmp_path / "none.crt")}, "ssl_ca_certs: No such file")


async def test_tls_on_the_port_without(guarded: PulsarServer, certificates: Path) -> None:
    url = f"pulsar+ssl://127.0.0.1:{guarded.port}"
    await assert_refused(url, {"ssl_ca_certs": str(certificates / "ca.crt")}, "ConnectionResetError")


async def test_a_client_certificate(secure: str, certificates: Path, tmp_path: Path, queue: str) -> None:
    known = {"ssl_ca_certs": str(certificates / "ca.crt")}

    def ours(folder: Path) -> dict[str, str]:
        return {"ssl_certfile": str(folder / "server.crt"), "ssl_keyfile": str(folder / "server.key")}

    assert (await assert_serves(secure, known | ours(certificates), queue)).in_flight == 1
    await assert_refused(secure, known, "AuthenticationError")
    certify(tmp_path)
    await assert_refused(secure, known | ours(tmp_path), "ALERT")


async def test_a_token(guarded: PulsarServer, queue: str) -> None:
    stats = await assert_serves(guarded.url(), {"token": token("shop")}, queue)
    assert (stats.depth, stats.in_flight) == (0, 1)


@pytest.mark.parametrize(
    "given",
    [{}, {"token": "no.such.token"}, {"token": token("shop", key=b"x" * 32)}, {"token": token("shop", -60)}],
    ids=["none", "malformed", "forged", "expired"],
)
async def test_a_token_that_is_refused(guarded: PulsarServer, given: dict[str, str]) -> None:
    await assert_refused(guarded.url(), given, "AuthenticationError")


async def test_a_token_that_expires(guarded: PulsarServer, tmp_path: Path, queue: str) -> None:
    """It ends the connection, and what is leased there, unless the file that it is from has another by then."""
    file = tmp_path / "token"
    file.write_text(token("shop", 9) + "\n")
    async with (
        binding(guarded.url(), {"token_path": str(file)}) as refreshed,
        binding(guarded.url(), {"token": token("shop", 14)}) as ended,
    ):
        native, other = ended.native_queue(queue, {}), ended.native_queue(f"{queue}-other", {})
        assert await ended.publish(native, [Outgoing(BODY)] * 2) == [None, None]
        (kept,) = await refreshed.reserve(native, 1, 30, 30)
        (lost,) = await ended.reserve(native, 1, 30, 30)
        file.write_text(token("shop"))

        async def is_refused() -> bool:
            try:
                await ended.publish(other, [Outgoing(BODY)])
            except BrokerUnavailable as error:
                return "AuthenticationError" in error.reason
            return False

        await until(is_refused)
        await eventually(lambda: ended.outstanding(native, [lost.handle]) == [False])
        # The broker, which looks every five seconds, has found the first token of the file to be expired long ago.
        assert refreshed.outstanding(native, [kept.handle]) == [True]
        assert (await refreshed.stats(native)).in_flight == 1
        assert await refreshed.ack(native, [kept.handle]) == [None]
        (again,) = await refreshed.reserve(native, 1, 30, 30)
        assert await refreshed.ack(native, [again.handle]) == [None]


async def test_a_file_without_a_token(guarded: PulsarServer, tmp_path: Path) -> None:
    file = tmp_path / "token"
    await assert_refused(guarded.url(), {"token_path": str(file)}, "token_path: No such file or directory")
    file.write_text("")
    await assert_refused(guarded.url(), {"token_path": str(file)}, "AuthenticationError")


async def test_the_rights_to_produce_and_to_consume(guarded: PulsarServer, queue: str) -> None:
    """They are enough for everything, also for the counts."""
    path = "namespaces/public/default/permissions/worker"
    assert await asyncio.to_thread(guarded.admin, path, "POST", b'["produce", "consume"]') is not None
    given = {"token": token("worker")}

    async def is_granted() -> bool:
        async with binding(guarded.url(), given) as opened:
            with contextlib.suppress(BrokerRejected):
                return await opened.publish(opened.native_queue(f"{queue}-other", {}), [Outgoing(BODY)]) == [None]
        return False

    await until(is_granted)
    assert (await assert_serves(guarded.url(), given, queue)).in_flight == 1
    async with binding(guarded.url(), given) as opened:
        native = opened.native_queue(queue, {})
        assert await opened.publish(native, [Outgoing(BODY)]) == [None]
        assert [each.body for each in await opened.peek(native, 1)] == [BODY]
        assert await opened.purge(native) == 1
        assert await opened.publish_dead_letters(native, [Outgoing(BODY)]) == [None]
        (record,), _ = await opened.read_dead(native, None, 10)
        assert (await opened.remove_dead(native, [record], None))[0] == [True]
        assert queue in await opened.queues()


async def test_without_rights_every_call_is_refused(guarded: PulsarServer, queue: str) -> None:
    async with binding(guarded.url(), {"token": token("nobody")}) as opened:
        native = opened.native_queue(queue, {})
        await opened.ping()
        with pytest.raises(BrokerRejected, match="AuthorizationError"):
            await opened.publish(native, [Outgoing(BODY)])
        with pytest.raises(BrokerRejected, match="AuthorizationError"):
            await opened.reserve(native, 1, 0, 30)
        assert await opened.stats(native) == QueueStats()


def credentials(issuer_url: str, secret: str = "a secret") -> dict[str, str]:
    """The options of the client ``shop``."""
    return {"oauth2_issuer_url": issuer_url, "oauth2_client_id": "shop", "oauth2_client_secret": secret}


async def test_client_credentials(guarded: PulsarServer, queue: str) -> None:
    with token_provider() as provider:
        given = credentials(provider.url) | {"oauth2_audience": "urn:pulsar", "oauth2_scope": "queues"}
        stats = await assert_serves(guarded.url(), given, queue)
        assert stats.in_flight == 1
        assert {each["grant_type"] for each in provider.asked} == {"client_credentials"}
        assert {(each["audience"], each["scope"]) for each in provider.asked} == {("urn:pulsar", "queues")}


async def test_a_token_is_fetched_again_before_it_expires(guarded: PulsarServer, queue: str) -> None:
    """The broker asks each connection for a fresh one. What is leased stays leased."""
    with token_provider(lasts_seconds=8) as provider:
        async with binding(guarded.url(), credentials(provider.url)) as opened:
            native = opened.native_queue(queue, {})
            assert await opened.publish(native, [Outgoing(BODY)]) == [None]
            (delivery,) = await opened.reserve(native, 1, 30, 30)

            async def was_fetched_again() -> bool:
                return len(provider.asked) >= 6

            await until(was_fetched_again)
            assert opened.outstanding(native, [delivery.handle]) == [True]
            assert await opened.ack(native, [delivery.handle]) == [None]
            assert await opened.publish(native, [Outgoing(BODY)]) == [None]


async def test_credentials_that_the_provider_refuses(guarded: PulsarServer) -> None:
    with token_provider() as provider:
        await assert_refused(guarded.url(), credentials(provider.url, "another secret"), "no token of OAuth 2.0")
        await assert_refused(guarded.url(), credentials(f"{provider.url}/other"), "no token of OAuth 2.0")
        url = provider.url
    await assert_refused(guarded.url(), credentials(url), "no token of OAuth 2.0")
