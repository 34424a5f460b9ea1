"""What a verified token grants, how its caller is called, and when it ends."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from babelgate.gateway.authorization import Right
from babelgate.identities.errors import InvalidToken
from babelgate.identities.keys import ALGORITHMS
from babelgate.identities.terms import Holders, IssuerTerms, RightsRule
from tests.harness.issuer import digest, public_jwk, sign
from tests.unit.identities.conftest import RULES

SEND, LISTEN, MANAGE = Right.SEND, Right.LISTEN, Right.MANAGE
ORDERS, REPORTS, OTHER = "orders.new", "reports", "other"

CASES: dict[str, Any] = {
    "nothing": ({}, {}),
    "another value": ({"groups": ["teams", "tea", "TEAM"]}, {}),
    "a member of a list": ({"groups": ["a", "team", "b"]}, {ORDERS: {SEND, LISTEN}}),
    "the whole claim": ({"groups": "team"}, {ORDERS: {SEND, LISTEN}}),
    "a text with spaces that is no scope": ({"groups": "a team"}, {}),
    "a nested claim": (
        {"realm_access": {"roles": ["admin"]}},
        {queue: set(Right) for queue in (ORDERS, REPORTS, OTHER)},
    ),
    "the name of a nested claim": ({"realm_access.roles": ["admin"]}, {}),
    "a scope": ({"scope": "openid mq.read email"}, {REPORTS: {LISTEN}}),
    "a list of scopes": ({"scope": ["openid", "mq.all"]}, {REPORTS: {LISTEN}}),
    "a part of a scope": ({"scope": "mq.reader mq"}, {}),
    "several": ({"groups": ["team"], "sub": "robot"}, {ORDERS: {SEND, LISTEN, MANAGE}}),
    "an object": ({"groups": {"team": True}}, {}),
    "true": ({"groups": True}, {}),
    "members of other types": ({"groups": [None, 1, {"team": 1}, ["team"]]}, {}),
    "a text where an object is expected": ({"realm_access": "roles"}, {}),
    "a list where an object is expected": ({"realm_access": [{"roles": ["admin"]}]}, {}),
    "a thousand groups": ({"groups": [f"group-{n}" for n in range(1_000)] + ["team"]}, {ORDERS: {SEND, LISTEN}}),
}


@pytest.mark.parametrize("case", CASES)
async def test_claims_grant_what_the_rules_say_and_nothing_else(known, issuer, case):
    claims, granted = CASES[case]
    caller = await known.learn(issuer.token(**claims))
    assert {queue: caller.rights(queue) for queue in (ORDERS, REPORTS, OTHER)} == {
        queue: frozenset(granted.get(queue, ())) for queue in (ORDERS, REPORTS, OTHER)
    }


@pytest.mark.parametrize("algorithm", [each for each in ALGORITHMS if each not in ("RS384", "RS512", "PS384", "PS512")])
async def test_each_algorithm_is_verified(trust, issuer, algorithm):
    issuer.keys.clear()
    issuer.add_key("one", algorithm)
    known = await trust(issuer)
    assert (await known.learn(issuer.token())).name == "sso/ada"


@pytest.mark.parametrize("typ", [None, "JWT", "jwt", "at+jwt", "application/at+jwt"])
@pytest.mark.parametrize("audience", ["other", ["elsewhere", "babelgate"]])
async def test_types_and_audiences(known, issuer, typ, audience):
    assert await known.learn(issuer.token("", {"typ": typ}, aud=audience))


async def test_an_algorithm_that_is_not_configured_is_refused(trust, issuer):
    known = await trust(issuer, algorithms=("RS256",))
    with pytest.raises(InvalidToken, match="algorithm"):
        await known.learn(issuer.token())


async def test_an_issuer_without_names_of_keys(known, issuer):
    key, algorithm = issuer.keys.pop("first")
    issuer.replaced["/keys"] = json.dumps({"keys": [public_jwk(key)]}).encode()
    assert await known.learn(sign({"alg": algorithm}, json.dumps(issuer.claims()).encode(), key, algorithm))


async def test_without_a_name_of_the_key_two_keys_are_too_many(known, issuer):
    issuer.add_key("second")
    with pytest.raises(InvalidToken, match="names no key, and its issuer does not have exactly one"):
        await known.learn(issuer.token("second", {"kid": None}))


async def test_the_name_is_that_of_the_claim_after_the_prefix(trust, issuer):
    known = await trust(issuer, name_claim=("act", "client.id"), name_prefix="apps:")
    assert (await known.learn(issuer.token(act={"client.id": "shop"}))).name == "apps:shop"
    with pytest.raises(InvalidToken, match="names its holder"):
        await known.learn(issuer.token())


async def test_it_ends_with_the_token_and_the_leeway(trust, issuer):
    times = [1_000_000_000_000]
    known = await trust(issuer, clock=lambda: times[0], leeway_seconds=10)
    token = issuer.token(iat=None, exp=1_000_000_060)
    caller = await known.learn(token)
    assert caller.ends_at == 1_000_000_070
    times[0] += 69_999
    assert await known.learn(token) is caller
    times[0] += 1
    with pytest.raises(InvalidToken, match="expired"):
        await known.learn(token)


async def test_one_that_becomes_valid_is_accepted_then(trust, issuer):
    times = [1_000_000_000_000]
    known = await trust(issuer, clock=lambda: times[0], leeway_seconds=0)
    token = issuer.token(iat=None, nbf=1_000_000_060, exp=1_000_000_120)
    with pytest.raises(InvalidToken, match="not valid yet"):
        await known.learn(token)
    times[0] += 60_000
    assert await known.learn(token)


async def test_a_flood_of_valid_tokens_is_bounded(trust, issuer):
    known = await trust(issuer, max_identities=20)
    first = issuer.token(n=-1)
    await known.learn(first)
    known.callers["static"] = await known.learn(first)
    for number in range(100):
        await known.learn(issuer.token(n=number))
    assert len(known.callers) == 21 and "static" in known.callers
    # What was forgotten is verified again.
    assert (await known.learn(first)).name == "sso/ada"
    assert len(known.callers) == 21


async def test_what_has_ended_is_forgotten(trust, issuer):
    times = [int(time.time() * 1000)]
    known = await trust(issuer, clock=lambda: times[0])
    for number in range(5):
        await known.learn(issuer.token(n=number))
    await known.learn(issuer.token(exp=times[0] // 1000 + 9_000))
    times[0] += 4_000_000
    known.made._purge()
    assert len(known.callers) == len(known.made) == 1


def test_callers_with_the_same_rights_share_them():
    rules = [RightsRule(("a",), frozenset({"b"}), {"*": frozenset({SEND})})]
    holders = Holders(IssuerTerms("i", frozenset(), (), rules, "p/"))
    granted = holders.granted({"a": "b"})
    one, two = (holders.holder(granted, holders.name({"sub": name}), end) for name, end in (("x", 1.0), ("y", 2.0)))
    assert (one.name, one.ends_at, two.name, two.ends_at) == ("p/x", 1.0, "p/y", 2.0)
    assert one._grants is two._grants


async def test_a_ticket_is_one_for_processes_with_the_same_terms_and_key(trust, issuer):
    known, other = await trust(issuer), await trust(issuer)
    token = issuer.token(groups=["team"])
    await known.learn(token)
    await other.learn(issuer.token(n=1))
    ticket = known.made.ticket(digest(token))
    other.made.reopen(digest(token), ticket)
    caller = other.callers[digest(token)]
    assert (caller.name, caller.rights(ORDERS)) == ("sso/ada", {SEND, LISTEN})
    # It ends with the key, as if the token had been verified here.
    issuer.add_key("first")
    issuer.add_key("second")
    await other.learn(issuer.token("second"))
    assert caller.ends_at == 0.0
    other.made.reopen(digest(token), ticket)
    assert digest(token) not in other.callers
    changed = await trust(issuer, rules=RULES[1:])
    await changed.learn(issuer.token(n=2))
    changed.made.reopen(digest(token), ticket)
    assert digest(token) not in changed.callers
    assert known.made.ticket("0" * 64) == b""


async def test_a_ticket_ends_with_its_token(trust, issuer):
    times = [int(time.time() * 1000)]
    known = await trust(issuer, clock=lambda: times[0])
    token = issuer.token()
    await known.learn(token)
    ticket = known.made.ticket(digest(token))
    times[0] += 4_000_000
    known.made._purge()
    known.made.reopen(digest(token), ticket)
    assert not known.callers


async def test_a_ticket_counts_before_the_keys_are_read_and_until_they_are(trust, issuer):
    known = await trust(issuer)
    token = issuer.token()
    await known.learn(token)
    issuer.gate.clear()
    other = await trust(issuer)
    other.made.reopen(digest(token), known.made.ticket(digest(token)))
    caller = other.callers[digest(token)]
    issuer.add_key("first")
    issuer.gate.set()
    limit = time.monotonic() + 60
    while caller.ends_at != 0.0:
        assert time.monotonic() < limit
        await asyncio.sleep(0.05)
