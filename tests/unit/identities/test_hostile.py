"""Tokens that must be refused, and why; and that what they say is neither followed nor repeated."""

from __future__ import annotations

import hashlib
import hmac
import json
import time

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from babelgate.errors import Unauthenticated
from babelgate.http.problems import challenge
from babelgate.identities.errors import InvalidToken
from babelgate.identities.tokens import MAX_TOKEN_BYTES
from tests.harness.issuer import b64, make_key, public_jwk, running, sign

SECRET = "http://127.0.0.1:9/secret-text"


def unsigned(issuer, algorithm):
    return f"{b64(json.dumps({'alg': algorithm, 'typ': 'JWT'}).encode())}.{b64(json.dumps(issuer.claims()).encode())}."


def confused(issuer):
    """HS256 with what everybody can read as the secret: each form in which a program may keep the public key."""
    key = issuer.keys["first"][0].public_key()
    forms = [key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), json.dumps(issuer.jwks()).encode()]
    head = b64(b'{"alg":"HS256","typ":"JWT","kid":"first"}')
    for secret in forms:
        data = f"{head}.{b64(json.dumps(issuer.claims()).encode())}"
        yield f"{data}.{b64(hmac.digest(secret, data.encode(), hashlib.sha256))}"


def own_key(issuer, **header):
    """A token by a key of its own, which the header brings or leads to."""
    key = make_key("ES256")
    head = {"alg": "ES256", "typ": "JWT", "kid": "first", **header}
    if header.get("jwk"):
        head["jwk"] = public_jwk(key)
    return sign(head, json.dumps(issuer.claims(groups=["team"])).encode(), key, "ES256")


def by_first(issuer, head=None, body=None):
    key, algorithm = issuer.keys["first"]
    given = {"alg": algorithm, "typ": "JWT", "kid": "first"} if head is None else head
    return sign(given, json.dumps(issuer.claims()).encode() if body is None else body, key, algorithm)


def claims_text(issuer, more):
    return json.dumps(issuer.claims())[:-1].encode() + more + b"}"


def tampered(issuer):
    head, _, signed = issuer.token().split(".")
    return f"{head}.{b64(json.dumps(issuer.claims(groups=['team'])).encode())}.{signed}"


