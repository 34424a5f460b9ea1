"""TLS, client certificates, SASL PLAIN, SCRAM and OAUTHBEARER on a real server; wrong credentials in a clear error."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from babelgate.brokers.binding import Outgoing
from babelgate.brokers.kafka.binding import connect
from babelgate.brokers.landing import landing_store, topic_source
from babelgate.clock import now_ms
from babelgate.errors import BrokerUnavailable
from tests.brokers.kafka.harness import STANDARD, binding, settings
from tests.brokers.kafka.server import KafkaServer, kafka
from tests.brokers.kafka.test_topics import segment
from tests.harness.journal_topic import create_topic, plain
from tests.harness.local import certify
from tests.harness.world import until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

BODY = b'{"job":"urn:a","trace_id":"t","data":{},"meta":{"id":"i","schema_version":1},"attempts":0}'
LISTENERS = {"TLS": "SSL", "CERTIFIED": "SSL", "PASSWORD": "SASL_PLAINTEXT", "BOTH": "SASL_SSL"}
_MODULES = "org.apache.kafka.common.security"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    certify(folder)
    (folder / "server.pem").write_text((folder / "server.key").read_text() + (folder / "server.crt").read_text())
    return folder


@pytest.fixture(scope="module")
def secured(certificates: Path) -> Iterator[KafkaServer]:
    """A server with a listener for each way to be trusted."""
    given = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates / "server.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates / "ca.crt"),
        "listener.name.certified.ssl.client.auth": "required",
        # Everyone may do what no test forbids.
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:ANONYMOUS",
    }
    modules = {
        "plain": f'{_MODULES}.plain.PlainLoginModule required user_shop="a secret";',
        "scram-sha-256": f"{_MODULES}.scram.ScramLoginModule required;",
        "scram-sha-512": f"{_MODULES}.scram.ScramLoginModule required;",
        "oauthbearer": f'{_MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="kafka";',
    }
    for name in ("password", "both"):
        given[f"listener.name.{name}.sasl.enabled.mechanisms"] = ",".join(modules).upper()
        for mechanism, module in modules.items():
            given[f"listener.name.{name}.{mechanism}.sasl.jaas.config"] = module
    with kafka(given, LISTENERS) as running:
        admin = AdminClient(settings(running.port))
        for each in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            credential = UserScramCredentialUpsertion("shop", ScramCredentialInfo(each, 4096), b"a secret")
            admin.alter_user_scram_credentials([credential])["shop"].result(60)
        yield running


@pytest.fixture(scope="module")
def token_url() -> Iterator[str]:
    """An endpoint that grants tokens to the client ``shop``, as an identity provider does."""

    def part(content: Mapping[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()

    class Tokens(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            wanted = "Basic " + base64.b64encode(b"shop:a secret").decode()
            now = int(time.time())
            claims = {"sub": "shop", "iat": now, "exp": now + 3600, "scope": "queues"}
            token = f"{part({'alg': 'none'})}.{part(claims)}."
            allowed = self.headers["Authorization"] == wanted
            answer = {"access_token": token, "token_type": "Bearer", "expires_in": 3600} if allowed else {}
            body = json.dumps(answer).encode()
            self.send_response(200 if allowed else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing is logged."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Tokens) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}/token"
        server.shutdown()
        serving.join()


def url_of(server: KafkaServer, listener: str) -> str:
    scheme = "kafka+ssl" if LISTENERS[listener].endswith("SSL") else "kafka"
    return f"{scheme}://127.0.0.1:{server.ports[listener]}"


async def assert_serves(url: str, options: Mapping[str, Any], queue: str) -> None:
    """Each client of the binding can do its work: to look, to write, to consume, to read."""
    async with binding(url, options) as opened:
        native = opened.native_queue(queue, STANDARD)

        async def answers() -> bool:
            await opened.ping()
            return True

        await until(answers)
        assert await opened.publish(native, [Outgoing(BODY, dedup_id="i")]) == [None]
        assert [each.body for each in await opened.peek(native, 1)] == [BODY]
        (delivery,) = await opened.reserve(native, 1, 30, 30)
        assert await opened.ack(native, [delivery.handle]) == [None]
        assert (await opened.stats(native)).depth == 0


async def refusal(url: str, options: Mapping[str, Any]) -> str:
    """The reason of the error of both, of the start and of a publish."""
    refused = connect("kafka", url, {"timeout_seconds": 3} | dict(options), now_ms)
    with pytest.raises(BrokerUnavailable) as opening:
        await refused.open()
    with pytest.raises(BrokerUnavailable) as publishing:
        await refused.publish(refused.native_queue("orders", {}), [Outgoing(BODY)])
    await refused.close()
    return f"{opening.value.reason} {publishing.value.reason}"


async def test_tls(secured: KafkaServer, certificates: Path, queue: str) -> None:
    url = url_of(secured, "TLS")
    await assert_serves(url, {"ssl_ca_certs": str(certificates / "ca.crt")}, queue)
    await assert_serves(url, {"ssl_cert_reqs": "none"}, queue)
    assert "certificate" in await refusal(url, {})


async def test_a_client_certificate(secured: KafkaServer, certificates: Path, queue: str) -> None:
    url = url_of(secured, "CERTIFIED")
    known = {"ssl_ca_certs": str(certificates / "ca.crt")}
    ours = {"ssl_certfile": str(certificates / "server.crt"), "ssl_keyfile": str(certificates / "server.key")}
    await assert_serves(url, known | ours, queue)
    assert "certificate" in await refusal(url, known)


@pytest.mark.parametrize("listener", ["PASSWORD", "BOTH"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_password(secured: KafkaServer, certificates: Path, queue: str, mechanism: str, listener: str) -> None:
    options: dict[str, Any] = {"sasl_mechanism": mechanism, "username": "shop", "password": "a secret"}
    if listener == "BOTH":
        options["ssl_ca_certs"] = str(certificates / "ca.crt")
    await assert_serves(url_of(secured, listener), options, queue)
    reason = await refusal(url_of(secured, listener), options | {"password": "another secret"})
    assert "uthentication failed" in reason
    assert "secret" not in reason


async def test_a_token(secured: KafkaServer, queue: str, token_url: str) -> None:
    options = {"sasl_mechanism": "OAUTHBEARER", "username": "shop", "password": "a secret", "oauth_scope": "queues"}
    url = url_of(secured, "PASSWORD")
    await assert_serves(url, options | {"oauth_token_url": token_url}, queue)
    reason = await refusal(url, options | {"password": "another secret", "oauth_token_url": token_url})
    assert "another secret" not in reason


@pytest.mark.parametrize(
    ("listener", "mechanism"),
    [("PASSWORD", "PLAIN"), ("BOTH", "SCRAM-SHA-512"), ("PASSWORD", "OAUTHBEARER"), ("CERTIFIED", None)],
)
def test_a_journal_lands_and_is_read_without_a_right_on_a_group(
    secured: KafkaServer,
    certificates: Path,
    token_url: str,
    queue: str,
    tmp_path: Path,
    listener: str,
    mechanism: str | None,
) -> None:
    """A gateway has all in one URL; who reads may give the password apart."""
    create_topic(secured.port, queue)
    resource = ResourceType.GROUP, "babelgate-journal", ResourcePatternType.LITERAL
    forbidden = AclBinding(*resource, "User:shop", "*", AclOperation.ALL, AclPermissionType.DENY)
    admin = AdminClient(settings(secured.port))
    admin.create_acls([forbidden])[forbidden].result(60)
    query: dict[str, str] = {}
    if LISTENERS[listener].endswith("SSL"):
        query["ssl_ca_certs"] = str(certificates / "ca.crt")
    if mechanism is None:
        query |= {"ssl_certfile": str(certificates / "server.crt"), "ssl_keyfile": str(certificates / "server.key")}
    else:
        query |= {"sasl_mechanism": mechanism, "username": "shop"}
    if mechanism == "OAUTHBEARER":
        query["oauth_token_url"] = token_url
    password = {} if mechanism is None else {"password": "a secret"}
    url = f"{url_of(secured, listener)}/{queue}"
    path = segment(tmp_path, 3)
    store = landing_store(f"{url}?{urlencode(query | password)}", "zstd")
    landed, _ = store.put(path, path.name)
    assert plain(store.read(landed, 0, 1)) == path.read_bytes()
    with closing(topic_source(f"{url}?{urlencode(query)}", password, "landing")) as source:
        found, after = source.read([0], source.bounds().ends, 10, 1000)
    assert ([each.offset for each in found], after) == ([0], [1])


@pytest.mark.parametrize("listener", ["PASSWORD", "BOTH"])
def test_a_journal_is_refused_in_words(
    secured: KafkaServer, certificates: Path, queue: str, tmp_path: Path, monkeypatch: Any, listener: str
) -> None:
    monkeypatch.setattr("babelgate.brokers.kafka.topics.SECONDS", 3.0)
    query = {"sasl_mechanism": "SCRAM-SHA-512", "username": "shop", "password": "another secret"}
    if listener == "BOTH":
        query["ssl_ca_certs"] = str(certificates / "ca.crt")
    url = f"{url_of(secured, listener)}/{queue}?{urlencode(query)}"
    path = segment(tmp_path, 3)
    with pytest.raises(BrokerUnavailable) as landing:
        landing_store(url, "zstd").put(path, path.name)
    with closing(topic_source(url, {}, "landing")) as source, pytest.raises(BrokerUnavailable) as reading:
        source.bounds()
    for refused in (landing, reading):
        assert "uthentication failed" in str(refused.value)
        assert "secret" not in str(refused.value)
