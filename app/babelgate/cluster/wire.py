"""The JSON messages between gateways: settlements, their results, errors by the name of their class, rates, searches in
journals, paused queues, pushes, tokens, and configurations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic

import msgspec
from msgspec import Struct

from babelgate import errors
from babelgate.errors import BabelgateError, BrokerError, UnsupportedByBroker
from babelgate.gateway.loaded import ConfigurationAnswer, ConfigurationCall
from babelgate.gateway.merging import Finding, Inquiry
from babelgate.gateway.model import Action, Settlement, SettleResult
from babelgate.gateway.pauses import PauseChange
from babelgate.gateway.rates import RatesQuery
from babelgate.gateway.replicas import Identity
from babelgate.gateway.spreading import Change
from babelgate.jsontext import decoded
from babelgate.observe.rates import COUNTS, LANES, RatesReport
from babelgate.push.file import Version
from babelgate.tokens.file import MadeToken

IDENTITY_PATH = "/peer"
SETTLE_PATH = "/peer/settle"
METRICS_PATH = "/peer/metrics"
RATES_PATH = "/peer/rates"
SEARCH_PATH = "/peer/search"
PAUSES_PATH = "/peer/pauses"
PUSHES_PATH = "/peer/pushes"
TOKENS_PATH = "/peer/tokens"
CONFIGURATION_PATH = "/peer/configuration"
MAX_CALL_BYTES = 33_554_432
"""The largest body of one call: twice what a client may send in one request by default."""

Answer = Sequence[SettleResult] | BabelgateError


class SettleCall(Struct, frozen=True, array_like=True):
    """One settlement of leases of ``queue``; ``traceparent`` if it is traced."""

    queue: str
    settlement: Settlement
    traceparent: str | None = None


class SearchAnswer(Struct, frozen=True):
    """What a gateway found; None: it keeps no journal."""

    finding: Finding | None


class Told(Struct, Generic[Change], frozen=True, omit_defaults=True):
    """What a gateway sends, and what it is answered: changes, its incarnation, and maybe the digest of all that it
    knows. A gateway with the same digest answers with no changes."""

    incarnation: str
    changes: Sequence[Change]
    digest: str = ""


class PushQuestion(Struct, frozen=True):
    """The versions of pushes that a gateway has, by queue: what is newer? ``sealed``: pushes by queue that it has just
    changed, sealed because they have secrets; empty for none."""

    versions: Mapping[str, Version]
    sealed: str = ""


class PushAnswer(Struct, frozen=True):
    """What is newer there: pushes by queue, sealed. ``incarnation``: of the gateway that answers; empty for one of an
    earlier version, which does not read the pushes of a question."""

    sealed: str
    incarnation: str = ""


class _Error(Struct, frozen=True):
    kind: str
    detail: str
    facts: dict[str, Any]


class _Result(Struct, frozen=True, array_like=True):
    index: int
    action: Action
    error: _Error | None
    lease_expires_at: int | None
    dead_lettered: bool = False


_identities = msgspec.json.Decoder(Identity)
_calls = msgspec.json.Decoder(list[SettleCall])
_answers = msgspec.json.Decoder(list[list[_Result] | _Error])
_rates_queries = msgspec.json.Decoder(RatesQuery)
_rates = msgspec.json.Decoder(RatesReport)
_inquiries = msgspec.json.Decoder(Inquiry)
_findings = msgspec.json.Decoder(SearchAnswer)
_pauses = msgspec.json.Decoder(Told[PauseChange])
_push_questions = msgspec.json.Decoder(PushQuestion)
_push_answers = msgspec.json.Decoder(PushAnswer)
_token_exchanges = msgspec.json.Decoder(Told[MadeToken])
_configuration_calls = msgspec.json.Decoder(ConfigurationCall)
_configuration_answers = msgspec.json.Decoder(ConfigurationAnswer)
_encoder = msgspec.json.Encoder(enc_hook=str)


def _tree(root: type[BabelgateError]) -> Iterator[type[BabelgateError]]:
    yield root
    for below in root.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from _tree(below)


_CLASSES = {cls.__name__: cls for cls in _tree(BabelgateError)}


def decode_identity(body: bytes) -> Identity:
    """The identity in an answer. Raises msgspec.MsgspecError."""
    return decoded(_identities, body)


def decode_rates_query(body: bytes) -> RatesQuery:
    """The body of a call for rates. Raises msgspec.MsgspecError."""
    return decoded(_rates_queries, body)


def decode_rates(body: bytes) -> RatesReport:
    """The rates in an answer, of any process of this version. Raises msgspec.MsgspecError."""
    report = decoded(_rates, body)
    numbers = [*report.minutes.values(), *(each.lanes for each in report.queues)]
    if any(len(lanes) != LANES for lanes in numbers) or any(len(each.recent) != len(COUNTS) for each in report.queues):
        raise msgspec.ValidationError("the rates are not of this version")
    return report


def decode_inquiry(body: bytes) -> Inquiry:
    """What a peer asks for. Raises msgspec.MsgspecError."""
    return decoded(_inquiries, body)


def decode_finding(body: bytes) -> Finding | None:
    """What a peer found; None: it keeps no journal. Raises msgspec.MsgspecError."""
    return decoded(_findings, body).finding


def encode_told(exchange: Told[Any]) -> bytes:
    """The body of an exchange, or of its answer."""
    return _encoder.encode(exchange)


def decode_pauses(body: bytes) -> Told[PauseChange]:
    """What a peer knows of pauses. Raises msgspec.MsgspecError."""
    return decoded(_pauses, body)


def encode_push_question(question: PushQuestion) -> bytes:
    """The body of a call for pushes."""
    return _encoder.encode(question)


def decode_push_question(body: bytes) -> PushQuestion:
    """What a peer has of pushes. Raises msgspec.MsgspecError."""
    return decoded(_push_questions, body)


def encode_push_answer(sealed: str, incarnation: str) -> bytes:
    """The body of its answer."""
    return _encoder.encode(PushAnswer(sealed, incarnation))


def decode_push_answer(body: bytes) -> PushAnswer:
    """What a peer has newer of pushes. Raises msgspec.MsgspecError."""
    return decoded(_push_answers, body)


def decode_tokens(body: bytes) -> Told[MadeToken]:
    """What a peer sends of tokens. Raises msgspec.MsgspecError."""
    return decoded(_token_exchanges, body)


def decode_configuration_call(body: bytes) -> ConfigurationCall:
    """What a worker asks about configurations. Raises msgspec.MsgspecError."""
    return decoded(_configuration_calls, body)


def decode_configuration_answer(body: bytes) -> ConfigurationAnswer:
    """What a worker answers. Raises msgspec.MsgspecError."""
    return decoded(_configuration_answers, body)


def encode_call(queue: str, settlement: Settlement, traceparent: str | None = None) -> bytes:
    """One entry of a call's body."""
    return _encoder.encode(SettleCall(queue, settlement, traceparent))