NOW = time.time()
SIGNATURE = "The signature of the token is not valid."
ALGORITHM = "The algorithm of the token is not one"
UNKNOWN = "The token names no key of its issuer."
BODY = "The body of the token is not a JSON object with distinct members"
HEADER = "The header of the token is not a JSON object with distinct members"
FORM = "The token is not three parts in base64url with a signature."
NAME = "The claim of the token that names its holder is missing, or not a usable name."
HOSTILE = {
    "alg none, without a signature": (lambda i: unsigned(i, "none"), FORM),
    "alg none, with one": (lambda i: unsigned(i, "none") + "AAAA", ALGORITHM),
    "alg None": (lambda i: unsigned(i, "NoNe") + "AAAA", ALGORITHM),
    "alg of a list": (lambda i: by_first(i, {"alg": ["ES256"], "kid": "first"}), ALGORITHM),
    "no alg": (lambda i: by_first(i, {"kid": "first"}), ALGORITHM),
    "HS256 with the public key": (lambda i: next(confused(i)), ALGORITHM),
    "HS256 with the key set": (lambda i: list(confused(i))[1], ALGORITHM),
    "another algorithm than the key's": (
        lambda i: by_first(i, {"alg": "RS256", "kid": "first"}),
        "The key that the token names cannot verify its signature.",
    ),
    "kid as a path": (lambda i: own_key(i, kid="../../../../dev/null"), UNKNOWN),
    "kid as a URL": (lambda i: own_key(i, kid=SECRET), UNKNOWN),
    "kid as SQL": (lambda i: own_key(i, kid="x' UNION SELECT 'secret"), UNKNOWN),
    "kid of another type": (
        lambda i: by_first(i, {"alg": "ES256", "kid": {"a": 1}}),
        "The name of the key of the token",
    ),
    "a long kid": (lambda i: by_first(i, {"alg": "ES256", "kid": "k" * 300}), "The name of the key of the token"),
    "jwk in the header": (lambda i: own_key(i, jwk=True), SIGNATURE),
    "jku in the header": (lambda i: own_key(i, jku=SECRET), SIGNATURE),
    "x5u in the header": (lambda i: own_key(i, x5u=SECRET), SIGNATURE),
    "x5c in the header": (lambda i: own_key(i, x5c=["MIIB"]), SIGNATURE),
    "critical extensions": (
        lambda i: by_first(i, {"alg": "ES256", "kid": "first", "crit": ["exp"], "exp": 1}),
        "critical",
    ),
    "an empty list of them": (lambda i: by_first(i, {"alg": "ES256", "kid": "first", "crit": []}), "critical"),
    "a detached body": (lambda i: by_first(i, {"alg": "ES256", "kid": "first", "b64": False}), "critical"),
    "a token of a logout": (lambda i: i.token("", {"typ": "logout+jwt"}), "neither JWT nor at+jwt"),
    "a proof of possession": (lambda i: i.token("", {"typ": "dpop+jwt"}), "neither JWT nor at+jwt"),
    "typ of another type": (lambda i: i.token("", {"typ": 7}), "neither JWT nor at+jwt"),
    "an encrypted token": (lambda i: "a.b.c.d.e", "encrypted"),
    "a huge token": (lambda i: i.token(data="x" * MAX_TOKEN_BYTES), f"more than {MAX_TOKEN_BYTES} bytes"),
    "a deep header": (lambda i: by_first(i, b'{"alg":"ES256","a":' + b"[" * 9_000 + b"]" * 9_000 + b"}"), HEADER),
    "a deep body": (
        lambda i: by_first(i, None, claims_text(i, b',"a":' + b'{"a":' * 3_000 + b"1" + b"}" * 3_000)),
        BODY,
    ),
    "a list as the body": (lambda i: by_first(i, None, b"[]"), BODY),
    "a body that is no JSON": (lambda i: by_first(i, None, b"{"), BODY),
    "a body in UTF-16": (lambda i: by_first(i, None, json.dumps(i.claims()).encode("utf-16")), BODY),
    "NaN": (lambda i: by_first(i, None, claims_text(i, b',"nbf":NaN')), BODY),
    "duplicate claims": (lambda i: by_first(i, None, claims_text(i, b',"sub":"root"')), BODY),
    "duplicate members within a claim": (lambda i: by_first(i, None, claims_text(i, b',"a":{"b":1,"b":2}')), BODY),
    "duplicate members of the header": (lambda i: by_first(i, b'{"alg":"none","alg":"ES256","kid":"first"}'), HEADER),
    "bad base64": (lambda i: i.token()[:-3] + "!!!", FORM),
    "standard base64": (lambda i: i.token()[:-3] + "+/A", FORM),
    "padding": (lambda i: i.token() + "==", FORM),
    "an empty body": (lambda i: "eyJhbGciOiJFUzI1NiJ9..AAAA", FORM),
    "another body": (tampered, SIGNATURE),
    "another signature": (lambda i: i.token()[:-8] + "AAAAAAAA", SIGNATURE),
    "a short signature": (lambda i: i.token()[:-40], SIGNATURE),
    "expired": (lambda i: i.token(exp=NOW - 3_600), "The token has expired."),
    "expired long ago": (lambda i: i.token(exp=-1e18), "The token has expired."),
    "without an end": (lambda i: i.token(exp=None), "The token has no end: the claim exp is missing."),
    "an end that is null": (lambda i: by_first(i, None, json.dumps({**i.claims(), "exp": None}).encode()), "no end"),
    "an end as a text": (lambda i: i.token(exp="9999999999"), "The claim exp of the token is not a number"),
    "an end that is true": (lambda i: i.token(exp=True), "The claim exp of the token is not a number"),
    "an endless end": (
        lambda i: by_first(i, None, claims_text(i, b"").replace(b'"exp": ', b'"exp": 1e999, "x": ')),
        "exp",
    ),
    "an end with many digits": (lambda i: i.token(exp=10**400), "The claim exp of the token is not a number"),
    "not yet valid": (lambda i: i.token(nbf=NOW + 3_600), "The token is not valid yet."),
    "issued in the future": (lambda i: i.token(iat=NOW + 3_600), "The token is not valid yet."),
    "a beginning as a list": (lambda i: i.token(nbf=[1]), "The claim nbf of the token is not a number"),
    "another audience": (lambda i: i.token(aud="elsewhere"), "The token is for another audience."),
    "another audience in another case": (lambda i: i.token(aud="BABELGATE"), "The token is for another audience."),
    "a part of the audience": (lambda i: i.token(aud="babelgate.example"), "The token is for another audience."),
    "no audience": (lambda i: i.token(aud=None), "The token has no usable audience"),
    "an empty audience": (lambda i: i.token(aud=[]), "The token is for another audience."),
    "an audience as an object": (lambda i: i.token(aud={"babelgate": 1}), "The token has no usable audience"),
    "a list with other things": (lambda i: i.token(aud=["babelgate", 1]), "The token has no usable audience"),
    "another issuer": (lambda i: i.token(iss="https://evil.example"), "The issuer of the token is not one"),
    "a slash more": (lambda i: i.token(iss=i.url + "/"), "The issuer of the token is not one"),
    "no issuer": (lambda i: i.token(iss=None), "The issuer of the token is not one"),
    "an issuer as a list": (lambda i: i.token(iss=[i.url]), "The issuer of the token is not one"),
    "bound to a key": (lambda i: i.token(cnf={"jkt": "x"}), "bound to a key"),
    "no name": (lambda i: i.token(sub=None), NAME),
    "an empty name": (lambda i: i.token(sub=""), NAME),
    "a number as a name": (lambda i: i.token(sub=7), NAME),
    "a name with a line": (lambda i: i.token(sub="a\nlevel=error"), NAME),
    "a name that is no text": (lambda i: i.token(sub="\ud800"), NAME),
    "a long name": (lambda i: i.token(sub="a" * 300), NAME),
}


