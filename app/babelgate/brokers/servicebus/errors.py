"""Translates the errors of azure-servicebus and its AMQP engine: the only place that does.

The client's errors: https://learn.microsoft.com/azure/service-bus-messaging/service-bus-messaging-exceptions-latest.
"""

from __future__ import annotations

from azure.core import exceptions as core
from azure.servicebus import exceptions as vendor

from babelgate.brokers.errors import ErrorKind, ErrorMap
from babelgate.brokers.servicebus import sdk_internals
from babelgate.errors import (
    BabelgateError,
    BrokerRejected,
    BrokerUnavailable,
    LeaseLost,
    OutcomeUnknown,
    StorageFull,
)

BY_CLASS: dict[type[BaseException], ErrorKind] = {
    vendor.ServiceBusError: OutcomeUnknown,
    vendor.ServiceBusConnectionError: OutcomeUnknown,
    vendor.ServiceBusCommunicationError: OutcomeUnknown,
    vendor.ServiceBusAuthenticationError: BrokerUnavailable,
    vendor.ServiceBusAuthorizationError: BrokerRejected,
    vendor.OperationTimeoutError: OutcomeUnknown,
    vendor.MessageSizeExceededError: BrokerRejected,
    vendor.MessageAlreadySettled: LeaseLost,
    vendor.MessageLockLostError: LeaseLost,
    vendor.SessionLockLostError: LeaseLost,
    vendor.SessionCannotBeLockedError: BrokerUnavailable,
    vendor.MessageNotFoundError: LeaseLost,
    vendor.MessagingEntityNotFoundError: BrokerRejected,
    vendor.MessagingEntityDisabledError: BrokerUnavailable,
    vendor.MessagingEntityAlreadyExistsError: BrokerRejected,
    vendor.ServiceBusQuotaExceededError: StorageFull,
    vendor.ServiceBusServerBusyError: BrokerUnavailable,
    vendor.AutoLockRenewFailed: OutcomeUnknown,
    vendor.AutoLockRenewTimeout: OutcomeUnknown,
    sdk_internals.AMQPException: OutcomeUnknown,
    sdk_internals.AuthenticationException: BrokerUnavailable,
    # Of a credential, or of a request for the description of an entity.
    core.AzureError: BrokerUnavailable,
    core.ClientAuthenticationError: BrokerUnavailable,
    core.ResourceNotFoundError: BrokerRejected,
    core.HttpResponseError: BrokerRejected,
    Exception: OutcomeUnknown,
}

LOST = (vendor.MessageLockLostError, vendor.SessionLockLostError)
"""Answers that say that a lock is over; the connection goes on."""

HARMLESS = (*LOST[:1], vendor.MessageSizeExceededError, vendor.ServiceBusServerBusyError, vendor.MessageNotFoundError)
"""Answers after which a connection can be used again."""

CLOSE_ERRORS: tuple[type[Exception], ...] = (
    vendor.ServiceBusError,
    sdk_internals.AMQPException,
    core.AzureError,
    OSError,
    # The AMQP engine forgets its session and its links when an operation and a close meet.
    AttributeError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What closing a sender, a receiver or a credential raises. It is gone all the same."""

_NOT_ALLOWED = "amqp:not-allowed"


def translate(error: BaseException, broker: str, *, written: bool) -> BabelgateError:
    """The error of this project for ``error`` of a call. ``written``: the call writes, and has begun."""
    return _ERRORS.translate(broker, error, written=written)


def _reason(error: BaseException) -> str:
    if isinstance(error, vendor.ServiceBusAuthorizationError):
        return "access denied: the credentials lack the right Send or Listen for this queue"
    text = str(error).partition("\n")[0].partition(" Error condition:")[0]
    return (text or type(error).__name__).rstrip(". ")


def _by_content(error: BaseException) -> ErrorKind | None:
    # A queue with sessions and a receiver without one, or a message without one.
    return BrokerRejected if _NOT_ALLOWED in str(error) else None


_ERRORS = ErrorMap(BY_CLASS, _reason, _by_content)
