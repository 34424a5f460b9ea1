"""The gateway's outcomes as the results of an answer."""

from __future__ import annotations

from collections.abc import Sequence

from app.errors import BabelgateError
from app.http.problems import defects, status_of
from app.http.schemas import Defect, EntryResult, SettleOutcome, TokenResult
from app.model import Receipt, Replay, SettleResult


def entry_result(index: int, outcome: Receipt | BabelgateError) -> EntryResult:
    """The result of entry ``index`` of a batch."""
    if isinstance(outcome, Receipt):
        replayed = True if type(outcome) is Replay else None
        return EntryResult(index, 201, outcome.id, outcome.trace_id, replayed=replayed)
    found = [Defect(defect.pointer, defect.code, defect.detail) for defect in defects(outcome)]
    status, code = status_of(outcome), outcome.problem_code
    return EntryResult(index, status, code=code, detail=outcome.detail, retryable=outcome.retryable, errors=found)


def settle_outcome(results: Sequence[SettleResult]) -> SettleOutcome:
    """The answer to a settle call."""
    tokens = [_token_result(result) for result in results]
    failed = sum(token.status != 200 for token in tokens)
    return SettleOutcome(len(tokens) - failed, failed, tokens)


def _token_result(result: SettleResult) -> TokenResult:
    error = result.error
    if error is None:
        return TokenResult(result.index, result.action, 200, lease_expires_at=result.lease_expires_at)
    told = error.problem_code, error.detail, error.retryable
    return TokenResult(result.index, result.action, status_of(error), *told)
