"""Converts outcomes of the gateway to the results of an answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import IO

import msgspec

from app.errors import BabelgateError
from app.gateway.model import Receipt, Replay, SettleResult
from app.http.exchange import PART_BYTES, Exchange, Parts
from app.http.problems import defects, detail_of, status_of
from app.http.schemas import Defect, EntryResult, SettleOutcome, TokenResult
from app.runtime import turns

EXPLAINED_FAILURES = 100
"""Maximum failed entries of a batch with ``detail`` and ``errors``. Later ones have only code and status."""
LISTED_FAILURES = 10_000
"""Maximum failed entries of a batch with a result. Later ones are counted by code."""
_DEFECTS = 10
"""Maximum defects in the result of one entry."""
SPOOLED_BYTES = 1_048_576
"""Results up to this size stay in memory; larger ones go to an unlinked temporary file."""


class BatchResults:
    """The results of a batch as JSON text in ``spool``, because those of a long upload do not fit into memory.

    The number of results of failed entries is limited; further ones are only counted.
    """

    def __init__(self, spool: IO[bytes]) -> None:
        self.accepted = 0
        self.failed = 0
        self._omitted: Counter[str] = Counter()
        self._spool = spool

    async def add(self, outcomes: Sequence[Receipt | BabelgateError]) -> None:
        """Append the outcomes of the next chunk of entries."""
        text = await turns.run(self._text, outcomes, size=0)
        if text:
            self._spool.write((b"," if self._spool.tell() else b"") + text)

    def counts(self) -> dict[str, int]:
        """The numbers of accepted and failed entries."""
        return {"accepted": self.accepted, "failed": self.failed}

    async def answer(self, exchange: Exchange) -> None:
        """Send the results: 201 when all entries were accepted, else 207."""
        omitted = b'"omitted":%b,' % msgspec.json.encode(self._omitted) if self._omitted else b""
        head = b'{"accepted":%d,"failed":%d,%b"results":[' % (self.accepted, self.failed, omitted)
        length = len(head) + self._spool.tell() + 2
        self._spool.seek(0)
        await exchange.answer_parts(207 if self.failed else 201, Parts(length, self._parts(head)))

    def _text(self, outcomes: Sequence[Receipt | BabelgateError]) -> bytes:
        results = [result for result in map(self._result, outcomes) if result is not None]
        return msgspec.json.encode(results)[1:-1]

    def _result(self, outcome: Receipt | BabelgateError) -> EntryResult | None:
        """The result of the next entry; None when it is only counted."""
        index = self.accepted + self.failed
        if isinstance(outcome, Receipt):
            self.accepted += 1
            replayed = True if type(outcome) is Replay else None
            return EntryResult(index, 201, outcome.id, outcome.trace_id, replayed=replayed)
        self.failed += 1
        code = outcome.problem_code
        if self.failed > LISTED_FAILURES:
            self._omitted[code] += 1
            return None
        detail = found = None
        if self.failed <= EXPLAINED_FAILURES:
            detail = detail_of(outcome)
            found = [Defect(defect.pointer, defect.code, defect.detail) for defect in defects(outcome)[:_DEFECTS]]
        status, retryable = status_of(outcome), outcome.retryable
        return EntryResult(index, status, code=code, detail=detail, retryable=retryable, errors=found)

    def _parts(self, head: bytes) -> Iterator[bytes]:
        yield head
        while part := self._spool.read(PART_BYTES):
            yield part
        yield b"]}"


def settle_outcome(results: Sequence[SettleResult]) -> SettleOutcome:
    """The answer to a settle call."""
    tokens = [_token_result(result) for result in results]
    failed = sum(token.status != 200 for token in tokens)
    return SettleOutcome(len(tokens) - failed, failed, tokens)


def _token_result(result: SettleResult) -> TokenResult:
    error = result.error
    if error is None:
        return TokenResult(result.index, result.action, 200, lease_expires_at=result.lease_expires_at)
    return TokenResult(
        result.index, result.action, status_of(error), error.problem_code, detail_of(error), error.retryable
    )
