"""Converts outcomes of the gateway to the results of an answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import msgspec

from babelgate.errors import BabelgateError, InternalError
from babelgate.gateway.model import Receipt, Replay, SettleResult
from babelgate.http.exchange import JSON, Exchange
from babelgate.http.parts import Parts
from babelgate.http.problems import CONTENT_TYPE, ResultsIncomplete, defects, detail_of, problem, status_of
from babelgate.http.schemas import EntryResult, SettleOutcome, TokenResult
from babelgate.http.spool import Spool
from babelgate.observe.log_throttle import LogThrottle
from babelgate.observe.logs import get_logger
from babelgate.runtime import turns

EXPLAINED_FAILURES = 100
"""Maximum failed entries of a batch with ``detail`` and ``errors``. Later ones have only code and status."""
LISTED_FAILURES = 10_000
"""Maximum failed entries of a batch with a result. Later ones are counted by code."""
_DEFECTS = 10
"""Maximum defects in the result of one entry."""
_ACCEPTED = "accepted"
"""Stands for the code of an accepted entry."""

_throttled = LogThrottle(get_logger(__name__))


class BatchResults:
    """The results of a batch as JSON text in ``spool``, because those of a long upload do not fit into memory.

    The number of results of failed entries is limited; further ones are only counted. So are those of any entry when
    the spool is full.
    """

    def __init__(self, spool: Spool) -> None:
        self.accepted = 0
        self.failed = 0
        self._omitted: Counter[str] = Counter()
        self._spool = spool

    async def add(self, outcomes: Sequence[Receipt | BabelgateError]) -> None:
        """Append the outcomes of the next chunk of entries."""
        results, text = await turns.run(self._results, outcomes, size=0, background=True)
        if text and not self._spool.append(b"," + text if self._spool.size else text):
            self._omitted.update(result.code or _ACCEPTED for result in results)

    def counts(self) -> dict[str, int]:
        """The numbers of accepted and failed entries."""
        return {"accepted": self.accepted, "failed": self.failed}

    async def answer(self, exchange: Exchange) -> None:
        """Send the results: 201 when all entries were accepted, else 207; 507 when the file system cannot keep them."""
        more: dict[str, object] = dict(self.counts())
        if self._omitted:
            more["omitted"] = self._omitted
        failure = self._spool.failure
        if failure is None:
            status, content_type, headers = 207 if self.failed else 201, JSON, None
            body = msgspec.json.encode(more)
        else:
            error = ResultsIncomplete(omitted=self._omitted.total(), reason=failure)
            status, headers, body = problem(error, exchange.path, more)
            exchange.error, content_type = error.problem_code, CONTENT_TYPE
        head, tail = body[:-1] + b',"results":[', b"]}"
        parts = Parts(len(head) + self._spool.size + len(tail), chain((head,), self._spool.parts(), (tail,)))
        await exchange.answer_parts(status, parts, headers, content_type)

    def _results(self, outcomes: Sequence[Receipt | BabelgateError]) -> tuple[list[EntryResult], bytes]:
        """The results of the next entries that have one, and their text."""
        if self._spool.is_full:
            self._count(outcomes)
            return [], b""
        results = [result for result in map(self._result, outcomes) if result is not None]
        return results, msgspec.json.encode(results)[1:-1]

    def _count(self, outcomes: Sequence[Receipt | BabelgateError]) -> None:
        codes = Counter(each.problem_code if isinstance(each, BabelgateError) else _ACCEPTED for each in outcomes)
        self._omitted += codes
        self.accepted += codes[_ACCEPTED]
        self.failed += len(outcomes) - codes[_ACCEPTED]

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
            found = defects(outcome)[:_DEFECTS]
        status, retryable = status_of(outcome), outcome.retryable
        return EntryResult(index, status, code=code, detail=detail, retryable=retryable, errors=found)


def log_defects(exchange: Exchange, queue: str, outcomes: Iterable[object]) -> None:
    """Log the unexpected errors among the ``outcomes`` of entries or tokens. Those of one call share theirs."""
    for outcome in outcomes:
        if isinstance(outcome, InternalError) and outcome.__cause__ is not None:
            ids: dict[str, Any] = {**exchange.ids()}
            _throttled.warning("entry failed", queue=queue, exc_info=outcome.__cause__, **ids)
            outcome.without_frames()


def settle_outcome(results: Sequence[SettleResult]) -> SettleOutcome:
    """The answer to a settle call."""
    tokens = [_token_result(result) for result in results]
    failed = sum(token.status != 200 for token in tokens)
    return SettleOutcome(len(tokens) - failed, failed, tokens)


def _token_result(result: SettleResult) -> TokenResult:
    error = result.error
    if error is None:
        dead_lettered = True if result.dead_lettered else None
        return TokenResult(
            result.index, result.action, 200, lease_expires_at=result.lease_expires_at, dead_lettered=dead_lettered
        )
    return TokenResult(
        result.index, result.action, status_of(error), error.problem_code, detail_of(error), error.retryable
    )
