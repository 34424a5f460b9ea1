"""Translates the errors of a broker's client into errors of :mod:`babelgate.errors`, and makes those of its limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from babelgate.brokers.binding import Outgoing
from babelgate.brokers.header_rules import header_refusal
from babelgate.errors import BabelgateError, BodyTooLarge, BrokerError, BrokerUnavailable, OutcomeUnknown

ErrorKind = type[BabelgateError]
Each = TypeVar("Each")


@dataclass(frozen=True, slots=True)
class ErrorMap:
    """The errors of one client.

    ``by_class``: the nearest ancestor of an error's class counts; OutcomeUnknown where the client's error leaves open
    whether the broker has processed a request. ``reason``: the error's text as a part of a sentence, without a full
    stop and without message bodies. ``by_content``: the kind for an error whose class says too little (a reply's code,
    a result code, an errno); None: its class decides. ``otherwise``: the kind for a class without an ancestor here.
    """

    by_class: Mapping[type[BaseException], ErrorKind]
    reason: Callable[[BaseException], str]
    by_content: Callable[[BaseException], ErrorKind | None] = lambda error: None
    otherwise: ErrorKind = OutcomeUnknown

    def translate(self, broker: str, error: BaseException, *, written: bool) -> BabelgateError:
        """The error of this project for ``error``, which is returned as it is when it is one already.

        ``written``: something may have been written to the broker. Where nothing was, OutcomeUnknown becomes
        BrokerUnavailable.
        """
        if isinstance(error, BabelgateError):
            return error
        kind = self.by_content(error) or self._by_class(error)
        if kind is OutcomeUnknown and not written:
            kind = BrokerUnavailable
        return kind(broker=broker, reason=self.reason(error))

    def _by_class(self, error: BaseException) -> ErrorKind:
        ancestors = type(error).__mro__
        return next((self.by_class[base] for base in ancestors if base in self.by_class), self.otherwise)


class Translate(Protocol):
    """The translation of one binding: see :meth:`ErrorMap.translate`."""

    def __call__(self, error: BaseException, broker: str, *, written: bool) -> BabelgateError: ...


@contextmanager
def translating(translate: Translate, broker: str, *, written: bool = False) -> Iterator[None]:
    """Raise the errors of a client in the block as those of this project. ``written``: see :class:`ErrorMap`."""
    try:
        yield
    except BabelgateError:
        raise
    except Exception as error:
        raise translate(error, broker, written=written) from error


def nothing_written(error: BrokerError) -> BrokerError:
    """``error`` of a call that writes nothing: an OutcomeUnknown becomes BrokerUnavailable."""
    if isinstance(error, OutcomeUnknown):
        return BrokerUnavailable(broker=error.broker, reason=error.reason)
    return error


def failure_for_each(error: BabelgateError, count: int) -> list[Any]:
    """``count`` times ``error``, without its frames: the outcomes of a call that failed for all of its items."""
    return [error.without_frames()] * count


async def for_each(call: Awaitable[Sequence[Each]], count: int) -> Sequence[Each | BabelgateError]:
    """The outcomes of ``call``, one for each of ``count`` items. Its error is the outcome of all of them."""
    try:
        return await call
    except BabelgateError as error:
        return failure_for_each(error, count)


def too_large(message: Outgoing, excess: int, broker: str) -> BabelgateError:
    """The error of a message that has ``excess`` bytes more than the broker takes of body and headers together.

    The larger part is what the client has to change. A copy is always BodyTooLarge: its headers are those of the
    delivery, and a dead letter can be made shorter.
    """
    body = len(message.body)
    headers = sum(len(name.encode()) + len(value.encode()) for name, value in message.headers.items())
    if message.is_copy or headers <= body:
        return BodyTooLarge(actual=body, limit=max(body - excess, 0))
    room = max(headers - excess, 0)
    why = f"all headers together have {headers} bytes, and at most {room} are possible beside this body"
    return header_refusal(broker, "/headers", why)
