"""Keys of an issuer: discovery, rotation, outages, and answers that are none."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from babelgate.clock import now_ms
from babelgate.errors import BabelgateError
from babelgate.gateway.authorization import Caller
from babelgate.identities import issuer as issuer_module
from babelgate.identities.errors import InvalidToken, IssuerUnavailable
from babelgate.identities.fetching import MAX_DOCUMENT_BYTES, Documents, FetchFailed
from babelgate.identities.identities import Identities
from babelgate.identities.issuer import Issuer
from babelgate.identities.keys import parse_keys
from babelgate.identities.terms import IssuerTerms
from babelgate.urls import refusal_of
from tests.harness.issuer import AUDIENCE, digest, make_key, public_jwk, running, sign
from tests.unit.identities.conftest import Known

LIMIT_SECONDS = 60
KEYS, DISCOVERY = "/keys", "/.well-known/openid-configuration"


async def eventually(condition):
    limit = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < limit
        await asyncio.sleep(0.02)


def the_issuer(known):
    return next(iter(known.made.issuers.values()))


async def test_a_new_key_is_read_when_a_token_names_it_and_the_request_waits(known, issuer):
    await known.learn(issuer.token())
    issuer.add_key("second", "RS256")
    asked = issuer.requests.count(KEYS)
    found = await asyncio.gather(*(known.learn(issuer.token("second", n=n)) for n in range(50)))
    assert len(found) == 50
    assert issuer.requests.count(KEYS) == asked + 1
    # Tokens of the first key are valid as long as the issuer has it.
    assert await known.learn(issuer.token("first", n=1))


async def test_names_that_are_no_keys_cause_few_fetches(trust, issuer):
    known = await trust(issuer, least_pause_seconds=0.5)
    await known.learn(issuer.token())
    began, asked = time.monotonic(), issuer.requests.count(KEYS)
    while time.monotonic() - began < 2:
        tokens = [issuer.token("first", {"kid": f"none-{time.monotonic_ns()}-{n}"}) for n in range(5)]
        results = await asyncio.gather(*map(known.learn, tokens), return_exceptions=True)
        assert all(isinstance(each, InvalidToken) for each in results)
    took = time.monotonic() - began
    assert issuer.requests.count(KEYS) - asked <= took / 0.5 + 2


async def test_a_name_that_was_not_found_is_refused_without_waiting_for_a_while(known, issuer):
    token = issuer.token("first", {"kid": "none"})
    with pytest.raises(InvalidToken):
        await known.learn(token)
    asked = len(issuer.requests)
    for number in range(20):
        with pytest.raises(InvalidToken, match="names no key"):
            await known.learn(issuer.token("first", {"kid": "none"}, n=number))
    assert len(issuer.requests) == asked
    # It is found once the issuer has it and the keys were read for another reason.
    issuer.keys["none"] = issuer.keys["first"]
    issuer.add_key("third")
    assert await known.learn(issuer.token("third"))
    assert await known.learn(token)


async def test_a_key_that_is_gone_ends_its_callers(known, issuer):
    issuer.add_key("second")
    old, other = await known.learn(issuer.token("first")), await known.learn(issuer.token("second"))
    ended = []
    old.when_ended(lambda: ended.append("old"))
    other.when_ended(lambda: ended.append("other")).cancel()
    # Another key under the same name is another key, too.
    token = issuer.token("first")
    issuer.add_key("first")
    issuer.add_key("third")
    await known.learn(issuer.token("third"))
    assert ended == ["old"] and old.ends_at == 0.0 and other.ends_at > time.time()
    with pytest.raises(InvalidToken, match="signature"):
        await known.learn(token)
    assert await known.learn(issuer.token("first"))


@pytest.mark.parametrize("has_name", [True, False])
async def test_a_key_that_replaced_another_without_a_new_name_is_found_soon(trust, issuer, has_name):
    def publish():
        jwk = public_jwk(issuer.keys["first"][0])
        issuer.replaced[KEYS] = json.dumps({"keys": [jwk | {"kid": "first"} if has_name else jwk]}).encode()

    header = {} if has_name else {"kid": None}
    publish()
    known = await trust(issuer)
    assert await known.learn(issuer.token("first", header))
    issuer.add_key("first")
    publish()
    asked, token = issuer.requests.count(KEYS), issuer.token("first", header)
    with pytest.raises(InvalidToken, match="signature"):
        await known.learn(token)
    await eventually(lambda: issuer.requests.count(KEYS) > asked)
    new = the_issuer(known)
    await eventually(lambda: new._keys.ids == parse_keys(issuer.replaced[KEYS], new.terms.algorithms).ids)
    assert await known.learn(token)


async def test_forged_signatures_cause_few_fetches_and_do_not_wait(trust, issuer):
    known = await trust(issuer, least_pause_seconds=0.5)
    await known.learn(issuer.token())
    forger = make_key("ES256")
    began, asked = time.monotonic(), issuer.requests.count(KEYS)
    while time.monotonic() - began < 2:
        head, body = {"alg": "ES256", "kid": "first"}, json.dumps(issuer.claims(n=time.monotonic_ns()))
        with pytest.raises(InvalidToken, match="signature"):
            await known.learn(sign(head, body.encode(), forger, "ES256"))
        assert not the_issuer(known)._waiting
        await asyncio.sleep(0.01)
    took = time.monotonic() - began
    assert 0 < issuer.requests.count(KEYS) - asked <= took / 0.5 + 2


async def test_what_must_not_wait_has_the_key_read_for_the_next_time(known, issuer):
    await known.learn(issuer.token())
    issuer.add_key("second")
    token = issuer.token("second").encode()
    with pytest.raises(IssuerUnavailable):
        await known.made.learn(token, may_wait=False)
    assert not the_issuer(known)._waiting
    await eventually(lambda: the_issuer(known)._has("second"))
    await known.made.learn(token, may_wait=False)
    assert digest(token.decode()) in known.callers


async def test_issuers_with_the_same_key_do_not_end_the_callers_of_each_other(issuer):
    with running() as other:
        other.keys["first"] = issuer.keys["first"]
        terms = [IssuerTerms(each.url, frozenset({AUDIENCE}), ("ES256",), (), each.url) for each in (issuer, other)]
        issuers = [Issuer(each, Documents(each.issuer, None).keys, 0.2) for each in terms]
        callers: dict[str, Caller] = {}
        identities = Identities(issuers, callers, now_ms)
        await identities.start()
        known = Known(identities, callers)
        mine, its = await known.learn(issuer.token()), await known.learn(other.token())
        other.add_key("first")
        other.add_key("second")
        await known.learn(other.token("second"))
        assert its.ends_at == 0.0
        assert mine.ends_at > time.time()
        await identities.close()


async def test_known_keys_serve_while_the_issuer_is_down(trust, issuer, caplog):
    known = await trust(issuer, refresh_seconds=0.1, least_pause_seconds=0)
    await known.learn(issuer.token())
    issuer.status = 503
    await eventually(lambda: the_issuer(known).failure is not None)
    assert "the status is 503" in the_issuer(known).failure
    assert await known.learn(issuer.token(n=1))
    with pytest.raises(IssuerUnavailable) as caught:
        await known.learn(issuer.token("first", {"kid": "other"}))
    assert caught.value.retryable
    issuer.status = 200
    await eventually(lambda: the_issuer(known).failure is None)
    assert await known.learn(issuer.token(n=2))


async def test_an_issuer_that_is_down_is_spared(trust, issuer):
    issuer.status = 500
    known = await trust(issuer, refresh_seconds=0.1, least_pause_seconds=0)
    await eventually(lambda: the_issuer(known).failure is not None)
    results = await asyncio.gather(*(known.learn(issuer.token(n=n)) for n in range(30)), return_exceptions=True)
    assert all(isinstance(each, IssuerUnavailable) for each in results)
    # The first pauses are at least 0.5 and 1 s.
    assert len(issuer.requests) <= 4


async def test_what_waits_is_bounded(trust, issuer):
    tokens = [issuer.token(n=n) for n in range(issuer_module.MAX_WAITING + 5)]
    issuer.gate.clear()
    known = await trust(issuer)
    waiting = [asyncio.create_task(known.learn(token)) for token in tokens]
    refused, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert all(isinstance(each.exception(), IssuerUnavailable) for each in refused) and len(refused) == 5
    issuer.gate.set()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert sum(not isinstance(each, BabelgateError) for each in found) == issuer_module.MAX_WAITING


async def test_a_stop_refuses_what_waits(trust, issuer):
    issuer.gate.clear()
    known = await trust(issuer)
    waiting = asyncio.create_task(known.learn(issuer.token()))
    await eventually(lambda: issuer.requests)
    await known.made.close()
    with pytest.raises(IssuerUnavailable):
        await asyncio.wait_for(waiting, LIMIT_SECONDS)


async def test_a_given_address_needs_no_discovery(trust, issuer):
    known = await trust(issuer, jwks_url=f"{issuer.url}/keys")
    assert await known.learn(issuer.token())
    assert set(issuer.requests) == {KEYS}


BAD = {
    "no JSON": (KEYS, b"<html>", "KEYS"),
    "a list": (KEYS, b"[]", "KEYS"),
    "deep": (KEYS, b"[" * 100_000, "KEYS"),
    "too long": (KEYS, b"x" * (MAX_DOCUMENT_BYTES + 1), "more than"),
    "another issuer": (
        DISCOVERY,
        b'{"issuer":"https://evil.example","jwks_uri":"https://evil.example/keys"}',
        "another",
    ),
    "no address": (DISCOVERY, "{issuer}", "missing"),
    "an address without TLS": (DISCOVERY, "http://keys.example/", "https"),
    "a file": (DISCOVERY, "file:///etc/passwd", "must be"),
}


@pytest.mark.parametrize("case", BAD)
async def test_bad_documents_are_told_and_change_nothing(trust, issuer, case):
    known = await trust(issuer, refresh_seconds=0.1, least_pause_seconds=0)
    await known.learn(issuer.token())
    path, body, _ = BAD[case]
    if isinstance(body, str):
        place = {} if body == "{issuer}" else {"jwks_uri": body}
        body = json.dumps({"issuer": issuer.url, **place}).encode()
    issuer.replaced[path] = body
    await eventually(lambda: the_issuer(known).failure is not None)
    assert await known.learn(issuer.token(n=1))
    issuer.replaced.clear()
    await eventually(lambda: the_issuer(known).failure is None)


async def test_redirects_are_not_followed(issuer):
    issuer.status, issuer.headers = 302, {"location": "http://127.0.0.1:9/"}
    with pytest.raises(FetchFailed, match="302"):
        await Documents(issuer.url, None).keys()
    assert issuer.requests == [DISCOVERY]


async def test_nothing_listens():
    with running() as gone:
        pass
    with pytest.raises(FetchFailed):
        await Documents(gone.url, None).keys()


async def test_a_token_is_sent_to_the_address_of_the_keys_alone(issuer, tmp_path):
    bearer = tmp_path / "token"
    bearer.write_text("mine\n")
    documents = Documents(issuer.url, f"{issuer.url}/keys", bearer_file=bearer)
    await documents.keys()
    bearer.write_text("replaced")
    await documents.keys()
    assert [each["authorization"] for each in issuer.seen] == ["Bearer mine", "Bearer replaced"]
    bearer.unlink()
    with pytest.raises(FetchFailed, match="FileNotFoundError"):
        await documents.keys()


def test_an_answer_that_is_slow_has_an_end(issuer):
    # Told by the constant, because waiting for it would take its time.
    from babelgate.identities.fetching import FETCH_SECONDS

    assert 2 * FETCH_SECONDS < issuer_module.WAIT_SECONDS


@pytest.mark.parametrize(
    ("url", "is_refused"),
    [
        ("https://sso.example/realms/a", False),
        ("https://sso.example:8443", False),
        ("http://127.0.0.1:8080/realms/a", False),
        ("http://[::1]/", False),
        ("http://localhost", False),
        ("http://sso.example", True),
        ("http://127.0.0.1.example", True),
        ("http://localhost.example", True),
        ("https://user:secret@sso.example", True),
        ("https://sso.example/?a=b", True),
        ("https://sso.example/#a", True),
        ("ftp://sso.example", True),
        ("https://", True),
        ("sso.example", True),
        ("https://[::1", True),
        ("https://sso.example:99999", True),
    ],
)
def test_addresses(url, is_refused):
    assert (refusal_of(url) is not None) == is_refused
    assert (refusal_of(url, may_have_query=True) is not None) == (is_refused and "?" not in url)


@pytest.mark.parametrize("is_stated", [True, False])
async def test_the_address_of_the_keys_may_have_a_query(trust, issuer, is_stated):
    url = f"{issuer.url}/keys?p=policy"
    issuer.replaced[f"{KEYS}?p=policy"] = json.dumps(issuer.jwks()).encode()
    issuer.replaced[DISCOVERY] = json.dumps({"issuer": issuer.url, "jwks_uri": url}).encode()
    known = await trust(issuer, jwks_url=None if is_stated else url)
    assert await known.learn(issuer.token())


RSA = public_jwk(make_key("RS256"))
EC = public_jwk(make_key("ES256"))


@pytest.mark.parametrize(
    ("jwk", "algorithms"),
    [
        (RSA, {"RS256", "PS256"}),
        (RSA | {"alg": "PS256"}, {"PS256"}),
        (RSA | {"alg": "HS256"}, set()),
        (RSA | {"alg": "ES256"}, set()),
        (RSA | {"use": "enc"}, set()),
        (RSA | {"key_ops": ["encrypt"]}, set()),
        (RSA | {"key_ops": ["verify"]}, {"RS256", "PS256"}),
        (RSA | {"n": "AQAB"}, set()),
        (RSA | {"e": "A" * 200}, set()),
        (RSA | {"n": 7}, set()),
        (RSA | {"n": None}, set()),
        (RSA | {"d": "private"}, {"RS256", "PS256"}),
        (public_jwk(make_key("RS256", 1_024)), set()),
        (EC, {"ES256"}),
        (EC | {"crv": "P-384"}, set()),
        (EC | {"crv": "secp256k1"}, set()),
        (EC | {"crv": ["P-256"]}, set()),
        (EC | {"kty": "OKP"}, set()),
        (EC | {"x": EC["y"], "y": EC["x"]}, set()),
        (public_jwk(make_key("EdDSA")), {"EdDSA"}),
        ({"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"}, set()),
        ({}, set()),
        ({"kty": 7}, set()),
    ],
)
def test_what_a_key_may_verify(jwk, algorithms):
    allowed = ("RS256", "PS256", "ES256", "EdDSA")
    keys = parse_keys(json.dumps({"keys": [jwk | {"kid": "k"}, 7, None]}).encode(), allowed)
    assert {each for each in allowed if keys.find("k", each) is not None} == algorithms
