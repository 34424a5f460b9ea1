"""The private API: it answers only signed calls, and only for the deliveries of this gateway."""

from __future__ import annotations

import hmac
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from babelgate.clock import now_ms
from babelgate.cluster.signing import ANYBODY, MAX_AGE_MS, Proof, Signer
from babelgate.cluster.wire import (
    IDENTITY_PATH,
    MAX_CALL_BYTES,
    PUSHES_PATH,
    RATES_PATH,
    SEARCH_PATH,
    SETTLE_PATH,
    PushAnswer,
    PushQuestion,
    decode_answers,
    decode_calls,
    decode_finding,
    decode_identity,
    decode_inquiry,
    decode_push_answer,
    decode_push_question,
    decode_rates,
    decode_rates_query,
    encode_call,
)
from babelgate.errors import InvalidAckToken, InvalidParameter
from babelgate.gateway.ack_tokens import TokenKey
from babelgate.gateway.model import Nack, Settlement, SettleResult
from babelgate.http.peer import METHODS, PeerApi
from babelgate.observe.metrics.instruments import decode as decode_metrics
from tests.harness.asgi import Call, part
from tests.harness.encodings import IN_STRINGS, broken
from tests.harness.replica import QUEUE, Replica
from tests.harness.world import KEYS, SIGNER

OTHER_KEY = TokenKey("test", b"a key of the same name that is another")


@pytest.fixture
async def replica(tmp_path: Path) -> AsyncIterator[Replica]:
    made = Replica(tmp_path)
    await made.gateway.start()
    yield made
    await made.gateway.close()


def settlement(*tokens: str) -> bytes:
    return b"[" + encode_call(QUEUE, Settlement(tokens)) + b"]"


async def call(replica: Replica, proof: Proof | None, method: str, path: str, body: bytes = b"", **parts: Any) -> Call:
    signed = {} if proof is None else {"babelgate_signature": proof.header}
    asked = Call(method, path, [part(body, more=False)], content_length=str(len(body)), **signed)
    return await asked.run(PeerApi(replica.gateway, SIGNER, **parts))


async def settle(replica: Replica, body: bytes, proof: Proof | None = None) -> Call:
    proof = proof or SIGNER.sign("POST", SETTLE_PATH, replica.gateway.incarnation, body)
    return await call(replica, proof, "POST", SETTLE_PATH, body)


async def test_it_says_who_it_is(replica: Replica) -> None:
    proof = SIGNER.sign("GET", IDENTITY_PATH, ANYBODY, b"")
    answer = await call(replica, proof, "GET", IDENTITY_PATH)
    assert (answer.status, answer.json()) == (200, {"incarnation": replica.gateway.incarnation})
    assert proof.is_answered_by(answer.headers["babelgate-signature"], 200, answer.body)


async def test_it_settles_what_it_handed_out(replica: Replica) -> None:
    first, second = await replica.tokens(2)
    answer = await settle(replica, settlement(first, second))
    assert answer.status == 200
    assert decode_answers(answer.body) == [[SettleResult(0, "ack"), SettleResult(1, "ack")]]
    assert await replica.held() == 0


async def test_settlements_of_several_callers_are_answered_one_by_one(replica: Replica) -> None:
    token = await replica.token()
    unknown = encode_call("no such queue!", Settlement([token]))
    body = b"[%b,%b,%b]" % (unknown, encode_call(QUEUE, Settlement([token])), encode_call(QUEUE, Settlement(["x"])))
    unheard, done, forged = decode_answers((await settle(replica, body)).body)
    assert type(unheard) is InvalidParameter
    assert isinstance(done, list)
    assert isinstance(forged, list)
    assert [type(result.error) for result in (*done, *forged)] == [type(None), InvalidAckToken]


