"""Reads a broker's URL and options into the settings of an AWS client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from babelgate.brokers.options import TEXT, OptionReader, whole
from babelgate.brokers.url import read_cloud_url

MAX_BODY_BYTES = 1_048_576
"""https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html"""

_LEAST_BODY_BYTES = 1_024
MAX_LONG_POLL_SECONDS = 20
"""The longest ``WaitTimeSeconds``:
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html"""

_EXPECTED = "sqs://[region] is expected; credentials come from the AWS environment"


@dataclass(frozen=True, slots=True)
class SqsSettings:
    """How to reach the service. ``region`` and ``endpoint_url`` None: as the AWS environment or profile says.

    ``assume_role_arn``: the role whose credentials are used, None for those of the default chain. ``max_body_bytes``:
    the largest message, with its attributes. ``long_poll_seconds``: the wait of one ``ReceiveMessage``.
    """

    region: str | None
    endpoint_url: str | None
    assume_role_arn: str | None
    max_body_bytes: int
    long_poll_seconds: int


def settings_of(url: str, options: Mapping[str, Any]) -> SqsSettings:
    """The settings in ``sqs://[region][?option=value]`` and ``options``; no I/O.

    Raises ConfigError, ``key`` "url" or the option's name; no error quotes a value.
    """
    region, given = read_cloud_url(url, options, expected=_EXPECTED)
    if region:
        given.add("region", region)
    settings = SqsSettings(
        region=given.read("region", TEXT, "") or None,
        endpoint_url=given.read("endpoint_url", _ENDPOINT, "") or None,
        assume_role_arn=given.read("assume_role_arn", _ROLE, "") or None,
        max_body_bytes=given.read("max_body_bytes", whole(_LEAST_BODY_BYTES, MAX_BODY_BYTES), MAX_BODY_BYTES),
        long_poll_seconds=given.read("long_poll_seconds", whole(1, MAX_LONG_POLL_SECONDS), MAX_LONG_POLL_SECONDS),
    )
    given.finish()
    return settings


def _endpoint(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise ValueError
    return value


def _role(value: object) -> str:
    if not isinstance(value, str) or not value.startswith("arn:") or ":role/" not in value:
        raise ValueError
    return value


_ENDPOINT = OptionReader("an http:// or https:// URL without credentials", _endpoint)
_ROLE = OptionReader("the ARN of a role", _role)