@pytest.mark.parametrize("case", HOSTILE)
async def test_it_is_refused_in_words_that_repeat_nothing(known, issuer, case):
    make, reason = HOSTILE[case]
    token = make(issuer)
    for _ in range(2):
        with pytest.raises(InvalidToken) as caught:
            await known.learn(token)
        assert reason in caught.value.detail
    assert not known.callers
    said = challenge(caught.value).decode("ascii")
    assert said.count('"') == 6 and "\\" not in said
    for own in (issuer.url, "evil", "secret", "elsewhere", "first"):
        assert own not in said
    assert set(issuer.requests) <= {"/.well-known/openid-configuration", "/keys"}


async def test_what_is_no_signed_token_is_no_business_of_issuers(known):
    for token in (b"", b"all", b"a.b", b"a.b.c.d", b"\xff\xfe"):
        with pytest.raises(Unauthenticated) as caught:
            await known.made.learn(token)
        assert type(caught.value) is Unauthenticated
        assert challenge(caught.value) == b'Bearer realm="babelgate"'


async def test_the_key_of_one_issuer_verifies_no_token_of_another(trust, issuer, known):
    with running() as other:
        both = await trust(other)
        assert (await both.learn(other.token())).name == "sso/ada"
        # The other one signs, and says that it is the first.
        key, algorithm = other.keys["first"]
        forged = sign({"alg": algorithm, "kid": "first"}, json.dumps(issuer.claims()).encode(), key, algorithm)
        with pytest.raises(InvalidToken, match=SIGNATURE):
            await known.learn(forged)


async def test_tokens_of_a_flood_cause_neither_fetches_nor_memory(known, issuer):
    await known.learn(issuer.token())
    asked = len(issuer.requests)
    for number in range(3_000):
        with pytest.raises(InvalidToken):
            await known.learn(issuer.token()[:-86] + b64(number.to_bytes(64)))
    assert len(issuer.requests) == asked
    assert len(known.callers) == 1
    assert known.made._refused.size <= known.made._refused.max_bytes


async def test_a_token_that_was_refused_is_not_verified_again(known, issuer):
    token = issuer.token()[:-8] + "AAAAAAAA"
    with pytest.raises(InvalidToken):
        await known.learn(token)
    # Verified again, it would be of an unknown issuer.
    known.made.issuers = {"another": known.made.issuers[issuer.url]}
    with pytest.raises(InvalidToken, match=SIGNATURE):
        await known.learn(token)
