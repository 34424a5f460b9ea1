"""Translates the errors of botocore and the error codes of Amazon SQS: the only place that does.

Codes: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/CommonErrors.html and the pages of the
operations there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from aiohttp import ClientConnectionError, ClientConnectorError
from botocore import exceptions as vendor

from babelgate.brokers.errors import ErrorKind, ErrorMap
from babelgate.errors import (
    BabelgateError,
    BrokerRejected,
    BrokerUnavailable,
    LeaseLost,
    OutcomeUnknown,
    PurgeInProgress,
)

BY_CLASS: dict[type[BaseException], ErrorKind] = {
    # Everything that fails before a request is written: configuration, credentials, parameters.
    vendor.BotoCoreError: BrokerUnavailable,
    vendor.ClientError: BrokerRejected,
    vendor.ParamValidationError: BrokerRejected,
    vendor.HTTPClientError: OutcomeUnknown,
    vendor.ConnectionError: BrokerUnavailable,
    vendor.EndpointConnectionError: BrokerUnavailable,
    vendor.ConnectTimeoutError: BrokerUnavailable,
    vendor.ProxyConnectionError: BrokerUnavailable,
    vendor.SSLError: BrokerUnavailable,
    vendor.ConnectionClosedError: OutcomeUnknown,
    vendor.ReadTimeoutError: OutcomeUnknown,
    vendor.ResponseStreamingError: OutcomeUnknown,
    vendor.IncompleteReadError: OutcomeUnknown,
    vendor.ChecksumError: OutcomeUnknown,
    Exception: OutcomeUnknown,
}

THROTTLED = frozenset(
    {
        "KmsThrottled",
        "OverLimit",
        "RequestLimitExceeded",
        "RequestThrottled",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
"""Nothing was written; Amazon asks for a pause."""

DENIED = frozenset({"AccessDenied", "AccessDeniedException", "KmsAccessDenied", "UnauthorizedOperation"})

MISSING_QUEUE = frozenset({"QueueDoesNotExist", "NonExistentQueue"})

LOST = frozenset({"ReceiptHandleIsInvalid", "MessageNotInflight"})

_BROKEN: dict[str, ErrorKind] = {
    "ExpiredToken": BrokerUnavailable,
    "ExpiredTokenException": BrokerUnavailable,
    "IncompleteSignature": BrokerUnavailable,
    "InvalidClientTokenId": BrokerUnavailable,
    "InvalidSecurity": BrokerUnavailable,
    "KmsDisabled": BrokerUnavailable,
    "KmsInvalidState": BrokerUnavailable,
    "KmsNotFound": BrokerUnavailable,
    "MissingAuthenticationToken": BrokerUnavailable,
    "NotAuthorized": BrokerUnavailable,
    "OptInRequired": BrokerUnavailable,
    "RequestExpired": BrokerUnavailable,
    "SignatureDoesNotMatch": BrokerUnavailable,
    "UnrecognizedClientException": BrokerUnavailable,
    "PurgeQueueInProgress": PurgeInProgress,
    "InternalError": OutcomeUnknown,
    "InternalFailure": OutcomeUnknown,
    "InternalServerError": OutcomeUnknown,
    "ServiceUnavailable": OutcomeUnknown,
    "InvalidAction": BrokerRejected,
    "InvalidAttributeName": BrokerRejected,
    "InvalidAttributeValue": BrokerRejected,
    "InvalidMessageContents": BrokerRejected,
    "InvalidParameterValue": BrokerRejected,
    "MessageTooLong": BrokerRejected,
    "UnsupportedOperation": BrokerRejected,
}
BY_CODE = _BROKEN | dict.fromkeys(THROTTLED, BrokerUnavailable)

_ACTIONS = {
    "SendMessageBatch": "SendMessage",
    "DeleteMessageBatch": "DeleteMessage",
    "ChangeMessageVisibilityBatch": "ChangeMessageVisibility",
}
"""The IAM action of an operation of another name:
https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonsqs.html"""

_PREFIX = re.compile(r"^(com\.amazonaws\.sqs#|com\.amazon\.\w+#|AWS\.SimpleQueueService\.)+")


def code_of(code: object) -> str:
    """An error code without the prefixes of the older protocols of the service."""
    return _PREFIX.sub("", str(code))


def error_code(error: BaseException) -> str | None:
    """The code of an error reply; None for another error."""
    if not isinstance(error, vendor.ClientError):
        return None
    return code_of(error.response.get("Error", {}).get("Code", ""))


def translate(error: BaseException, broker: str, *, written: bool) -> BabelgateError:
    """The error of this project for ``error`` of a call. ``written``: the call writes, if it arrives."""
    return _ERRORS.translate(broker, error, written=written)


def entry_error(entry: Mapping[str, object], broker: str) -> BabelgateError:
    """The error of one entry in the ``Failed`` of a batch."""
    code = code_of(entry.get("Code", ""))
    if _is_lost(code, str(entry.get("Message", ""))):
        return LeaseLost()
    kind = BY_CODE.get(code) or (BrokerRejected if entry.get("SenderFault") else OutcomeUnknown)
    return kind(broker=broker, reason=_sentence(code, str(entry.get("Message") or "")))


def _is_lost(code: str, message: str) -> bool:
    # A FIFO queue says of an expired handle: "Reason: The receipt handle has expired."
    return code in LOST or (code == "InvalidParameterValue" and "eceipt handle" in message) or "ReceiptHandle" in code


def _sentence(code: str, message: str) -> str:
    return f"{code}: {message}".rstrip(". ") if message else code


def _reason(error: BaseException) -> str:
    if isinstance(error, vendor.ClientError):
        code, found = error_code(error) or "", error.response.get("Error", {})
        if code in DENIED:
            action = _ACTIONS.get(error.operation_name, error.operation_name)
            return f"access denied: the credentials lack the IAM action sqs:{action}"
        return _sentence(code, str(found.get("Message") or ""))
    return (str(error) or type(error).__name__).rstrip(". ")


def _by_content(error: BaseException) -> ErrorKind | None:
    if isinstance(error, vendor.EndpointConnectionError):
        # aiobotocore raises it for a connection that was reset, too, on which the request may have been written.
        cause = error.kwargs.get("error")
        is_reset = isinstance(cause, ClientConnectionError) and not isinstance(cause, ClientConnectorError)
        return OutcomeUnknown if is_reset else None
    code = error_code(error)
    if code is None:
        return None
    if code in BY_CODE:
        return BY_CODE[code]
    assert isinstance(error, vendor.ClientError)
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if status == 429:
        return BrokerUnavailable
    # A 503 without a code of throttling may come from a proxy that did not wait for the answer.
    return OutcomeUnknown if status >= 500 else None


_ERRORS = ErrorMap(BY_CLASS, _reason, _by_content)
