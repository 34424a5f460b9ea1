"""A real issuer, and the identities of a gateway that trusts it."""

from __future__ import annotations

import pytest

from babelgate.clock import now_ms
from babelgate.gateway.authorization import Caller, Right
from babelgate.identities.fetching import Documents
from babelgate.identities.identities import Identities
from babelgate.identities.issuer import Issuer
from babelgate.identities.keys import ALGORITHMS
from babelgate.identities.terms import IssuerTerms, RightsRule
from tests.harness.issuer import AUDIENCE, digest, running

RULES = [
    RightsRule(("groups",), frozenset({"team"}), {"orders.*": frozenset({Right.SEND, Right.LISTEN})}),
    RightsRule(("realm_access", "roles"), frozenset({"admin"}), {"*": frozenset(Right)}),
    RightsRule(("scope",), frozenset({"mq.read", "mq.all"}), {"reports": frozenset({Right.LISTEN})}),
    RightsRule(("sub",), frozenset({"robot"}), {"orders.*": frozenset({Right.MANAGE})}),
]


class Known:
    """Identities, and the callers that they know by their tokens."""

    def __init__(self, made, callers):
        self.made = made
        self.callers = callers

    async def learn(self, token):
        await self.made.learn(token.encode() if isinstance(token, str) else token)
        return self.callers[digest(token if isinstance(token, str) else token.decode())]


@pytest.fixture
def issuer():
    with running() as found:
        yield found


@pytest.fixture
async def trust():
    """A function of an issuer that starts the identities of a gateway that trusts it."""
    started = []

    async def make(issuer, *, clock=None, max_identities=100, least_pause_seconds=0.2, jwks_url=None, **terms):
        given = {
            "issuer": issuer.url,
            "audience": frozenset({AUDIENCE, "other"}),
            "algorithms": ALGORITHMS,
            "rules": RULES,
            "name_prefix": "sso/",
            **terms,
        }
        callers: dict[str, Caller] = {}
        one = Issuer(IssuerTerms(**given), Documents(issuer.url, jwks_url).keys, least_pause_seconds)
        identities = Identities([one], callers, clock or now_ms, max_identities)
        await identities.start()
        started.append(identities)
        return Known(identities, callers)

    yield make
    for each in started:
        await each.close()


@pytest.fixture
async def known(trust, issuer):
    return await trust(issuer)
