"""Every error condition of AMQP has its place in the map."""

from __future__ import annotations

import struct

import pytest

from babelgate.brokers.artemis.errors import BY_CONDITION, ConnectionLost, NotSent, Refused, translate
from babelgate.errors import BabelgateError, BrokerRejected, BrokerUnavailable, OutcomeUnknown, StorageFull

# Sections 2.8.15 to 2.8.18 of the specification.
SPECIFIED = """
amqp:internal-error amqp:not-found amqp:unauthorized-access amqp:decode-error amqp:resource-limit-exceeded
amqp:not-allowed amqp:invalid-field amqp:not-implemented amqp:resource-locked amqp:precondition-failed
amqp:resource-deleted amqp:illegal-state amqp:frame-size-too-small
amqp:connection:forced amqp:connection:framing-error amqp:connection:redirect
amqp:session:window-violation amqp:session:errant-link amqp:session:handle-in-use amqp:session:unattached-handle
amqp:link:detach-forced amqp:link:transfer-limit-exceeded amqp:link:message-size-exceeded amqp:link:redirect
amqp:link:stolen
"""


def test_each_condition_has_a_meaning() -> None:
    assert BY_CONDITION.keys() - {"released"} == set(SPECIFIED.split())


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Refused("amqp:not-found", "AMQ119002: target address x does not exist"), BrokerRejected),
        (Refused("amqp:unauthorized-access", "no"), BrokerRejected),
        (Refused("amqp:resource-limit-exceeded", "Address x is full."), StorageFull),
        (Refused("amqp:illegal-state", "Address x is not configured for queue support"), BrokerRejected),
        (Refused("amqp:internal-error", ""), OutcomeUnknown),
        (
            Refused("amqp:internal-error", "AMQ229032: User: me does not have permission='CREATE_ADDRESS'"),
            BrokerRejected,
        ),
        (Refused("released", "given back"), BrokerUnavailable),
        (Refused("another", "text"), BrokerRejected),
        (ConnectionLost("closed", "amqp:unauthorized-access"), BrokerUnavailable),
        (ConnectionLost("closed", "amqp:connection:forced"), OutcomeUnknown),
        (NotSent("not sent"), BrokerUnavailable),
        (OSError(104, "Connection reset by peer"), OutcomeUnknown),
        (struct.error("too large"), BrokerRejected),
    ],
    ids=str,
)
def test_what_it_becomes(error: Exception, expected: type[BabelgateError]) -> None:
    translated = translate(error, "artemis", written=True)
    assert type(translated) is expected
    assert translated.reason and ".." not in translated.detail
    unwritten = translate(error, "artemis", written=False)
    assert type(unwritten) is (BrokerUnavailable if expected is OutcomeUnknown else expected)


def test_a_missing_queue_says_what_to_do() -> None:
    assert "auto-create-queues" in str(translate(Refused("amqp:not-found", "missing."), "artemis", written=False))
