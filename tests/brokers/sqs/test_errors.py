"""Every error of botocore has its place in the map, and every code of the service a meaning."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from botocore import exceptions as vendor

from babelgate.brokers.sqs.errors import BY_CLASS, BY_CODE, entry_error, translate
from babelgate.errors import (
    BabelgateError,
    BrokerRejected,
    BrokerUnavailable,
    LeaseLost,
    OutcomeUnknown,
    PurgeInProgress,
)

CLASSES = [
    found
    for _, found in inspect.getmembers(vendor, inspect.isclass)
    if issubclass(found, Exception) and found.__module__ == vendor.__name__ and not issubclass(found, Warning)
]
AFTER_A_WRITE = {
    vendor.ConnectionClosedError,
    vendor.HTTPClientError,
    vendor.IncompleteReadError,
    vendor.ReadTimeoutError,
    vendor.ResponseStreamingError,
    vendor.ChecksumError,
}


def reply(code: str, operation: str = "SendMessageBatch", status: int = 400, message: str = "It says so.") -> Any:
    return vendor.ClientError(
        {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}, operation
    )


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_each_class_has_an_ancestor_that_says_whether_it_was_written(kind: type[Exception]) -> None:
    nearest = next(base for base in kind.__mro__ if base in BY_CLASS)
    assert (
        nearest is not Exception or kind is vendor.AwsChunkedWrapperError or not issubclass(kind, vendor.BotoCoreError)
    )
    if BY_CLASS[nearest] is OutcomeUnknown and nearest is not Exception:
        assert any(issubclass(kind, each) for each in AFTER_A_WRITE)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (reply("AWS.SimpleQueueService.NonExistentQueue"), BrokerRejected),
        (reply("com.amazonaws.sqs#QueueDoesNotExist"), BrokerRejected),
        (reply("RequestThrottled"), BrokerUnavailable),
        (reply("ThrottlingException"), BrokerUnavailable),
        (reply("OverLimit"), BrokerUnavailable),
        (reply("Any429", status=429), BrokerUnavailable),
        (reply("SlowDown", status=503), BrokerUnavailable),
        (reply("503", status=503), OutcomeUnknown),
        (reply("ServiceUnavailable", status=503), OutcomeUnknown),
        (reply("Any500", status=500), OutcomeUnknown),
        (reply("InternalFailure", status=500), OutcomeUnknown),
        (reply("SignatureDoesNotMatch", status=403), BrokerUnavailable),
        (reply("ExpiredToken", status=403), BrokerUnavailable),
        (reply("AccessDenied", status=403), BrokerRejected),
        (reply("AWS.SimpleQueueService.PurgeQueueInProgress"), PurgeInProgress),
        (reply("InvalidMessageContents"), BrokerRejected),
        (vendor.NoCredentialsError(), BrokerUnavailable),
        (vendor.EndpointConnectionError(endpoint_url="http://127.0.0.1:1"), BrokerUnavailable),
        (vendor.ConnectTimeoutError(endpoint_url="http://127.0.0.1:1"), BrokerUnavailable),
        (vendor.ReadTimeoutError(endpoint_url="http://127.0.0.1:1"), OutcomeUnknown),
        (vendor.ConnectionClosedError(endpoint_url="http://127.0.0.1:1"), OutcomeUnknown),
        (OSError(104, "Connection reset by peer"), OutcomeUnknown),
    ],
    ids=lambda value: str(value)[:90],
)
def test_what_it_becomes(error: Exception, expected: type[BabelgateError]) -> None:
    translated = translate(error, "aws", written=True)
    assert type(translated) is expected
    assert translated.broker == "aws" and translated.reason
    assert ".." not in translated.detail
    unwritten = translate(error, "aws", written=False)
    assert type(unwritten) is (BrokerUnavailable if expected is OutcomeUnknown else expected)


@pytest.mark.parametrize(
    ("operation", "action"),
    [
        ("SendMessageBatch", "sqs:SendMessage"),
        ("DeleteMessageBatch", "sqs:DeleteMessage"),
        ("ChangeMessageVisibilityBatch", "sqs:ChangeMessageVisibility"),
        ("ReceiveMessage", "sqs:ReceiveMessage"),
        ("GetQueueUrl", "sqs:GetQueueUrl"),
    ],
)
def test_access_denied_names_the_action(operation: str, action: str) -> None:
    error = reply("AccessDenied", operation, 403, "User: arn:aws:iam::1:user/x is not authorized")
    assert str(translate(error, "aws", written=True)).endswith(f"the credentials lack the IAM action {action}")


@pytest.mark.parametrize(
    ("failed", "expected"),
    [
        ({"Code": "ReceiptHandleIsInvalid", "SenderFault": True}, LeaseLost),
        ({"Code": "AWS.SimpleQueueService.MessageNotInflight", "SenderFault": True}, LeaseLost),
        (
            {
                "Code": "InvalidParameterValue",
                "SenderFault": True,
                "Message": "Value x for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.",
            },
            LeaseLost,
        ),
        ({"Code": "InvalidMessageContents", "SenderFault": True, "Message": "no"}, BrokerRejected),
        ({"Code": "anything", "SenderFault": True}, BrokerRejected),
        ({"Code": "InternalError", "SenderFault": False}, OutcomeUnknown),
        ({"Code": "KmsThrottled", "SenderFault": True}, BrokerUnavailable),
    ],
    ids=lambda value: str(value)[:60],
)
def test_an_entry_that_failed(failed: dict[str, Any], expected: type[BabelgateError]) -> None:
    assert type(entry_error(failed, "aws")) is expected


def test_no_code_has_a_prefix() -> None:
    assert all(code.isalnum() for code in BY_CODE)
