"""Tokens of an issuer, beside static tokens, on both ways over HTTP."""

from __future__ import annotations

import hashlib
import json
import time
import uuid

import httpx
import pytest
import yaml

from babelgate.clock import now_ms
from babelgate.config import settings
from babelgate.config.sections import AuthSettings
from babelgate.errors import ConfigError
from babelgate.identities.issuer import Issuer
from babelgate.server.server import uvicorn_config
from tests.harness.issuer import AUDIENCE, running
from tests.harness.local import authorities
from tests.harness.problems import problem
from tests.harness.sockets import serving
from tests.harness.ways import Served
from tests.http.test_streams import DRAFT, events, eventually

LIMIT_SECONDS = 120
RIGHTS = {right: {"mine.*": [right]} for right in ("send", "listen", "manage")}
CALLS = {
    "send": ("POST", "messages", DRAFT),
    "listen": ("POST", "messages:receive", {}),
    "manage": ("POST", "dead-letters:purge", None),
}


@pytest.fixture(scope="module")
def issuer():
    with running() as found:
        yield found


class ClockedServed(Served):
    """Its clock is ahead of the time by ``ahead_ms``, which tests increase."""

    ahead_ms = 0

    def __init__(self, found, *, direct=True):
        super().__init__(found, direct=direct, clock=lambda: now_ms() + self.ahead_ms)

    def end_of_token(self):
        """An end that a test does not reach before it calls :meth:`pass_end`."""
        return self._clock() // 1_000 + LIMIT_SECONDS * 2

    def pass_end(self):
        self.ahead_ms += (LIMIT_SECONDS * 2 + 1) * 1_000


@pytest.fixture(scope="module", params=["direct", "application"])
def served(request, issuer, tmp_path_factory):
    state = tmp_path_factory.mktemp("state")
    rules = [{"claim": "realm_access.roles", "value": right, "grant": grant} for right, grant in RIGHTS.items()]
    tokens = [
        {"name": right, "sha256": hashlib.sha256(right.encode()).hexdigest(), "rights": grant}
        for right, grant in RIGHTS.items()
    ]
    section = {
        "issuer": issuer.url,
        "audience": AUDIENCE,
        "name_prefix": "sso:",
        "leeway_seconds": 0,
        "rights": rules,
    }
    path = state / "babelgate.yaml"
    file = {"url": f"sqlite:///{state}/babelgate.db", "timeout_seconds": 30}
    config = {"state_dir": str(state), "brokers": {"local": file}, "prefix": "/mq"}
    path.write_text(yaml.safe_dump(config | {"auth": {"tokens": tokens, "issuers": [section]}}))
    found = settings.load(path, {})
    made = ClockedServed(found, direct=request.param == "direct")
    with serving(uvicorn_config(made.build, found)) as made.address:
        yield made


@pytest.fixture
def call(served):
    host, port = served.address
    with httpx.Client(base_url=f"http://{host}:{port}/mq", timeout=LIMIT_SECONDS, verify=authorities()) as client:

        def made(method, path, body=None, token=None):
            headers = {} if token is None else {"authorization": f"Bearer {token}"}
            return client.request(method, path, json=body, headers=headers)

        yield made


def signed_by_last(issuer):
    return issuer.token(list(issuer.keys)[-1], realm_access={"roles": ["send"]})


def signed(issuer, *roles, **claims):
    return issuer.token(realm_access={"roles": list(roles)}, jti=uuid.uuid4().hex, **claims)


@pytest.mark.parametrize("kind", ["static", "signed"])
@pytest.mark.parametrize("held", [*CALLS, "nothing"])
def test_rights_are_those_of_the_credential_on_its_queues_only(call, issuer, kind, held):
    token = held if kind == "static" else signed(issuer, held)
    for right, (method, verb, body) in CALLS.items():
        for queue in ("mine.a", "other"):
            for _ in range(2):
                answer = call(method, f"/queues/{queue}/{verb}", body, token)
                if (kind, held) == ("static", "nothing"):
                    problem(answer, 401, "unauthenticated")
                    assert answer.headers["www-authenticate"] == 'Bearer realm="babelgate"'
                elif right == held and queue == "mine.a":
                    assert answer.status_code in (200, 201)
                else:
                    problem(answer, 403, "forbidden")


