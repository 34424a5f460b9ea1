"""Bodies of other senders that a route accepts: what becomes of them, and whose they are."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import threading
import time
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
import yaml
from standardwebhooks import Webhook

from babelgate.config import settings
from babelgate.errors import ConfigError
from babelgate.http.signatures import SignatureCheck
from babelgate.server.server import uvicorn_config
from tests.harness.local import authorities
from tests.harness.problems import problem
from tests.harness.sockets import serving
from tests.harness.ways import Served

SECRET = "It's a Secret to Everybody"
OTHER = "another secret of the sender"
WHSEC = "whsec_" + base64.b64encode(bytes(range(32))).decode()
JOB = "urn:babel:hooks:came"
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"


def hook(**keys: Any) -> dict[str, Any]:
    return {"content_type": JSON, "job": JOB, "into": "data"} | keys


GITHUB = {"header": "X-Hub-Signature-256", "prefix": "sha256=", "secrets": [OTHER, SECRET]}
STRIPE = {
    "header": "Stripe-Signature",
    "prefix": "v1=",
    "separator": ",",
    "timestamp_header": "Stripe-Signature",
    "timestamp_prefix": "t=",
    "payload": "{timestamp}.{body}",
    "secrets": [SECRET],
}
SLACK = {
    "header": "X-Slack-Signature",
    "prefix": "v0=",
    "timestamp_header": "X-Slack-Request-Timestamp",
    "payload": "v0:{timestamp}:{body}",
    "secrets": [SECRET],
}
SHOPIFY = {"header": "X-Shopify-Hmac-Sha256", "encoding": "base64", "secrets": [SECRET]}
STANDARD = {
    "header": "webhook-signature",
    "prefix": "v1,",
    "separator": " ",
    "encoding": "base64",
    "id_header": "webhook-id",
    "timestamp_header": "webhook-timestamp",
    "payload": "{id}.{timestamp}.{body}",
    "secrets": [WHSEC],
    "secret_encoding": "base64",
}


def signed_by_openssl(body: bytes, algorithm: str = "sha256", key: str = SECRET) -> bytes:
    """The HMAC of ``body`` as another program computes it."""
    command = ["openssl", "dgst", f"-{algorithm}", "-mac", "HMAC", "-macopt", f"hexkey:{key.encode().hex()}", "-binary"]
    return subprocess.run(command, input=body, capture_output=True, check=True).stdout


def github(body: bytes) -> dict[str, str]:
    return {"x-hub-signature-256": "sha256=" + signed_by_openssl(body).hex()}


def stripe(body: bytes, at: int = 0) -> dict[str, str]:
    at = at or int(time.time())
    right = signed_by_openssl(b"%d.%b" % (at, body)).hex()
    return {"stripe-signature": f"t={at},v1={'0' * 64},v1={right},v0={right}"}


def slack(body: bytes, at: int = 0) -> dict[str, str]:
    at = at or int(time.time())
    signature = signed_by_openssl(b"v0:%d:%b" % (at, body)).hex()
    return {"x-slack-signature": f"v0={signature}", "x-slack-request-timestamp": str(at)}


def shopify(body: bytes) -> dict[str, str]:
    return {"x-shopify-hmac-sha256": base64.b64encode(signed_by_openssl(body)).decode()}


def standard(body: bytes, at: float = 0) -> dict[str, str]:
    now = datetime.fromtimestamp(at or time.time(), UTC)
    signature = Webhook(WHSEC).sign("msg_1", now, body.decode())
    return {"webhook-id": "msg_1", "webhook-timestamp": str(int(now.timestamp())), "webhook-signature": signature}


SENDERS: dict[str, tuple[dict[str, Any], Any]] = {
    "github": (GITHUB, github),
    "stripe": (STRIPE, stripe),
    "slack": (SLACK, slack),
    "shopify": (SHOPIFY, shopify),
    "standard": (STANDARD, standard),
}
TIMED = {name: SENDERS[name] for name in ("stripe", "slack", "standard")}
BODY = b'{"price": 1.10, "id": 12345678901234567890123, "text": "\xc3\xa9\\u0000"}'


def tokens():
    return {
        "tokens": [{"name": "all", "sha256": hashlib.sha256(b"all").hexdigest(), "rights": {"*": ["send", "listen"]}}]
    }


@pytest.fixture
def opened(serve, connect):
    """A function of what the route of ``hooks`` accepts that gives a client without a token."""

    async def opened(*accept, **config):
        route = {"broker": "local", "accept": list(accept)}
        config = {"queues": {"hooks": route, "plain": {"broker": "local"}}, "auth": tokens(), **config}
        return await connect(await serve(**config))

    return opened


TOKEN = {"authorization": "Bearer all"}


async def send(client, body, kind=JSON, queue="hooks", **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await client.post(f"/queues/{queue}/messages", content=body, headers={"content-type": kind} | named)


async def received(client, queue="hooks"):
    answer = await client.post(f"/queues/{queue}/messages:receive", headers=TOKEN, json={"max_messages": 10})
    return [each["envelope"] for each in answer.json()["messages"]]


@pytest.mark.parametrize(
    ("kind", "body", "data"),
    [
        (FORM, b"a=1&b=%20x", {"body": "a=1&b=%20x"}),
        ("application/xml", "<a>é</a>".encode(), {"body": "<a>é</a>"}),
        ("application/soap+xml; charset=utf-8", b"<a/>", {"body": "<a/>"}),
        ("text/plain", b"", {"body": ""}),
        ("text/plain", b'"\\\x00\x01\n\xe2\x80\xa8', {"body": '"\\\x00\x01\n\u2028'}),
        ("text/plain; charset=latin-1", b"caf\xe9", {"body_base64": "Y2Fm6Q=="}),
        ("application/octet-stream", b"abc", {"body_base64": "YWJj"}),
        ("Image/PNG", b"\x89PNG\r\n", {"body_base64": base64.b64encode(b"\x89PNG\r\n").decode()}),
        ("application/json", b"[1, 2", {"body": "[1, 2"}),
        ("application/vnd.api+json", b'{"a":1}', {"body": '{"a":1}'}),
    ],
)
async def test_a_body_is_kept_as_it_came(opened, kind, body, data):
    client = await opened(hook(content_type=kind.partition(";")[0], into="body"))
    answer = await send(client, body, kind, **TOKEN)
    assert answer.status_code == 201, answer.text
    (envelope,) = await received(client)
    assert (envelope["job"], envelope["data"]) == (JOB, {"content_type": kind, **data})
    assert envelope["meta"]["id"] == answer.json()["id"]


async def test_an_object_becomes_the_data(opened):
    client = await opened(hook(headers=["X-GitHub-Event", "X-Missing"]))
    assert (await send(client, b" " + BODY + b"\n", X_GitHub_Event="push", X_Other="x", **TOKEN)).status_code == 201
    answer = await client.post("/queues/hooks/messages:receive", headers=TOKEN)
    # Numbers are those that were sent.
    assert '"data":{"price":1.10,"id":12345678901234567890123,' in answer.text
    assert answer.json()["messages"][0]["envelope"]["meta"]["ext"] == {"http": {"x-github-event": "push"}}


@pytest.mark.parametrize(
    ("body", "status", "code", "pointer"),
    [
        (b"", 400, "invalid_json", ""),
        (b"[1]", 400, "invalid_json", ""),
        (b'"a"', 400, "invalid_json", ""),
        (b'{"a":1}, "job": "x"', 400, "invalid_json", ""),
        (b'{"a":1}{"b":2}', 400, "invalid_json", ""),
        (b'{"a":1', 400, "invalid_json", ""),
        (b'{"a":"\xff"}', 400, "invalid_json", ""),
        (b'{\x00"a":1}', 400, "invalid_json", ""),
        (b'{"a":{"b":1e999}}', 422, "number_out_of_range", "/a/b"),
        (b'{"a":"\\ud800"}', 422, "lone_surrogate", "/a"),
        (b'{"a":' * 300 + b"1" + b"}" * 300, 422, "too_deep", ""),
    ],
)
async def test_what_is_no_object_is_refused(opened, body, status, code, pointer):
    client = await opened(hook())
    found = problem(await send(client, body, **TOKEN), status, code)
    assert [each["pointer"] for each in found["errors"]] == [pointer]
    assert await received(client) == []


async def test_members_of_a_body_are_no_options(opened):
    client = await opened(hook())
    data = {"job": "urn:x:y", "data": {}, "meta": {"id": "x"}, "delay_seconds": 99, "attempts": 3, "envelope": {}}
    assert (await send(client, json.dumps(data).encode(), **TOKEN)).status_code == 201
    (envelope,) = await received(client)
    assert (envelope["job"], envelope["data"], envelope["attempts"]) == (JOB, data, 0)


async def test_only_what_the_route_lists_is_accepted(opened):
    client = await opened(hook(content_type=FORM, into="body"), hook(content_type="text/xml", into="body"))
    for queue, kind in (("hooks", "text/plain"), ("plain", FORM), ("plain", "text/xml")):
        problem(await send(client, b"a=1", kind, queue, **TOKEN), 415, "unsupported_media_type")
    draft = json.dumps({"job": "urn:a:b", "data": {}}).encode()
    assert (await send(client, draft, **TOKEN)).status_code == 201
    problem(await send(client, b"a=1", FORM), 401, "unauthenticated")
    read_only = {"tokens": [{"name": "r", "sha256": hashlib.sha256(b"r").hexdigest(), "rights": {"*": ["listen"]}}]}
    client = await opened(hook(content_type=FORM, into="body"), auth=read_only)
    problem(await send(client, b"a=1", FORM, authorization="Bearer r"), 403, "forbidden")


async def test_other_forms_of_messages_are_still_such(opened):
    client = await opened(hook())
    draft = json.dumps({"job": "urn:a:b", "data": {}}).encode()
    assert (await send(client, draft, "application/vnd.babelqueue.envelope+json", **TOKEN)).status_code == 201
    event = {"ce_id": "1", "ce_source": "/s", "ce_type": "urn:babel:an:event", "ce_specversion": "1.0"}
    assert (await send(client, b"{}", **event, **TOKEN)).status_code == 201
    assert (await send(client, draft, **TOKEN)).status_code == 201
    assert sorted(each["job"] for each in await received(client)) == ["urn:a:b", "urn:babel:an:event", JOB]


@pytest.mark.parametrize("name", SENDERS)
async def test_a_signature_stands_for_a_token(opened, name):
    check, sign = SENDERS[name]
    client = await opened(hook(signature=check, auth="signature"))
    for body in (BODY, b'{"b":2}'):
        answer = await send(client, body, **sign(body))
        assert answer.status_code == 201, answer.text
    wrong = [
        (b'{"b":3}', sign(b'{"b":2}')),
        (b'{"b":2} ', sign(b'{"b":2}')),
        (b'{"b":2}', {}),
        *((b'{"b":2}', {key: value for key, value in sign(b'{"b":2}').items() if key != left}) for left in sign(b"{}")),
        *((b'{"b":2}', sign(b'{"b":2}') | {key: "garbage \xff"}) for key in sign(b"{}")),
        *((b'{"b":2}', sign(b'{"b":2}') | {key: ""}) for key in sign(b"{}")),
    ]
    for body, headers in wrong:
        raw = {key: value.encode("latin-1") for key, value in headers.items()}
        refused = problem(await send(client, body, **raw), 401, "invalid_signature")
        assert refused["errors"][0]["header"] in {check[key].lower() for key in check if key.endswith("header")}
    # A token needs the signature as well.
    problem(await send(client, b'{"b":2}', **TOKEN), 401, "invalid_signature")
    assert len(await received(client)) == 2


@pytest.mark.parametrize("name", TIMED)
@pytest.mark.parametrize("off", [-299, -290, 290, -310, 310, -86_400])
async def test_an_old_signature_is_refused(opened, name, off):
    check, sign = SENDERS[name]
    client = await opened(hook(signature=check, auth="signature"))
    if off == -299:
        off = -200
    answer = await send(client, BODY, **sign(BODY, int(time.time()) + off))
    assert answer.status_code == (201 if abs(off) < 300 else 401), answer.text


async def test_a_large_body_is_checked_in_a_thread(opened, monkeypatch):
    threads = []
    verify = SignatureCheck.verify

    def noted(*given: Any) -> None:
        threads.append(threading.current_thread())
        verify(*given)

    monkeypatch.setattr(SignatureCheck, "verify", noted)
    client = await opened(hook(signature=GITHUB, auth="signature"))
    for body in (b'{"n":"%b"}' % (b"x" * 100_000), BODY):
        assert (await send(client, body, **github(body))).status_code == 201
        problem(await send(client, body, **github(b"")), 401, "invalid_signature")
    assert [thread is threading.main_thread() for thread in threads] == [False, False, True, True]


def test_a_signature_check_does_not_show_its_secrets():
    assert repr(SignatureCheck(header="x-sig", secrets=[b"secret"])) == "SignatureCheck(header='x-sig')"


async def test_a_signature_may_be_in_addition_to_a_token(opened):
    client = await opened(hook(signature=GITHUB))
    problem(await send(client, BODY, **github(BODY)), 401, "unauthenticated")
    problem(await send(client, BODY, **TOKEN), 401, "invalid_signature")
    assert (await send(client, BODY, **github(BODY), **TOKEN)).status_code == 201


@pytest.mark.parametrize("algorithm", ["sha1", "sha256", "sha512"])
async def test_each_algorithm(opened, algorithm):
    check = {"header": "X-Sig", "secrets": [SECRET], "algorithm": algorithm}
    client = await opened(hook(signature=check, auth="signature"))
    signature = signed_by_openssl(BODY, algorithm).hex().upper()
    assert (await send(client, BODY, X_Sig=signature)).status_code == 201
    problem(await send(client, BODY, X_Sig=signature[:-2]), 401, "invalid_signature")


async def test_a_sender_without_a_token_can_do_nothing_else(opened):
    client = await opened(hook(signature=GITHUB, auth="signature"))
    signed = github(BODY)
    for path in ("messages:batch", "messages:receive", "messages:validate"):
        problem(await client.post(f"/queues/hooks/{path}", content=BODY, headers=signed), 401, "unauthenticated")
    problem(await send(client, BODY, queue="plain", **signed), 401, "unauthenticated")
    # What the route does not list is a message, which needs a token.
    problem(await send(client, BODY, "application/vnd.babelqueue.envelope+json", **signed), 401, "unauthenticated")
    event = {"ce_id": "1", "ce_source": "/s", "ce_type": "urn:babel:an:event", "ce_specversion": "1.0"}
    problem(await send(client, BODY, **event, **signed), 401, "unauthenticated")


async def test_without_credentials_the_signature_is_checked_as_well(opened):
    client = await opened(hook(signature=GITHUB, auth="signature"), auth="none")
    problem(await send(client, BODY), 401, "invalid_signature")
    assert (await send(client, BODY, **github(BODY))).status_code == 201
    problem(await send(client, BODY, origin="https://evil.example", **github(BODY)), 403, "forbidden")


async def test_a_key_of_the_sender_publishes_once(opened):
    client = await opened(hook(signature=GITHUB, auth="signature", idempotency_header="X-GitHub-Delivery"))
    answers = [await send(client, BODY, **github(BODY), X_GitHub_Delivery="72d3162e") for _ in range(3)]
    assert [each.headers.get("idempotency-replayed") for each in answers] == [None, "true", "true"]
    assert len({each.text for each in answers}) == 1
    other = b'{"other": true}'
    problem(await send(client, other, **github(other), X_GitHub_Delivery="72d3162e"), 422, "idempotency_key_reused")
    for value in (None, "", "é".encode()):
        key = {} if value is None else {"X_GitHub_Delivery": value}
        problem(await send(client, BODY, **github(BODY), **key), 400, "invalid_idempotency_key")
    assert len(await received(client)) == 1


async def test_limits_and_what_a_sender_cannot_ask_for(opened):
    client = await opened(
        hook(content_type="text/plain", into="body"),
        hook(signature=GITHUB, auth="signature"),
        limits={"max_message_bytes": 1_024},
    )
    assert (await send(client, b"x" * 700, "text/plain", **TOKEN)).status_code == 201
    problem(await send(client, b"x" * 1_024, "text/plain", **TOKEN), 413, "body_too_large")
    problem(await send(client, b"x" * 900_000, "text/plain", **TOKEN), 413, "body_too_large")
    problem(await send(client, b"x", "text/plain", brokerproperties="{}", **TOKEN), 400, "invalid_parameter")
    answer = await client.post(
        "/queues/hooks/messages?delay_seconds=1", content=b"x", headers={**TOKEN, "content-type": "text/plain"}
    )
    problem(answer, 400, "invalid_parameter")
    problem(await send(client, BODY, content_encoding="gzip", **github(BODY)), 415, "unsupported_media_type")


REFUSED = [
    (hook(auth="signature"), "auth"),
    (hook(content_type=FORM), "into"),
    (hook(content_type="json"), "content_type"),
    (hook(job=" "), "job"),
    (hook(into="form"), "into"),
    (hook(signature=GITHUB | {"secrets": ["short"]}), "signature.secrets.0"),
    (hook(signature=GITHUB | {"secrets": []}), "signature.secrets"),
    (hook(signature=GITHUB | {"algorithm": "md5"}), "signature.algorithm"),
    (hook(signature=GITHUB | {"payload": "no"}), "signature"),
    (hook(signature=GITHUB | {"payload": "{body}{timestamp}"}), "signature"),
    (hook(signature=STRIPE | {"payload": "{body}"}), "signature"),
    (hook(signature=STANDARD | {"id_header": None}), "signature"),
    (hook(signature=STANDARD | {"secrets": ["whsec_not base64 at all"]}), "signature"),
    (hook(signature=GITHUB | {"tolerance": 5}), "signature.tolerance"),
    (hook(unknown=1), "unknown"),
]


@pytest.mark.parametrize(("accept", "key"), REFUSED)
async def test_what_is_not_safe_is_refused_at_the_start(opened, accept, key):
    with pytest.raises(ConfigError) as caught:
        await opened(accept)
    assert caught.value.key == f"queues.hooks.accept.0.{key}"
    assert SECRET not in str(caught.value) and OTHER not in str(caught.value)


@pytest.mark.parametrize(
    "config", [{"idempotency": {"store": "none"}}, {"brokers": {"local": "amqp://127.0.0.1:1/"}}], ids=["none", "own"]
)
async def test_a_key_needs_a_store(opened, config):
    with pytest.raises(ConfigError) as caught:
        await opened(hook(idempotency_header="X-GitHub-Delivery"), **config)
    assert caught.value.key == "queues.hooks.accept.0.idempotency_header"


async def test_a_media_type_is_listed_once(opened):
    with pytest.raises(ConfigError) as caught:
        await opened(hook(), hook(content_type="Application/JSON"))
    assert caught.value.key == "queues.hooks.accept"


def test_curl_posts_forms_and_files_to_a_real_server(tmp_path):
    """The server would serve JSON directly, without the application."""
    path = tmp_path / "babelgate.yaml"
    file = {"url": f"sqlite:///{tmp_path}/babelgate.db", "timeout_seconds": 30}
    accept = [
        hook(signature=GITHUB, auth="signature"),
        hook(content_type=FORM, into="body"),
        hook(content_type="multipart/form-data", into="body"),
    ]
    queues = {"hooks": {"broker": "local", "accept": accept}, "plain": {"broker": "local", "accept": accept[1]}}
    config = {"state_dir": str(tmp_path), "brokers": {"local": file}, "auth": tokens(), "queues": queues}
    path.write_text(yaml.safe_dump(config))
    found = settings.load(path, {})
    served = Served(found)
    upload = tmp_path / "a.bin"
    upload.write_bytes(b"\x00\xff")
    with serving(uvicorn_config(served.build, found)) as address:
        url = "http://{}:{}/queues".format(*address)

        def curl(*arguments: str, queue: str = "hooks") -> int:
            command = ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", f"{url}/{queue}/messages", *arguments]
            return int(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)

        bearer = ("-H", "Authorization: Bearer all")
        sent = b'{"zen":"Speak like a human."}'
        signature = github(sent)["x-hub-signature-256"]
        json_type = ("-H", f"Content-Type: {JSON}", "-d", sent.decode())
        assert curl(*json_type) == 401
        assert curl(*json_type, *bearer) == 401
        assert curl(*json_type, "-H", f"X-Hub-Signature-256: {signature}") == 201
        assert curl("-d", "a=1", "--data-urlencode", "b=ü", *bearer) == 201
        assert curl("-d", "a=1", *bearer, queue="plain") == 201
        assert curl("-F", "n=1", "-F", f"file=@{upload}", *bearer) == 201
        assert curl("-d", "a=1") == 401
        assert True not in served.directly
        draft = ("-H", f"Content-Type: {JSON}", "-d", '{"job":"urn:a:b","data":{}}')
        assert curl(*draft, *bearer, queue="plain") == 201
        # The same body is no message where the route accepts its type, and a token does not replace the signature.
        assert curl(*draft, *bearer) == 401
        assert served.directly[-2:] == [True, False]
        with httpx.Client(base_url=url, headers=TOKEN, timeout=60, verify=authorities()) as client:
            answer = client.post("/hooks/messages:receive", json={"max_messages": 10})
        data = [each["envelope"]["data"] for each in answer.json()["messages"]]
        assert data[0] == json.loads(sent)
        assert data[1] == {"content_type": FORM, "body": "a=1&b=%C3%BC"}
        assert data[2]["content_type"].startswith("multipart/form-data; boundary=")
        assert b'filename="a.bin"' in base64.b64decode(data[2]["body_base64"])
