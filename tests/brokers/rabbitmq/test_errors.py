"""Every error of the AMQP libraries has its place in the map."""

from __future__ import annotations

import inspect
from types import ModuleType

import pytest
from aiormq import exceptions as aiormq
from pamqp import exceptions as pamqp

from babelgate.brokers.rabbitmq.channel import ChannelGone
from babelgate.brokers.rabbitmq.confirms import Nacked, Returned
from babelgate.brokers.rabbitmq.errors import BY_CLASS, translate
from babelgate.errors import BabelgateError, BrokerRejected, BrokerUnavailable, LeaseLost, OutcomeUnknown


def classes(module: ModuleType) -> list[type[Exception]]:
    return [
        found
        for _, found in inspect.getmembers(module, inspect.isclass)
        if issubclass(found, Exception) and found.__module__ == module.__name__
    ]


# One of them has two names.
CLASSES = [*dict.fromkeys([*classes(aiormq), *classes(pamqp), ChannelGone, Nacked, Returned])]


def test_the_libraries_have_errors() -> None:
    assert aiormq.ChannelPreconditionFailed in CLASSES and pamqp.AMQPNoRoute in CLASSES and len(CLASSES) > 45


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_each_class_is_mapped_by_itself(kind: type[Exception]) -> None:
    assert kind in BY_CLASS


def gone(cause: Exception) -> ChannelGone:
    error = ChannelGone("the channel ended")
    error.__cause__ = cause
    return error


REFUSED = aiormq.ChannelAccessRefused("ACCESS_REFUSED - access to queue 'q' refused for user 'shop'")


@pytest.mark.parametrize(
    ("error", "before", "after"),
    [
        (aiormq.ConnectionClosed(320, "CONNECTION_FORCED - broker forced"), BrokerUnavailable, OutcomeUnknown),
        (aiormq.AMQPConnectionError("Server connection reset"), BrokerUnavailable, OutcomeUnknown),
        (aiormq.ChannelInvalidStateError("closed"), BrokerUnavailable, OutcomeUnknown),
        (ConnectionRefusedError(111, "Connection refused"), BrokerUnavailable, OutcomeUnknown),
        (ChannelGone("closed"), BrokerUnavailable, OutcomeUnknown),
        (gone(aiormq.ConnectionClosed(320, "forced")), BrokerUnavailable, OutcomeUnknown),
        # What closed the channel may have been another's message.
        (gone(REFUSED), BrokerRejected, OutcomeUnknown),
        (REFUSED, BrokerRejected, BrokerRejected),
        (aiormq.ProbableAuthenticationError("ACCESS_REFUSED"), BrokerUnavailable, BrokerUnavailable),
        (Returned("NO_ROUTE"), BrokerRejected, BrokerRejected),
        (Nacked("refused"), BrokerUnavailable, OutcomeUnknown),
        (ValueError("the name of a header is too long"), BrokerRejected, BrokerRejected),
        (KeyError("a fault of this program"), BrokerUnavailable, OutcomeUnknown),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else repr(value)[:40],
)
def test_what_it_becomes(error: Exception, before: type[BabelgateError], after: type[BabelgateError]) -> None:
    for written, expected in ((False, before), (True, after)):
        translated = translate(error, "rabbit", written=written)
        assert type(translated) is expected
        assert translated.broker == "rabbit" and translated.reason


def test_an_argument_that_differs_is_explained() -> None:
    text = "PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'q' in vhost '/': received none"
    explained = translate(aiormq.ChannelPreconditionFailed(text), "rabbit", written=False)
    assert isinstance(explained, BrokerRejected)
    assert "x-queue-type" in explained.reason and "declare: passive" in explained.reason


def test_a_refused_login_is_named() -> None:
    refused = aiormq.ProbableAuthenticationError("ACCESS_REFUSED - Login was refused.")
    named = translate(refused, "rabbit", written=False)
    assert "login" in named.reason and not named.reason.endswith(".")


def test_ones_own_errors_stay_what_they_are() -> None:
    lost = LeaseLost()
    assert translate(lost, "rabbit", written=True) is lost


def test_a_class_of_a_later_version_counts_as_its_ancestor() -> None:
    class NewError(aiormq.ChannelAccessRefused):
        pass

    assert type(translate(NewError("x"), "rabbit", written=True)) is BrokerRejected