def decode_calls(body: bytes) -> list[SettleCall]:
    """The settlements of a call. Raises msgspec.MsgspecError."""
    return decoded(_calls, body)


def encode_answers(answers: Sequence[Answer]) -> bytes:
    """The body of an answer: per settlement its results, or the error of the whole settlement."""
    return _encoder.encode(
        [
            _written(answer)
            if isinstance(answer, BabelgateError)
            else [
                _Result(
                    each.index,
                    each.action,
                    _written(each.error) if each.error is not None else None,
                    each.lease_expires_at,
                    each.dead_lettered,
                )
                for each in answer
            ]
            for answer in answers
        ]
    )


def decode_answers(body: bytes) -> list[Answer]:
    """The results or the error of each settlement. Raises msgspec.MsgspecError."""
    return [
        _rebuilt(answer)
        if isinstance(answer, _Error)
        else [
            SettleResult(
                each.index,
                each.action,
                _rebuilt(each.error) if each.error is not None else None,
                each.lease_expires_at,
                each.dead_lettered,
            )
            for each in answer
        ]
        for answer in decoded(_answers, body)
    ]


def _written(error: BabelgateError) -> _Error:
    facts = error.facts | {"code": error.problem_code} if isinstance(error, UnsupportedByBroker) else error.facts
    return _Error(type(error).__name__, error.detail, facts)


def _rebuilt(error: _Error) -> BabelgateError:
    """The error as the peer raised it; an error of an unknown class becomes a BrokerError with the same text."""
    try:
        return _CLASSES[error.kind](**error.facts)
    except (KeyError, TypeError):
        return BrokerError(broker=str(error.facts.get("broker", "")), reason=error.detail)