class TestSignatures:
    """Nothing but a fresh request of a holder of the key, for this gateway and as it was signed, is served."""

    async def refused(self, replica: Replica, proof: Proof | None, body: bytes) -> None:
        signed = {} if proof is None else {"babelgate_signature": proof.header}
        asked = Call("POST", SETTLE_PATH, [part(body, more=False)], content_length=str(len(body)), **signed)
        await asked.run(PeerApi(replica.gateway, SIGNER))
        assert (asked.status, asked.json()["code"]) == (401, "unauthenticated")
        assert "babelgate-signature" not in asked.headers
        assert await replica.held() == 1

    async def test_none(self, replica: Replica) -> None:
        await self.refused(replica, None, settlement(await replica.token()))

    @pytest.mark.parametrize("keys", [[OTHER_KEY], [TokenKey("unknown", KEYS[0].secret)]], ids=["forged", "unknown id"])
    async def test_of_another_key(self, replica: Replica, keys: list[TokenKey]) -> None:
        body = settlement(await replica.token())
        proof = Signer(keys, now_ms).sign("POST", SETTLE_PATH, replica.gateway.incarnation, body)
        await self.refused(replica, proof, body)

    async def test_of_the_token_key_itself(self, replica: Replica) -> None:
        """Whoever holds a token has seen a mac of that key; it must be good for nothing here."""
        body = settlement(await replica.token())
        text = SIGNER.sign("POST", SETTLE_PATH, replica.gateway.incarnation, body).header.rpartition(" ")[0]
        mac = hmac.digest(KEYS[0].secret, f"POST {SETTLE_PATH} {text}".encode(), "sha256").hex()
        await self.refused(replica, Proof(hmac.new(b"x", digestmod="sha256"), f"{text} {mac}", "", "", mac), body)

    async def test_of_another_body(self, replica: Replica) -> None:
        token = await replica.token()
        proof = SIGNER.sign("POST", SETTLE_PATH, replica.gateway.incarnation, settlement("x"))
        await self.refused(replica, proof, settlement(token))

    async def test_of_another_request(self, replica: Replica) -> None:
        body = settlement(await replica.token())
        proof = SIGNER.sign("GET", IDENTITY_PATH, replica.gateway.incarnation, body)
        await self.refused(replica, proof, body)

    @pytest.mark.parametrize("skew", [-MAX_AGE_MS - 1000, MAX_AGE_MS + 1000], ids=["old", "from the future"])
    async def test_of_another_time(self, replica: Replica, skew: int) -> None:
        body = settlement(await replica.token())
        proof = Signer(KEYS, lambda: now_ms() + skew).sign("POST", SETTLE_PATH, replica.gateway.incarnation, body)
        await self.refused(replica, proof, body)

    @pytest.mark.parametrize("header", ["", "x", "test 1 2 3 4 5", "a b c d e f g", "\xff" * 9])
    async def test_no_signature_at_all(self, replica: Replica, header: str) -> None:
        proof = Proof(hmac.new(b"x", digestmod="sha256"), header, "", "", "")
        await self.refused(replica, proof, settlement(await replica.token()))

    async def test_what_a_stranger_sends_is_not_read_first(self, replica: Replica) -> None:
        asked = Call("POST", SETTLE_PATH, [part(b"["), part(b"]", more=False)], content_length="1000000")
        await asked.run(PeerApi(replica.gateway, SIGNER))
        assert (asked.status, asked.log[0]) == (401, "wrote")


async def test_a_request_for_another_is_declined(replica: Replica) -> None:
    body = settlement(await replica.token())
    proof = SIGNER.sign("POST", SETTLE_PATH, "feedfeedfeedfeed", body)
    answer = await settle(replica, body, proof)
    assert (answer.status, answer.json()["code"], await replica.held()) == (409, "lease_lost", 1)
    assert proof.is_answered_by(answer.headers["babelgate-signature"], 409, answer.body)


async def test_a_settlement_for_anybody_is_for_nobody(replica: Replica) -> None:
    body = settlement(await replica.token())
    answer = await settle(replica, body, SIGNER.sign("POST", SETTLE_PATH, ANYBODY, body))
    assert (answer.status, await replica.held()) == (400, 1)