def test_a_known_token_is_served_directly(call, issuer, served):
    token = signed(issuer, "send")
    limit = time.monotonic() + LIMIT_SECONDS
    served.directly.clear()
    while served.app.direct is not None and True not in served.directly:
        assert call("POST", "/queues/mine.a/messages", DRAFT, token).status_code == 201
        assert time.monotonic() < limit


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"exp": 1_000}, "The token has expired."),
        ({"aud": "elsewhere"}, "The token is for another audience."),
        ({"iss": "https://evil.example"}, "The issuer of the token is not one of this gateway."),
        ({"nbf": 9_999_999_999, "exp": 9_999_999_999}, "The token is not valid yet."),
    ],
)
def test_a_401_says_why_in_words(call, issuer, claims, words):
    token = signed(issuer, "send", **claims)
    for method, verb, body in CALLS.values():
        answer = call(method, f"/queues/mine.a/{verb}", body, token)
        found = problem(answer, 401, "invalid_token")
        assert found["detail"] == words
        expected = f'Bearer realm="babelgate", error="invalid_token", error_description="{words}"'
        assert answer.headers["www-authenticate"] == expected


def test_open_paths_refuse_no_token(call, issuer):
    expired = signed(issuer, "manage", exp=1_000)
    for path in ("/livez", "/readyz", "/openapi.json"):
        assert call("GET", path, token=expired).status_code == 200
    assert "brokers" not in call("GET", "/readyz?verbose", token=expired).json()
    problem(call("GET", "/metrics", token=expired), 401, "invalid_token")
    everywhere = signed(issuer, "manage")
    assert call("GET", "/metrics", token=everywhere).status_code == 200


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/openapi.json"])
def test_open_paths_do_not_wait_for_keys(call, issuer, monkeypatch, path):
    asked = []
    key = Issuer.key

    def noted(self, *given, may_wait=True):
        asked.append(may_wait)
        return key(self, *given, may_wait=may_wait)

    monkeypatch.setattr(Issuer, "key", noted)
    token = issuer.token("first", {"kid": uuid.uuid4().hex})
    assert call("GET", path, token=token).status_code == 200
    assert asked == ([False] if path == "/readyz" else [])


def test_requests_are_refused_after_the_end_of_the_token(call, issuer, served):
    token = signed(issuer, *CALLS, exp=served.end_of_token())
    assert call("POST", "/queues/mine.e/messages", DRAFT, token).status_code == 201
    served.pass_end()
    for method, verb, body in CALLS.values():
        found = problem(call(method, f"/queues/mine.e/{verb}", body, token), 401, "invalid_token")
        assert found["detail"] == "The token has expired."


def test_requests_are_refused_and_streams_end_with_the_key(call, issuer, served):
    brief = uuid.uuid4().hex
    issuer.add_key(brief)
    token = issuer.token(brief, realm_access={"roles": ["listen", "send"]})
    eventually(lambda: call("POST", "/queues/mine.s/messages", DRAFT, token).status_code == 201)
    host, port = served.address
    headers = {"authorization": f"Bearer {token}", "accept": "application/x-ndjson"}
    url = f"http://{host}:{port}/mq/queues/mine.s/messages:stream"
    with httpx.stream("GET", url, headers=headers, timeout=LIMIT_SECONDS) as answer:
        seen = (event for event in events(answer) if event[0] != "keep_alive")
        assert next(seen)[0] == "message"
        del issuer.keys[brief]
        issuer.add_key(uuid.uuid4().hex)
        new = signed_by_last(issuer)
        # The keys are read again for a token that names a new one.
        eventually(lambda: call("POST", "/queues/mine.other/messages", DRAFT, new).status_code == 201)
        assert [name for name, _ in seen] == ["problem"]
    eventually(lambda: call("POST", "/queues/mine.s/messages", DRAFT, token).status_code == 401)
    for method, verb, body in CALLS.values():
        found = problem(call(method, f"/queues/mine.s/{verb}", body, token), 401, "invalid_token")
        assert found["detail"] == "The token names no key of its issuer."


