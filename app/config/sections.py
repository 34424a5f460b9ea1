"""The sections of a configuration, with their defaults and bounds."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from app.brokers.options import TIMEOUT_BOUNDS, TIMEOUT_SECONDS
from app.gateway.admission import Bounds
from app.gateway.authorization import Right
from app.masking import mask_url

MAX_LEASE_SECONDS = 43_200
"""12 hours: the longest lease of any supported broker (Amazon SQS's visibility time-out)."""
_HOST = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?|\[[0-9a-f:.]+\]")
_UNREAL = re.compile(r"[^*A-Za-z0-9._-]")

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Delay = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def commas(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _queue_pattern(value: str) -> str:
    if not value or _UNREAL.search(value) or len(value) > 120:
        raise ValueError("a queue name or pattern has 1 to 120 of the characters A-Z a-z 0-9 . _ - and *")
    if value.endswith(".dlq"):
        raise ValueError("a dead-letter queue follows its parent's route and has none of its own")
    return value


def address(value: str) -> str:
    host, _, port = value.rpartition(":")
    if not _HOST.fullmatch(host.lower()) or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError("must be host:port; an IPv6 address stands in brackets")
    return value.lower()


def host_name(value: str) -> str:
    if not _HOST.fullmatch(value.lower()):
        raise ValueError("a host is a name or address without scheme and port; an IPv6 address stands in brackets")
    return value.lower()


QueuePattern = Annotated[str, AfterValidator(_queue_pattern)]


class Section(BaseModel):
    # The input of a failed check may be a secret: pydantic must not quote it.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, coerce_numbers_to_str=True)


class _Open(Section):
    """A mapping whose other keys are the binding's own; a near miss of a key of ours is refused."""

    model_config = ConfigDict(extra="allow")

    @model_validator(mode="after")
    def _no_near_miss(self) -> Self:
        for key in self.options:
            near = difflib.get_close_matches(key, type(self).model_fields, n=1, cutoff=0.85)
            if near:
                raise ValueError(f"unknown key {key}; did you mean {near[0]}?")
        return self

    @property
    def options(self) -> Mapping[str, Any]:
        """The binding's own keys, as configured."""
        return self.model_extra or {}


class BrokerSettings(_Open):
    """One broker. In YAML either this mapping or just its URL; other keys are options of its binding."""

    url: str = Field(repr=False, min_length=1, description="Where the broker is; the scheme chooses the binding.")
    required: bool = Field(default=False, description="Whether /readyz is 503 while this broker is down.")
    timeout_seconds: float = Field(
        default=TIMEOUT_SECONDS,
        ge=TIMEOUT_BOUNDS[0],
        le=TIMEOUT_BOUNDS[1],
        description="How long one call to the broker may take, connecting included: then it is 503, or 504 where "
        "something may have been written.",
    )

    @property
    def masked_url(self) -> str:
        """The URL without its secrets."""
        return mask_url(self.url)

    def __repr_args__(self) -> Any:
        # Options may be secrets: only their names are shown.
        return [("url", self.masked_url), ("required", self.required), ("options", sorted(self.options))]


class QueueSettings(_Open):
    """The route of a queue name or pattern; other keys are per-queue options of the broker's binding."""

    broker: str = Field(description="The name of a configured broker.")
    native_name: str = Field("{queue}", min_length=1, description="The broker's name; {queue}: the logical one.")
    lease_seconds: Seconds = Field(
        default=60, le=MAX_LEASE_SECONDS, description="The lease when a receive asks for none."
    )
    max_attempts: int = Field(default=10, ge=1, le=1_000_000, description="The n-th failed delivery dead-letters.")
    backoff_seconds: tuple[Delay, ...] = Field(
        default=(), description="Delay after the 1st, 2nd, … failed attempt; the last repeats; none: at once."
    )
    ttl_seconds: Seconds | None = Field(
        default=None,
        description="Age, since `created_at`, at which an undelivered message dead-letters; a redriven one too.",
    )
    dead_letter_retention_seconds: Seconds | None = Field(default=None, description="How long dead letters are kept.")


class LimitSettings(Section):
    """Bounds on what a client may send, and on what one process takes on at a time."""

    max_message_bytes: int = Field(default=1_048_576, ge=1_024, le=536_870_912, description="One envelope.")
    max_depth: int = Field(default=128, ge=8, le=500, description="Nesting of an envelope's JSON.")
    max_request_bytes: int = Field(default=16_777_216, ge=1_024, le=1_073_741_824, description="A JSON request.")
    max_stream_bytes: int = Field(default=1_073_741_824, ge=1_024, description="An NDJSON upload.")
    max_stream_lines: int = Field(default=2_500_000, ge=1, description="Entries of an NDJSON upload.")
    max_publishes_in_flight: int = Field(
        default=Bounds.max_publishes_in_flight,
        ge=1,
        description="Publishes that one process serves at a time, 429 beyond; this and all `…_in_flight`: at most half "
        "for one of several brokers.",
    )
    max_publish_bytes_in_flight: int = Field(
        default=Bounds.max_publish_bytes_in_flight, ge=1_024, description="The bodies of these."
    )
    max_other_bytes_in_flight: int = Field(
        default=Bounds.max_other_bytes_in_flight, ge=1_024, description="The bodies of all other calls."
    )
    max_receives_in_flight: int = Field(
        default=Bounds.max_receives_in_flight, ge=1, description="Receives, those that wait included."
    )
    max_unread_bytes_in_flight: int = Field(
        default=Bounds.max_unread_bytes_in_flight, ge=1_024, description="Answers that consumers have yet to read."
    )
    max_held_leases: int = Field(
        default=Bounds.max_held_leases,
        ge=1,
        description="Leases kept by the gateway, on brokers where it does; at most half for one of several brokers.",
    )
    max_held_bytes: int = Field(default=Bounds.max_held_bytes, ge=1_024, description="The messages of these.")


class TokenSettings(Section):
    """A bearer token, stored as the SHA-256 of its text, and its rights per queue pattern."""

    name: str = Field(min_length=1, max_length=120, description="Who holds it, for logs.")
    sha256: str = Field(pattern="^[0-9a-fA-F]{64}$", repr=False, description="SHA-256 of the token in hexadecimal.")
    rights: dict[QueuePattern, tuple[Right, ...]] = Field(description="Queue pattern: send, listen, manage.")


class AuthSettings(Section):
    """Who may call."""

    tokens: tuple[TokenSettings, ...] = Field(min_length=1)

    @field_validator("tokens")
    @classmethod
    def _distinct(cls, tokens: tuple[TokenSettings, ...]) -> tuple[TokenSettings, ...]:
        if len({token.name for token in tokens}) < len(tokens):
            raise ValueError("two tokens have the same name")
        if len({token.sha256.lower() for token in tokens}) < len(tokens):
            raise ValueError("two entries are for one token")
        return tokens


class TokenKeySettings(Section):
    """A key that signs ack tokens."""

    id: str = Field(pattern="^[A-Za-z0-9._-]{1,32}$", description="Names the key inside tokens.")
    secret: SecretStr = Field(min_length=32, description="At least 32 characters; used as UTF-8 bytes.")


class PeerSettings(Section):
    """How the gateways that share a broker reach each other, to settle what another handed out."""

    directory: Path | None = Field(
        default=None, description="Where those on this host meet, on a disk of its own; none: `peers` in `state_dir`."
    )
    listen: Annotated[str, AfterValidator(address)] | None = Field(
        default=None, description="`host:port` for those on other hosts; all need the same `token_keys`."
    )
    addresses: Annotated[tuple[Annotated[str, AfterValidator(address)], ...], BeforeValidator(commas)] = Field(
        default=(), description="`host:port` where others listen."
    )
    dns: Annotated[str, AfterValidator(address)] | None = Field(
        default=None, description="`name:port`; others listen at all its addresses, as of a headless service."
    )


class IdempotencySettings(Section):
    """Where the keys of messages are kept that are to be published once; see docs/idempotency.md."""

    store: str = Field(
        default="own",
        min_length=1,
        description="The broker that keeps the idempotency keys of all queues, of SQLite or Redis; `own`: each queue's "
        "own, where it can; `none`: nobody, and a key is 422.",
    )
    retention_seconds: Seconds = Field(default=86_400, le=31_536_000, description="How long a key is kept.")
    max_keys: int = Field(
        default=1_000_000, ge=1, le=1_000_000_000, description="Keys of one store; new ones are 503 beyond."
    )


class JournalSettings(Section):
    """The record of what happened to every message; see docs/journal.md."""

    landing: str | None = Field(
        default=None,
        min_length=1,
        description="Where closed segments go: a directory, or a URL that fsspec knows (`s3://bucket/path`). "
        "None: no journal.",
    )
    open_directory: Path | None = Field(
        default=None, description="Where the open segments are written; none: `journal` in `state_dir`."
    )
    node: str | None = Field(
        default=None,
        pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="What this gateway is called in its records; none: the host's name.",
    )
    compression: Literal["gzip", "zstd"] = Field(default="zstd", description="How closed segments are compressed.")
    segment_bytes: int = Field(
        default=67_108_864, ge=65_536, le=1_073_741_824, description="A segment is closed at this size, uncompressed."
    )
    segment_seconds: Seconds = Field(default=60, le=3_600, description="A segment is closed at this age.")
    bodies: bool = Field(default=False, description="Whether records hold the envelopes themselves.")
    buffer_bytes: int = Field(default=16_777_216, ge=65_536, description="What waits in memory for the disk, at most.")
    when_full: Literal["drop", "wait"] = Field(
        default="drop", description="`drop`: records are lost, and a gap counts them; `wait`: callers wait for room."
    )
