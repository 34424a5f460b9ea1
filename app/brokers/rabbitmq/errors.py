"""The one boundary where what the AMQP libraries raise becomes an error of this project."""

from __future__ import annotations

import struct

from aiormq import exceptions as aiormq
from pamqp import exceptions as pamqp

from app.brokers.rabbitmq.channel import ChannelGone
from app.brokers.rabbitmq.confirms import Nacked, Returned
from app.errors import BabelgateError, BrokerRejected, BrokerUnavailable, OutcomeUnknown

# By class, the nearest ancestor counts. OutcomeUnknown stands for what ends a connection or a channel: where nothing
# had been written, that is BrokerUnavailable.
BY_CLASS: dict[type[Exception], type[BabelgateError]] = {
    Returned: BrokerRejected,
    # Where more is known of the queue, app.brokers.rabbitmq.publish says more.
    Nacked: OutcomeUnknown,
    ChannelGone: OutcomeUnknown,
    aiormq.AMQPError: OutcomeUnknown,
    aiormq.AMQPConnectionError: OutcomeUnknown,
    aiormq.IncompatibleProtocolError: BrokerUnavailable,
    aiormq.AuthenticationError: BrokerUnavailable,
    aiormq.ProbableAuthenticationError: BrokerUnavailable,
    aiormq.ConnectionClosed: OutcomeUnknown,
    aiormq.ConnectionSyntaxError: OutcomeUnknown,
    aiormq.ConnectionFrameError: OutcomeUnknown,
    aiormq.ConnectionCommandInvalid: OutcomeUnknown,
    aiormq.ConnectionChannelError: OutcomeUnknown,
    aiormq.ConnectionUnexpectedFrame: OutcomeUnknown,
    aiormq.ConnectionResourceError: OutcomeUnknown,
    aiormq.ConnectionNotAllowed: OutcomeUnknown,
    aiormq.ConnectionNotImplemented: OutcomeUnknown,
    aiormq.ConnectionInternalError: OutcomeUnknown,
    aiormq.AMQPChannelError: OutcomeUnknown,
    aiormq.ChannelClosed: OutcomeUnknown,
    aiormq.ChannelAccessRefused: BrokerRejected,
    aiormq.ChannelNotFoundEntity: BrokerRejected,
    aiormq.ChannelLockedResource: BrokerRejected,
    aiormq.ChannelPreconditionFailed: BrokerRejected,
    aiormq.DuplicateConsumerTag: BrokerRejected,
    aiormq.ProtocolSyntaxError: OutcomeUnknown,
    aiormq.InvalidFrameError: OutcomeUnknown,
    aiormq.MethodNotImplemented: BrokerRejected,
    aiormq.DeliveryError: OutcomeUnknown,
    aiormq.PublishError: BrokerRejected,
    aiormq.ChannelInvalidStateError: OutcomeUnknown,
    pamqp.PAMQPException: OutcomeUnknown,
    pamqp.UnmarshalingException: OutcomeUnknown,
    pamqp.AMQPError: OutcomeUnknown,
    pamqp.AMQPSoftError: BrokerRejected,
    pamqp.AMQPHardError: OutcomeUnknown,
    pamqp.AMQPContentTooLarge: BrokerRejected,
    pamqp.AMQPNoRoute: BrokerRejected,
    pamqp.AMQPNoConsumers: BrokerRejected,
    pamqp.AMQPAccessRefused: BrokerRejected,
    pamqp.AMQPNotFound: BrokerRejected,
    pamqp.AMQPResourceLocked: BrokerRejected,
    pamqp.AMQPPreconditionFailed: BrokerRejected,
    pamqp.AMQPConnectionForced: OutcomeUnknown,
    pamqp.AMQPInvalidPath: OutcomeUnknown,
    pamqp.AMQPFrameError: OutcomeUnknown,
    pamqp.AMQPSyntaxError: OutcomeUnknown,
    pamqp.AMQPCommandInvalid: OutcomeUnknown,
    pamqp.AMQPChannelError: OutcomeUnknown,
    pamqp.AMQPUnexpectedFrame: OutcomeUnknown,
    pamqp.AMQPResourceError: OutcomeUnknown,
    pamqp.AMQPNotAllowed: OutcomeUnknown,
    pamqp.AMQPNotImplemented: OutcomeUnknown,
    pamqp.AMQPInternalError: OutcomeUnknown,
    # An operating system that cannot connect, a lost socket, a certificate that does not fit.
    OSError: OutcomeUnknown,
    RuntimeError: OutcomeUnknown,
    # What AMQP cannot carry, found before a byte of it was written.
    ValueError: BrokerRejected,
    TypeError: BrokerRejected,
    OverflowError: BrokerRejected,
    struct.error: BrokerRejected,
}

_OTHERWISE_DECLARED = (
    "{reason}. The argument that is named differs from what the gateway declares: set the route's options to how the "
    "queue was made, or declare: passive"
)
_REFUSED_LOGIN = "the login was refused: {reason}"


def translate(broker: str, error: BaseException, *, written: bool) -> BabelgateError:
    """The error of this project for ``error``; ``written`` when the broker may have got what it is about."""
    if isinstance(error, BabelgateError):
        return error
    cause = error.__cause__ if isinstance(error, ChannelGone) and not written else None
    if isinstance(cause, aiormq.AMQPChannelError):
        # Closed by the broker for what was asked for on it.
        error = cause
    kind = next((BY_CLASS[base] for base in type(error).__mro__ if base in BY_CLASS), OutcomeUnknown)
    if kind is OutcomeUnknown and not written:
        kind = BrokerUnavailable
    return kind(broker=broker, reason=reason_of(error))


def reason_of(error: BaseException) -> str:
    """The library's or the broker's words, as a part of a sentence."""
    # Beside the text there may be a number: of AMQP, or of the operating system.
    text = " ".join(str(part) for part in error.args if part is not None and not isinstance(part, int))
    text = text.strip().rstrip(".") or type(error).__name__
    if isinstance(error, aiormq.ChannelPreconditionFailed) and "inequivalent arg" in text:
        return _OTHERWISE_DECLARED.format(reason=text)
    if isinstance(error, aiormq.ProbableAuthenticationError | aiormq.AuthenticationError):
        return _REFUSED_LOGIN.format(reason=text)
    return text