def test_an_issuer_without_an_answer_is_503(call, issuer, served):
    kid = uuid.uuid4().hex
    issuer.add_key(kid)
    token = issuer.token(kid, realm_access={"roles": ["send"]})
    issuer.status = 500
    try:
        answer = call("POST", "/queues/mine.a/messages", DRAFT, token)
        assert problem(answer, 503, "issuer_unavailable")["retryable"] is True
        assert int(answer.headers["retry-after"]) >= 1
        # What is known is served as before.
        assert call("POST", "/queues/mine.a/messages", DRAFT, signed(issuer, "send")).status_code == 201
    finally:
        issuer.status = 200
    limit = time.monotonic() + LIMIT_SECONDS
    while call("POST", "/queues/mine.a/messages", DRAFT, token).status_code != 201:
        assert time.monotonic() < limit
        time.sleep(0.5)


def test_the_console_takes_the_token_and_its_session_ends_with_it(call, issuer, served):
    host, port = served.address
    with httpx.Client(
        base_url=f"http://{host}:{port}/mq/console/", timeout=LIMIT_SECONDS, verify=authorities()
    ) as browser:
        form = browser.get("sign-in").text
        csrf = form.split('name="csrf" value="')[1].split('"')[0]
        refused = browser.post("sign-in", data={"csrf": csrf, "token": signed(issuer, "listen", exp=1_000)})
        assert refused.status_code == 401 and "The token has expired." in refused.text
        assert 'error="invalid_token"' in refused.headers["www-authenticate"]
        token = signed(issuer, "listen", "manage", exp=served.end_of_token())
        answer = browser.post("sign-in", data={"csrf": csrf, "token": token})
        assert answer.status_code == 303
        assert browser.get("queues").status_code == 200
        served.pass_end()
        assert browser.get("queues").status_code == 303


def test_a_session_is_one_of_all_replicas(issuer, served):
    other = Served(served._settings, clock=served._clock)
    with (
        serving(uvicorn_config(other.build, served._settings)) as address,
        httpx.Client(timeout=LIMIT_SECONDS, verify=authorities()) as browser,
    ):
        here, there = (f"http://{host}:{port}/mq/console/" for host, port in (served.address, address))
        csrf = browser.get(here + "sign-in").text.split('name="csrf" value="')[1].split('"')[0]
        answer = browser.post(here + "sign-in", data={"csrf": csrf, "token": signed(issuer, "listen")})
        assert answer.status_code == 303
        # Cookies are for all ports of a host. The other replica may not have read the keys yet.
        assert browser.get(there + "queues").status_code == 200


def test_readiness_shows_operators_the_keys_of_issuers(call, issuer):
    assert "issuers" not in call("GET", "/readyz", token=signed(issuer, "manage")).json()
    assert "issuers" not in call("GET", "/readyz?verbose", token=signed(issuer, "send")).json()
    (found,) = call("GET", "/readyz?verbose", token=signed(issuer, "manage")).json()["issuers"]
    assert found["issuer"] == issuer.url
    assert found["keys"] == len(issuer.keys) and "error" not in found
    assert abs(found["read_at"] - time.time() * 1000) < 3_600_000


def test_the_state_of_issuers_is_a_metric(call, issuer):
    text = call("GET", "/metrics", token=signed(issuer, "manage")).text
    assert f'babelgate_issuer_failures{{issuer="{issuer.url}"}} ' in text