async def test_the_same_request_again_ends_nothing_anew(replica: Replica) -> None:
    token = await replica.token()
    body = settlement(token)
    proof = SIGNER.sign("POST", SETTLE_PATH, replica.gateway.incarnation, body)
    assert (await settle(replica, body, proof)).status == 200
    assert await replica.held() == 0
    fresh = await replica.token()
    assert fresh != token
    await settle(replica, body, proof)
    assert await replica.held() == 1


async def test_an_answer_is_good_for_its_request_only(replica: Replica) -> None:
    proofs = [SIGNER.sign("GET", IDENTITY_PATH, ANYBODY, b"") for _ in range(2)]
    answer = await call(replica, proofs[0], "GET", IDENTITY_PATH)
    signature = answer.headers["babelgate-signature"]
    assert proofs[0].is_answered_by(signature, 200, answer.body)
    assert not proofs[0].is_answered_by(signature, 409, answer.body)
    assert not proofs[0].is_answered_by(signature, 200, answer.body + b" ")
    assert not proofs[1].is_answered_by(signature, 200, answer.body)
    assert not proofs[0].is_answered_by("\u20ac", 200, answer.body)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/queues", 404),
        ("GET", SETTLE_PATH, 405),
        ("POST", IDENTITY_PATH, 405),
        ("POST", SETTLE_PATH.replace("r/", "r%2F"), 404),
    ],
)
async def test_nothing_else_is_there(replica: Replica, method: str, path: str, status: int) -> None:
    answer = await call(replica, SIGNER.sign(method, path, ANYBODY, b""), method, path)
    assert answer.status == status


async def rates(replica: Replica, body: bytes) -> Call:
    proof = SIGNER.sign("POST", RATES_PATH, replica.gateway.incarnation, body)
    return await call(replica, proof, "POST", RATES_PATH, body)


@pytest.mark.parametrize("body", [b"{}", b'{"queue":"q"}', b'{"patterns":["*"]}', b'{"patterns":["q*"]}'])
async def test_it_says_what_happened_here(replica: Replica, body: bytes) -> None:
    answer = await rates(replica, body)
    assert answer.status == 200
    assert decode_rates(answer.body) == await replica.gateway.rates.report(decode_rates_query(body))


@pytest.mark.parametrize("body", [b"", b"[]", b'{"queue":1}', b'{"patterns":"*"}'])
async def test_a_body_that_is_no_query_for_rates(replica: Replica, body: bytes) -> None:
    answer = await rates(replica, body)
    assert (answer.status, json.loads(answer.body)["code"]) == (400, "invalid_parameter")


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b'{"query":{},"limit":"x"}'])
async def test_a_body_that_is_no_search(replica: Replica, body: bytes) -> None:
    answer = await call(replica, SIGNER.sign("POST", SEARCH_PATH, ANYBODY, body), "POST", SEARCH_PATH, body)
    assert (answer.status, json.loads(answer.body)["code"]) == (400, "invalid_parameter")


async def test_a_search_needs_no_incarnation(replica: Replica) -> None:
    """The peers at an address are not known, and a search changes nothing. This gateway keeps no journal."""
    body = b'{"query":{},"limit":1,"cursor":null,"files":""}'
    proof = SIGNER.sign("POST", SEARCH_PATH, ANYBODY, body)
    answer = await call(replica, proof, "POST", SEARCH_PATH, body)
    assert (answer.status, answer.json()) == (200, {"finding": None})
    assert proof.is_answered_by(answer.headers["babelgate-signature"], 200, answer.body)


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b'[["q",{"acks":"x"}]]'])
async def test_a_body_that_is_no_settlement(replica: Replica, body: bytes) -> None:
    answer = await settle(replica, body)
    assert (answer.status, json.loads(answer.body)["code"]) == (400, "invalid_parameter")


