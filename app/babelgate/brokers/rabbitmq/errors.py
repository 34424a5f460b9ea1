"""Maps the errors of the AMQP libraries to errors of :mod:`babelgate.errors`."""

from __future__ import annotations

import struct

from aiormq import exceptions as aiormq
from pamqp import exceptions as pamqp

from babelgate.brokers.errors import ErrorKind, ErrorMap
from babelgate.brokers.header_rules import header_refusal
from babelgate.brokers.rabbitmq.channel import ChannelGone
from babelgate.brokers.rabbitmq.confirms import Nacked, Returned
from babelgate.brokers.rabbitmq.frames import HeaderFrameTooLarge
from babelgate.errors import BabelgateError, BrokerRejected, BrokerUnavailable, OutcomeUnknown

BY_CLASS: dict[type[BaseException], ErrorKind] = {
    Returned: BrokerRejected,
    # publish.NackErrors knows the queue and decides in more detail.
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
    # A failed connect, a lost socket, an invalid certificate.
    OSError: OutcomeUnknown,
    RuntimeError: OutcomeUnknown,
    # A message that AMQP cannot carry, refused before anything was written.
    ValueError: BrokerRejected,
    TypeError: BrokerRejected,
    OverflowError: BrokerRejected,
    struct.error: BrokerRejected,
}

_DECLARED_DIFFERENTLY = (
    "{reason}. The named argument differs from the gateway's declaration: set the route's options as the queue was "
    "declared, or declare: passive"
)
_REFUSED_LOGIN = "the login was refused: {reason}"


def translate(error: BaseException, broker: str, *, written: bool) -> BabelgateError:
    """See :meth:`babelgate.brokers.errors.ErrorMap.translate`."""
    if isinstance(error, HeaderFrameTooLarge):
        return header_refusal(broker, "/headers", str(error))
    cause = error.__cause__ if isinstance(error, ChannelGone) and not written else None
    # Where nothing was written, the broker closed the channel because of this call.
    return _ERRORS.translate(broker, cause if isinstance(cause, aiormq.AMQPChannelError) else error, written=written)


def reason_of(error: BaseException) -> str:
    """The text of the library's or the broker's error, as a part of a sentence."""
    # ``args`` may also have a number: AMQP's reply code, or an errno.
    text = " ".join(str(part) for part in error.args if part is not None and not isinstance(part, int))
    text = text.strip().rstrip(".") or type(error).__name__
    if isinstance(error, aiormq.ChannelPreconditionFailed) and "inequivalent arg" in text:
        return _DECLARED_DIFFERENTLY.format(reason=text)
    if isinstance(error, aiormq.ProbableAuthenticationError | aiormq.AuthenticationError):
        return _REFUSED_LOGIN.format(reason=text)
    return text


_ERRORS = ErrorMap(BY_CLASS, reason_of)
