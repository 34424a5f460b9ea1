"""Lookups of the broker that serves a topic, over TLS: a standalone server always answers with itself."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from babelgate.brokers.pulsar import wire
from babelgate.brokers.pulsar.client import PulsarClient
from babelgate.brokers.pulsar.url import settings_of
from babelgate.errors import BrokerUnavailable
from tests.harness.local import certify

TOPIC = "persistent://public/default/orders"
_REDIRECT, _CONNECT = 0, 1
_NOBODY = {"brokerServiceUrl": "pulsar://127.0.0.1:1"}
"""The address without TLS, which is of no use here."""


class LookupBroker:
    """Answers lookups with the fields ``answer``. ``proxied``: the broker that each connection asked for.

    ``authoritative``: whether each lookup came from a broker that knows.
    """

    def __init__(self) -> None:
        self.address = ""
        self.answer: dict[str, Any] = {}
        self.proxied: list[str] = []
        self.authoritative: list[bool] = []

    def leads_to(self, broker: LookupBroker, kind: int, **more: Any) -> None:
        """Let a lookup lead to ``broker``."""
        self.answer = {**_NOBODY, "brokerServiceUrlTls": f"pulsar+ssl://{broker.address}", "response": kind, **more}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one client."""
        try:
            while size := int.from_bytes(await reader.readexactly(4), "big"):
                kind, fields, _ = wire.read_command(await reader.readexactly(size))
                if kind == "connect":
                    self.proxied.append(fields.proxy_to_broker_url)
                    writer.write(wire.command("connected", server_version=b"broker", protocol_version=21))
                elif kind == "lookupTopic":
                    self.authoritative.append(fields.authoritative)
                    answer = {**self.answer, "request_id": fields.request_id}
                    writer.write(wire.command("lookupTopicResponse", **answer))
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def broker(directory: Path) -> AsyncIterator[LookupBroker]:
    """A broker with the certificate of ``directory``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.crt", directory / "server.key")
    made = LookupBroker()
    async with await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=context) as server:
        made.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield made


@asynccontextmanager
async def client_of(service: LookupBroker, directory: Path) -> AsyncIterator[PulsarClient]:
    """A client that knows ``service``."""
    options = {"ssl_ca_certs": str(directory / "ca.crt")}
    client = PulsarClient("main", settings_of(f"pulsar+ssl://{service.address}", options), 20)
    yield client
    await client.close()


async def test_a_lookup_is_redirected_to_the_addresses_with_tls(tmp_path: Path) -> None:
    await asyncio.to_thread(certify, tmp_path)
    async with broker(tmp_path) as service, broker(tmp_path) as other, broker(tmp_path) as owner:
        service.leads_to(other, _REDIRECT, authoritative=True)
        other.leads_to(owner, _CONNECT)
        async with client_of(service, tmp_path) as client:
            await client.owner(TOPIC)
            assert (service.authoritative, other.authoritative, owner.authoritative) == ([False], [True], [])
            assert (service.proxied, other.proxied, owner.proxied) == ([""], [""], [""])


async def test_a_proxy_leads_to_the_owner(tmp_path: Path) -> None:
    await asyncio.to_thread(certify, tmp_path)
    async with broker(tmp_path) as service, broker(tmp_path) as owner:
        service.leads_to(owner, _CONNECT, proxy_through_service_url=True)
        async with client_of(service, tmp_path) as client:
            await client.owner(TOPIC)
            assert (service.proxied, owner.proxied) == (["", owner.address], [])


async def test_an_owner_without_an_address_with_tls(tmp_path: Path) -> None:
    await asyncio.to_thread(certify, tmp_path)
    async with broker(tmp_path) as service:
        service.answer = {**_NOBODY, "response": _CONNECT}
        async with client_of(service, tmp_path) as client:
            with pytest.raises(BrokerUnavailable, match="has no address for such connections"):
                await client.owner(TOPIC)