CONFIG = {"issuer": "https://sso.example/realms/a", "audience": "mq"}
GRANT = {"claim": "groups", "value": "team", "grant": {"*": ["send"]}}
TOKEN = {"name": "shop", "sha256": "a" * 64, "rights": {"*": ["send"]}}
BAD = [
    ({}, "auth", "needs tokens, issuers, certificates or made_tokens"),
    ({"made_tokens": {"enabled": False}}, "auth", "needs tokens, issuers, certificates or made_tokens"),
    ({"issuers": [CONFIG]}, "auth.issuers.0.rights", "is required"),
    ({"issuers": [CONFIG | {"rights": [GRANT], "issuer": "http://sso.example"}]}, "auth.issuers.0.issuer", "https"),
    ({"issuers": [CONFIG | {"rights": [GRANT], "jwks_url": "file:///a"}]}, "auth.issuers.0.jwks_url", "must"),
    ({"issuers": [CONFIG | {"rights": [GRANT], "algorithms": ["HS256"]}]}, "auth.issuers.0.algorithms.0", "RS256"),
    ({"issuers": [CONFIG | {"rights": [GRANT], "algorithms": ["none"]}]}, "auth.issuers.0.algorithms.0", "RS256"),
    ({"issuers": [CONFIG | {"rights": [GRANT], "bearer_file": "/a"}]}, "auth.issuers.0", "jwks_url"),
    ({"issuers": [CONFIG | {"rights": [GRANT]}] * 2}, "auth", "two issuers are the same"),
    (
        {"issuers": [CONFIG | {"rights": [GRANT], "name_prefix": "shop:"}], "tokens": [TOKEN | {"name": "shop:a"}]},
        "auth",
        "name_prefix",
    ),
    ({"issuers": [CONFIG | {"rights": [GRANT], "name_prefix": "made-token"}]}, "auth.issuers.0.name_prefix", "match"),
    ({"issuers": [CONFIG | {"rights": [GRANT], "name_prefix": ""}]}, "auth.issuers.0.name_prefix", "match"),
    (
        {"issuers": [CONFIG | {"rights": [GRANT]}, CONFIG | {"rights": [GRANT], "issuer": "https://sso.example/b"}]},
        "auth",
        "name_prefix",
    ),
    (
        {"issuers": [CONFIG | {"rights": [GRANT | {"grant": {"*": ["all"]}}]}]},
        "auth.issuers.0.rights.0.grant.*.0",
        "send",
    ),
]


@pytest.mark.parametrize(("auth", "key", "reason"), BAD, ids=range(len(BAD)))
def test_a_bad_configuration_is_refused_and_names_the_key(tmp_path, auth, key, reason):
    path = tmp_path / "babelgate.yaml"
    path.write_text(json.dumps({"auth": auth}))
    with pytest.raises(ConfigError) as caught:
        settings.load(path, {})
    assert caught.value.key == key
    assert reason in caught.value.reason


def test_a_sender_is_no_caller_of_an_issuer(tmp_path):
    accept = [{"content_type": "text/plain", "job": "a", "sender": "shop:hooks"}]
    path = tmp_path / "babelgate.yaml"
    tree = {"auth": {"issuers": [CONFIG | {"rights": [GRANT], "name_prefix": "shop:"}]}}
    route = {"broker": "local", "accept": accept}
    path.write_text(json.dumps(tree | {"brokers": {"local": "sqlite:///x.db"}, "queues": {"q": route}}))
    with pytest.raises(ConfigError, match="name_prefix") as caught:
        settings.load(path, {})
    assert caught.value.key == "auth"


def test_the_address_of_the_keys_may_have_a_query(tmp_path):
    path = tmp_path / "babelgate.yaml"
    url = "https://sso.example/discovery/v2.0/keys?appid=a"
    path.write_text(json.dumps({"auth": {"issuers": [CONFIG | {"rights": [GRANT], "jwks_url": url}]}}))
    found = settings.load(path, {})
    assert isinstance(found.auth, AuthSettings)
    assert found.auth.issuers[0].jwks_url == url


def test_an_issuer_alone_is_a_credential(tmp_path):
    path = tmp_path / "babelgate.yaml"
    path.write_text(json.dumps({"auth": {"issuers": [CONFIG | {"rights": [GRANT]}]}, "host": "0.0.0.0"}))
    found = settings.load(path, {})
    assert isinstance(found.auth, AuthSettings)
    assert found.auth.issuers[0].prefix == "sso.example/"
    assert found.has_console