async def test_a_body_that_is_too_large(replica: Replica) -> None:
    proof = SIGNER.sign("POST", SETTLE_PATH, replica.gateway.incarnation, b"")
    asked = Call("POST", SETTLE_PATH, content_length=str(MAX_CALL_BYTES + 1), babelgate_signature=proof.header)
    await asked.run(PeerApi(replica.gateway, SIGNER))
    assert asked.status == 413


@pytest.mark.parametrize("path", METHODS)
async def test_no_encoding_of_a_signed_call_is_a_failure(replica: Replica, path: str) -> None:
    async def metrics() -> bytes:
        return b"[]"

    api, method = PeerApi(replica.gateway, SIGNER, metrics), METHODS[path]
    wanted = Settlement([await replica.token()], [Nack(["x"], error="größe", exception="größe")])
    for name, body in broken([b"[" + encode_call(QUEUE, wanted, "00-0-0-0") + b"]"]):
        proof = SIGNER.sign(method, path, replica.gateway.incarnation, body.data)
        fields = {name.lower().replace("-", "_"): value for name, value in body.fields.items()}
        call = Call(method, path, [part(body.data, more=False)], babelgate_signature=proof.header, **fields)
        await call.run(api)
        assert 200 <= call.status < 500, (name, call.body)
        json.loads(call.body.decode())


TEXTS = {name: b'"%b"' % text for name, text in IN_STRINGS.items()} | {
    "too deep": b"[" * 100_000,
    "no text": b"\xff",
    "a mark": b"\xef\xbb\xbf[]",
    "nothing": b"",
}


@pytest.mark.parametrize(
    ("read", "around"),
    [
        (decode_calls, b"[[%b,1]]"),
        (decode_answers, b'[{"kind":%b,"detail":"","facts":1}]'),
        (decode_identity, b'{"incarnation":[%b]}'),
        (decode_rates_query, b'{"queue":[%b]}'),
        (decode_rates, b'{"began":1,"complete_since":1,"minutes":{"1":[%b]}}'),
        (decode_metrics, b"[[%b,1]]"),
        (decode_inquiry, b'{"query":%b,"limit":"x"}'),
        (decode_finding, b'{"finding":[%b]}'),
    ],
    ids=["calls", "answers", "identity", "rates query", "rates", "metrics", "searches", "findings"],
)
def test_what_no_peer_sends_is_no_message(read: Callable[[bytes], object], around: bytes) -> None:
    """Each of these is wrong in another member, too, so that none of them is read."""
    for name, text in TEXTS.items():
        for body in (text, around % text):
            try:
                found = read(body)
            except msgspec.MsgspecError:
                continue
            pytest.fail(f"{name} was read as {found}")


async def test_it_answers_what_is_newer_of_pushes(replica: Replica) -> None:
    async def ask(body: bytes, **parts: Any) -> Call:
        return await call(replica, SIGNER.sign("POST", PUSHES_PATH, ANYBODY, body), "POST", PUSHES_PATH, body, **parts)

    async def newer(question: PushQuestion) -> str:
        if question.sealed:
            raise ValueError("it is sealed with an unknown key")
        return f"sealed {question.versions['q']}"

    body = b'{"versions":{"q":[1,"a"]}}'
    answer = await ask(body, pushes=newer)
    expected = PushAnswer("sealed (1, 'a')", replica.gateway.incarnation)
    assert (answer.status, decode_push_answer(answer.body)) == (200, expected)
    assert (await ask(body)).status == 404, "this process has none"
    for bad in (b"[]", b'{"versions":{"q":[1]}}', b"\xff", b'{"versions":{},"sealed":"k:?"}'):
        assert (await ask(bad, pushes=newer)).status == 400
    assert (await call(replica, None, "POST", PUSHES_PATH, body)).status == 401
    with pytest.raises(msgspec.MsgspecError):
        decode_push_question(b"{}")
