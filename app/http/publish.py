"""Publish one message, or a batch."""

from __future__ import annotations

from collections.abc import Sequence
from tempfile import SpooledTemporaryFile

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import astuple

from app.errors import BodyTooLarge, EnvelopeSyntaxError, InvalidParameter, Problem, TooManyLines
from app.gateway.admission import Permit
from app.gateway.authorization import Right
from app.gateway.gateway import Access, Gateway
from app.gateway.model import Replay
from app.http.body import RequestLimits, media_type, read, require_json
from app.http.exchange import Exchange
from app.http.idempotency import REPLAYED, idempotency_key, no_idempotency_key
from app.http.jobs import entries, entry
from app.http.ndjson import CHUNK_BYTES, chunks
from app.http.problems import HttpError
from app.http.results import SPOOLED_BYTES, BatchResults
from app.http.schemas import MAX_ENTRIES, MAX_NESTED, NoParameters, PublishParameters, from_query, given
from app.http.upload import CHUNK_LINES, Upload
from app.runtime import turns

NDJSON = frozenset({b"application/x-ndjson", b"application/ndjson", b"application/jsonl", b"application/x-jsonlines"})

_NOTHING = PublishParameters()
_SOON_SPLIT_BYTES = 4_194_304
"""An array up to this size is split in less than 10 ms, whatever it holds."""


class Publishing:
    """The endpoints that write."""

    def __init__(self, gateway: Gateway, limits: RequestLimits) -> None:
        self._gateway = gateway
        self._limits = limits

    async def one(self, exchange: Exchange) -> None:
        """Publish the body; 201 once it is durable."""
        query = exchange.scope["query_string"]
        asked = from_query(query, PublishParameters) if query else _NOTHING
        key = idempotency_key(exchange)
        require_json(exchange)
        access = self._access(exchange)
        with self._permit(exchange, access, self._limits.max_entry_bytes) as permit:
            body = await read(exchange, self._limits.max_entry_bytes, permit)
            receipt = await self._gateway.publish(
                exchange.caller,
                access,
                await entry(exchange, access.route.queue, body, self._gateway.clock),
                delay_seconds=given(asked.delay_seconds),
                ordering_key=given(asked.ordering_key),
                trace=exchange.trace,
                idempotency_key=key,
                sent=body,
            )
        headers = REPLAYED if type(receipt) is Replay else None
        await exchange.answer(201, msgspec.json.encode(receipt), headers=headers)

    async def batch(self, exchange: Exchange) -> None:
        """Publish the entries of a JSON array or of NDJSON lines, in order and in chunks; 201 when all were accepted,
        else 207. The answer starts after the last entry."""
        from_query(exchange.scope["query_string"], NoParameters)
        no_idempotency_key(exchange)
        with SpooledTemporaryFile(max_size=SPOOLED_BYTES) as spool:
            results = BatchResults(spool)
            if media_type(exchange) in NDJSON:
                await self._lines(exchange, results)
            else:
                require_json(exchange)
                await self._array(exchange, results)
                await results.answer(exchange)

    async def _array(self, exchange: Exchange, results: BatchResults) -> None:
        access = self._access(exchange)
        with self._permit(exchange, access, self._limits.max_request_bytes) as permit:
            body = await read(exchange, self._limits.max_request_bytes, permit)
            await _check_nested(body)
            array = await turns.run(_entries, body, size=0)
            upload = Upload(exchange, access, self._gateway)
            # An empty array is asked for its rights and its route as well.
            for start in range(0, max(len(array), 1), CHUNK_LINES):
                bodies = await turns.run(_copied, array[start : start + CHUNK_LINES], size=0)
                await results.add(await upload.publish(await entries(exchange, bodies, self._gateway.clock)))

    async def _lines(self, exchange: Exchange, results: BatchResults) -> None:
        """What was published stays so when the upload breaks off, and when it turns out too long or badly packed: that
        problem then says how many entries were accepted before."""
        access = self._access(exchange)
        with self._permit(exchange, access, CHUNK_BYTES + self._limits.max_entry_bytes, CHUNK_BYTES):
            upload = Upload(exchange, access, self._gateway)
            try:
                async for chunk in chunks(exchange, self._limits):
                    await results.add(await upload.publish(chunk))
            except (BodyTooLarge, TooManyLines, HttpError) as error:
                await exchange.fail(error, results.counts())
            else:
                await results.answer(exchange)

    def _access(self, exchange: Exchange) -> Access:
        return self._gateway.access(exchange.caller, Right.SEND, exchange.queue)

    def _permit(self, exchange: Exchange, access: Access, most: int, usual: int = 0) -> Permit:
        """Room for a body of which at most ``most`` bytes are held, and ``usual`` where its head does not tell: rights,
        route and load are checked before it is read."""
        size = usual if b"content-encoding" in exchange.headers else exchange.announced or usual
        return self._gateway.admission.publish(access.route.broker, min(size, most))


# Of an array that is too long the decoder keeps no more than these, however many tiny entries it holds.
_Entries: type[Struct] = msgspec.defstruct(
    "_Entries",
    [(f"entry_{number}", msgspec.Raw | UnsetType, UNSET) for number in range(MAX_ENTRIES)],
    array_like=True,
    forbid_unknown_fields=True,
    gc=False,
)
_decoder = msgspec.json.Decoder(_Entries)


async def _check_nested(body: bytes) -> None:
    """Raise InvalidParameter for a large array with so many objects and arrays in it that it takes long to split."""
    if len(body) > _SOON_SPLIT_BYTES:
        count = await turns.run(body.count, b"{", size=0) + await turns.run(body.count, b"[", size=0)
        if count > MAX_NESTED:
            reason = f"more than {MAX_NESTED} objects and arrays in one JSON array; send them as application/x-ndjson"
            raise InvalidParameter(name="body", reason=reason, pointer="")


def _copied(entries: Sequence[msgspec.Raw]) -> list[bytes]:
    return [bytes(entry) for entry in entries]


def _entries(body: bytes) -> list[msgspec.Raw]:
    """The texts of the elements of a JSON array; each is checked on its own afterwards."""
    try:
        decoded = _decoder.decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        # Anything fits an entry, so that only their number can be wrong with an array.
        if isinstance(error, msgspec.ValidationError) and body.lstrip()[:1] == b"[":
            reason = f"more than {MAX_ENTRIES} entries in one JSON array; send them as application/x-ndjson"
            raise InvalidParameter(name="body", reason=reason, pointer="") from None
        detail = f"The body is not one JSON array: {error}."
        raise EnvelopeSyntaxError([Problem("", "invalid_json", detail)]) from None
    return [entry for entry in astuple(decoded) if isinstance(entry, msgspec.Raw)]
