"""The query parameters of a publish: these classes decode, validate and document them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from babelgate.envelope.contract import INT64_MAX
from babelgate.envelope.options import MAX_ORDERING_KEY, MAX_PRIORITY, MAX_TTL_SECONDS

MAX_SECONDS = 31_536_000
"""Maximum delay and lease: one year. The broker's own maximum applies as well."""

Delay = Annotated[
    float,
    Meta(
        ge=0,
        le=MAX_SECONDS,
        description="Seconds until the message can be received; may be decimal; at most the `max_delay_seconds` of the "
        "broker. Without it: 0 for a publish, the queue's `backoff_seconds` for a nack.",
        examples=[0],
    ),
]
DeliverAt = Annotated[
    int,
    Meta(
        ge=0,
        le=INT64_MAX,
        description="When the message can be received first, in Unix milliseconds UTC. A time in the past is now. It "
        "excludes `delay_seconds`.",
        examples=[0],
    ),
]
Ttl = Annotated[
    float,
    Meta(
        gt=0,
        le=MAX_TTL_SECONDS,
        description="Seconds from when the message can be received until it expires; may be decimal; at most "
        f"{MAX_TTL_SECONDS}. Without it: as the queue's policy says.",
        examples=[3600],
    ),
]
Priority = Annotated[
    int,
    Meta(
        ge=0,
        le=MAX_PRIORITY,
        description=f"0 to {MAX_PRIORITY}: messages with a higher priority are delivered first, where the queue has "
        "priorities. A message with an `ordering_key` has none.",
        examples=[7],
    ),
]

Value = TypeVar("Value")


class PublishParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """The query parameters of a publish."""

    delay_seconds: Delay | UnsetType = UNSET
    ordering_key: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=MAX_ORDERING_KEY,
                description="Messages with the same key are delivered in their order, where the queue keeps one.",
            ),
        ]
        | UnsetType
    ) = UNSET
    deliver_at: DeliverAt | UnsetType = UNSET
    ttl_seconds: Ttl | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET


class ValidateParameters(PublishParameters, forbid_unknown_fields=True, frozen=True):
    """The query parameters of a dry run."""

    mode: Annotated[
        Literal["publish", "consume"],
        Meta(description="The rules to apply: `publish` for a producer, `consume` for a body found on the queue."),
    ] = "publish"


OPTIONS = ("deliver_at", "ttl_seconds", "priority")
"""Further options of a message, beside ``delay_seconds`` and ``ordering_key``."""


def given(value: Value | UnsetType) -> Value | None:
    """The value of an optional parameter, or None. The schema has no None, because a query ``null`` would match it."""
    return None if isinstance(value, UnsetType) else value


def options_of(parameters: PublishParameters) -> dict[str, Any] | None:
    """The OPTIONS that a query gives, by name; None without any."""
    found = {name: value for name in OPTIONS if (value := given(getattr(parameters, name))) is not None}
    return found or None
