"""The private API between gateways. All requests and answers are signed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
from starlette.types import Receive, Scope, Send

from babelgate.cluster.signing import ANYBODY, HEADER, Proof, Signer
from babelgate.cluster.wire import (
    CONFIGURATION_PATH,
    IDENTITY_PATH,
    MAX_CALL_BYTES,
    METRICS_PATH,
    PAUSES_PATH,
    PUSHES_PATH,
    RATES_PATH,
    SEARCH_PATH,
    SETTLE_PATH,
    TOKENS_PATH,
    Answer,
    PushQuestion,
    SearchAnswer,
    SettleCall,
    Told,
    decode_calls,
    decode_configuration_call,
    decode_inquiry,
    decode_pauses,
    decode_push_question,
    decode_rates_query,
    decode_tokens,
    encode_answers,
    encode_push_answer,
    encode_told,
)
from babelgate.errors import BabelgateError, InvalidParameter, LeaseLost, Unauthenticated
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.replicas import Identity
from babelgate.http.body import read
from babelgate.http.exchange import JSON, Exchange, carry_out
from babelgate.http.heads import path_of
from babelgate.http.problems import CONTENT_TYPE as PROBLEM
from babelgate.http.problems import MethodNotAllowed, NotFound, problem
from babelgate.http.results import log_defects
from babelgate.tokens.tokens import Tokens

METHODS = {
    CONFIGURATION_PATH: "POST",
    IDENTITY_PATH: "GET",
    METRICS_PATH: "GET",
    PAUSES_PATH: "POST",
    PUSHES_PATH: "POST",
    RATES_PATH: "POST",
    SEARCH_PATH: "POST",
    SETTLE_PATH: "POST",
    TOKENS_PATH: "POST",
}
_SIGNATURE = HEADER.encode()
ProcessMetrics = Callable[[], Awaitable[bytes]]
NewerPushes = Callable[[PushQuestion], Awaitable[str]]

_ROOM = "(peers)"
"""The name under which admission counts calls of peers. No broker can have it."""


class PeerApi:
    """Reports identity, metrics and rates of this process, searches in its journal, exchanges which queues are paused
    and which tokens there are, hands on pushes, agrees on a configuration with other workers, and settles its own
    deliveries.

    Never forwards a call.
    """

    def __init__(
        self,
        gateway: Gateway,
        signer: Signer,
        metrics: ProcessMetrics | None = None,
        pushes: NewerPushes | None = None,
        tokens: Tokens | None = None,
    ) -> None:
        """``metrics``: returns the metrics of this process, for another worker. ``pushes``: keeps what a peer
        has changed, and returns what it does not have, sealed. Raises msgspec.MsgspecError or ValueError for what no
        peer has sealed. ``tokens`` None: this process makes none."""
        self._gateway = gateway
        self._signer = signer
        self._metrics = metrics
        self._pushes = pushes
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        exchange = Exchange(scope, receive, send, path_of(scope["raw_path"]))
        await carry_out(exchange, self._serve)

    async def _serve(self, exchange: Exchange) -> None:
        method = METHODS.get(exchange.path)
        if method is None:
            raise NotFound(path=exchange.path)
        if exchange.scope["method"] != method:
            raise MethodNotAllowed(allow=method)
        # The signature covers a digest of the body, so it is checked before the body is read.
        proof = self._signer.verify(method, exchange.path, exchange.headers.get(_SIGNATURE, b""))
        with self._gateway.admission.other(_ROOM, min(exchange.announced, MAX_CALL_BYTES)) as permit:
            await self._take(exchange, proof, await read(exchange, MAX_CALL_BYTES, permit))

    async def _take(self, exchange: Exchange, proof: Proof, body: bytes) -> None:
        if not proof.covers(body):
            raise Unauthenticated
        if proof.target not in (self._gateway.incarnation, ANYBODY):
            status, _, text = problem(LeaseLost(), exchange.path)
            await _answer(exchange, proof, status, text, PROBLEM)
        elif exchange.path == IDENTITY_PATH:
            replicas = self._gateway.overview.replicas
            own = Identity(self._gateway.incarnation) if replicas is None else replicas.own
            await _answer(exchange, proof, 200, msgspec.json.encode(own))
        elif exchange.path == SEARCH_PATH:
            await _answer(exchange, proof, 200, await self._found(body))
        elif exchange.path == PAUSES_PATH:
            await _answer(exchange, proof, 200, await self._paused(body))
        elif exchange.path == PUSHES_PATH:
            if self._pushes is None:
                raise NotFound(path=exchange.path)
            await _answer(exchange, proof, 200, await self._newer(self._pushes, body))
        elif exchange.path == TOKENS_PATH:
            if self._tokens is None:
                raise NotFound(path=exchange.path)
            await _answer(exchange, proof, 200, await self._known(self._tokens, body))
        elif proof.target == ANYBODY:
            raise InvalidParameter(name="target", reason="this call needs the incarnation of one gateway")
        elif exchange.path == METRICS_PATH:
            if self._metrics is None:
                raise NotFound(path=exchange.path)
            await _answer(exchange, proof, 200, await self._metrics())
        elif exchange.path == RATES_PATH:
            await _answer(exchange, proof, 200, await self._rates(body))
        elif exchange.path == CONFIGURATION_PATH:
            await _answer(exchange, proof, 200, await self._configured(exchange, body))
        else:
            await _answer(exchange, proof, 200, await self._settled(exchange, body))

    async def _rates(self, body: bytes) -> bytes:
        try:
            query = decode_rates_query(body)
        except msgspec.MsgspecError:
            raise InvalidParameter(name="body", reason="is not a query for rates") from None
        return msgspec.json.encode(await self._gateway.rates.report(query))

    async def _paused(self, body: bytes) -> bytes:
        try:
            told = decode_pauses(body)
        except msgspec.MsgspecError:
            raise InvalidParameter(name="body", reason="is not what a gateway knows of paused queues") from None
        pauses = self._gateway.pauses
        # It may have asked itself.
        if told.incarnation != self._gateway.incarnation:
            await pauses.learn(told.changes)
        return encode_told(Told(self._gateway.incarnation, pauses.changes()))

    async def _newer(self, pushes: NewerPushes, body: bytes) -> bytes:
        try:
            newer = await pushes(decode_push_question(body))
        except (msgspec.MsgspecError, ValueError):
            raise InvalidParameter(name="body", reason="is not what a gateway has of pushes") from None
        return encode_push_answer(newer, self._gateway.incarnation)

    async def _known(self, tokens: Tokens, body: bytes) -> bytes:
        try:
            told = decode_tokens(body)
        except msgspec.MsgspecError:
            raise InvalidParameter(name="body", reason="is not what a gateway knows of tokens") from None
        # It may have asked itself.
        if told.incarnation != self._gateway.incarnation:
            await tokens.learn(told.changes)
        digest = tokens.digest()
        versions = () if told.digest == digest else tokens.versions()
        return encode_told(Told(self._gateway.incarnation, versions, digest))

    async def _configured(self, exchange: Exchange, body: bytes) -> bytes:
        loaded = self._gateway.overview.loaded
        if loaded is None or loaded.answer is None:
            raise NotFound(path=exchange.path)
        try:
            call = decode_configuration_call(body)
        except msgspec.MsgspecError:
            raise InvalidParameter(name="body", reason="is not what a worker asks about configurations") from None
        return msgspec.json.encode(await loaded.answer(call))

    async def _found(self, body: bytes) -> bytes:
        try:
            inquiry = decode_inquiry(body)
        except msgspec.MsgspecError:
            raise InvalidParameter(name="body", reason="is not a search of a gateway") from None
        return msgspec.json.encode(SearchAnswer(await self._gateway.history.here(inquiry)))

    async def _settled(self, exchange: Exchange, body: bytes) -> bytes:
        try:
            calls = decode_calls(body)
        except msgspec.MsgspecError:
            raise InvalidParameter(name="body", reason="is not a list of settle calls of a gateway") from None
        return encode_answers(await asyncio.gather(*(self._settle(exchange, call) for call in calls)))

    async def _settle(self, exchange: Exchange, call: SettleCall) -> Answer:
        try:
            results = await self._gateway.settle_here(call.queue, call.settlement, call.traceparent)
        except BabelgateError as error:
            return error
        log_defects(exchange, call.queue, (result.error for result in results))
        return results


async def _answer(exchange: Exchange, proof: Proof, status: int, body: bytes, content_type: bytes = JSON) -> None:
    signature = proof.of_answer(status, body).encode("ascii")
    await exchange.answer(status, body, content_type, [(_SIGNATURE, signature)])
