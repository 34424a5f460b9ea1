"""The sections of the configuration, with their defaults and bounds."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from babelgate.brokers.capabilities import MAX_LEASE_SECONDS
from babelgate.brokers.options import TIMEOUT_BOUNDS, TIMEOUT_SECONDS
from babelgate.config.accepting import AcceptSettings, distinct, several
from babelgate.config.certificates import CertificateSettings, check_names
from babelgate.config.issuers import IssuerSettings, check_issuers
from babelgate.config.made_tokens import MadeTokenSettings
from babelgate.config.pages import CorsSettings, PageSettings
from babelgate.config.push import PushTargetSettings
from babelgate.config.rate_limits import QueueLimitSettings, RateSettings
from babelgate.config.section import HOST, Delay, QueuePattern, Seconds, Section, commas
from babelgate.gateway.admission import Bounds
from babelgate.gateway.authorization import Right
from babelgate.gateway.routing import SchemaMode
from babelgate.jsontext import digits
from babelgate.masking import mask_url
from babelgate.observe.journal import kept_meta
from babelgate.privacy.redaction import MAX_POINTERS, check_pointer


def address(value: str) -> str:
    """Validate ``host:port``; return it in lower case."""
    host, _, port = value.rpartition(":")
    if not HOST.fullmatch(host.lower()) or not 0 < (digits(port) or 0) < 65_536:
        raise ValueError("must be host:port, with an IPv6 address in brackets")
    return value.lower()


def host_name(value: str) -> str:
    """Validate a host name or address; return it in lower case."""
    if not HOST.fullmatch(value.lower()):
        raise ValueError("must be a host name or address without scheme and port, with an IPv6 address in brackets")
    return value.lower()


class _Open(Section):
    """A mapping whose other keys are options of the binding. A misspelt key of the gateway is refused."""

    model_config = ConfigDict(extra="allow")

    @model_validator(mode="after")
    def _no_near_miss(self) -> Self:
        known = [field.alias or name for name, field in type(self).model_fields.items()]
        for key in self.options:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.85)
            if near:
                raise ValueError(f"unknown key {key}; did you mean {near[0]}?")
        return self

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of the binding, as configured."""
        return self.model_extra or {}


class BrokerSettings(_Open):
    """One broker: in YAML this mapping, or only its URL. Other keys are options of its binding."""

    url: str = Field(repr=False, min_length=1, description="The URL of the broker; its scheme selects the binding.")
    required: bool = Field(default=False, description="Whether `/readyz` is 503 while this broker is down.")
    timeout_seconds: float = Field(
        default=TIMEOUT_SECONDS,
        ge=TIMEOUT_BOUNDS[0],
        le=TIMEOUT_BOUNDS[1],
        description="Maximum duration of one call to the broker, with connecting. Then a request is 503, or 504 if "
        "it may be written.",
    )

    @property
    def masked_url(self) -> str:
        """The URL without its secrets."""
        return mask_url(self.url)

    def __repr_args__(self) -> Any:
        # Options may be secrets, so only their names are shown.
        return [("url", self.masked_url), ("required", self.required), ("options", sorted(self.options))]


class QueueSettings(_Open):
    """The route of a queue name or pattern. Other keys are per-queue options of the broker's binding."""

    broker: str = Field(description="The name of a configured broker.")
    native_name: str = Field(
        "{queue}",
        min_length=1,
        description="The name of the queue on the broker; `{queue}` is replaced by the logical name. A profile or "
        "layout may add a prefix.",
    )
    lease_seconds: Seconds = Field(
        default=60, le=MAX_LEASE_SECONDS, description="The lease of a receive without `lease_seconds`."
    )
    max_attempts: int = Field(
        default=10,
        ge=1,
        le=1_000_000,
        description="The number of the failed delivery after which a message is dead-lettered.",
    )
    backoff_seconds: tuple[Delay, ...] = Field(
        default=(), description="Delays after the 1st, 2nd, … failed attempt; the last value repeats. None: no delay."
    )
    ttl_seconds: Seconds | None = Field(
        default=None,
        description="Age since `created_at` at which an undelivered or redriven message expires. None: never.",
    )
    expired: Literal["dead_letter", "drop"] = Field(
        default="dead_letter",
        description="What becomes of a message past this `ttl_seconds` or [that of its own](api.md#time-to-live): "
        "`dead_letter` it, or `drop` it.",
    )
    dead_letter_retention_seconds: Seconds | None = Field(
        default=None,
        description="The time for which dead letters are kept, counted from their `failed_at`: [how it is applied]"
        "(api.md#dead-letters). None: for ever.",
    )
    ordering_key: Literal["refuse", "ignore"] = Field(
        default="refuse",
        description="What becomes of a message with an `ordering_key` on a queue that keeps no order: `refuse` it with "
        "422, or `ignore` the key.",
    )
    limits: QueueLimitSettings | None = Field(
        default=None, description="The [limits](limits.md) of a queue. None: none."
    )
    parking: str | None = Field(
        default=None,
        description="Another broker, on which messages wait whose delay is [too long](api.md#parked-messages) for this "
        "one. None: such a delay is 422.",
    )
    schema_mode: SchemaMode = Field(
        default="off",
        alias="schema",
        description="A publish without [its job's schema](schemas.md): `enforce` is 422, `warn` logs and counts, "
        "`off` does not look.",
    )
    schema_on_receive: bool = Field(
        default=False,
        description="Whether received messages are checked, too: `enforce` dead-letters what does not match, `warn` "
        "logs and counts it.",
    )
    redact: Annotated[tuple[Annotated[str, AfterValidator(check_pointer)], ...], BeforeValidator(commas)] = Field(
        default=(),
        max_length=MAX_POINTERS,
        description="Members of bodies that people do not see: JSON pointers below `/data` or `/meta/ext`, where `*` "
        "is any member or item. [Where](privacy.md).",
    )
    encrypt: bool = Field(
        default=False,
        description="Whether bodies in files of the gateway itself (SQLite) are [encrypted](privacy.md#encryption).",
    )
    push: PushTargetSettings | None = Field(
        default=None, description="Posts each message to a [webhook](push.md). Only for the exact name of a queue."
    )
    cors: CorsSettings | None = Field(
        default=None, description="The pages that may call the paths of these queues. None: as `cors` of the gateway."
    )
    accept: Annotated[tuple[AcceptSettings, ...], BeforeValidator(several), AfterValidator(distinct)] = Field(
        default=(),
        max_length=20,
        description="Bodies that are no envelopes, such as those of [webhooks](webhooks.md), wrapped into drafts.",
    )


class LimitSettings(Section):
    """Limits of request sizes, and of the work that one process accepts at a time."""

    max_message_bytes: int = Field(default=1_048_576, ge=1_024, le=536_870_912, description="Size of one envelope.")
    max_depth: int = Field(default=128, ge=8, le=500, description="Nesting depth of an envelope's JSON.")
    max_request_bytes: int = Field(
        default=16_777_216, ge=1_024, le=1_073_741_824, description="Size of a JSON request."
    )
    max_stream_bytes: int = Field(default=1_073_741_824, ge=1_024, description="Size of an NDJSON upload.")
    max_stream_lines: int = Field(default=2_500_000, ge=1, description="Number of entries of an NDJSON upload.")
    max_publishes_in_flight: int = Field(
        default=Bounds.max_publishes_in_flight,
        ge=1,
        description="Publishes that one process serves at a time; more are 429. One of several brokers gets half of "
        "each `…_in_flight`.",
    )
    max_publish_bytes_in_flight: int = Field(
        default=Bounds.max_publish_bytes_in_flight, ge=1_024, description="Total size of the bodies of these publishes."
    )
    max_other_bytes_in_flight: int = Field(
        default=Bounds.max_other_bytes_in_flight,
        ge=1_024,
        description="Total size of the bodies of all other requests.",
    )
    max_receives_in_flight: int = Field(
        default=Bounds.max_receives_in_flight,
        ge=1,
        description="Receives that one process serves at a time, including waiting ones.",
    )
    max_unread_bytes_in_flight: int = Field(
        default=Bounds.max_unread_bytes_in_flight,
        ge=1_024,
        description="Total size of the answers that consumers have not read yet.",
    )
    max_held_leases: int = Field(
        default=Bounds.max_held_leases,
        ge=1,
        description="Leases that the gateway manages for brokers without leases. With several brokers, one gets at "
        "most half.",
    )
    max_held_bytes: int = Field(
        default=Bounds.max_held_bytes, ge=1_024, description="Total size of the messages with these leases."
    )


class TokenSettings(Section):
    """A bearer token, as the SHA-256 of its text, and its rights per queue pattern."""

    name: str = Field(min_length=1, max_length=120, description="The name of the token's holder, for logs.")
    sha256: str = Field(pattern="^[0-9a-fA-F]{64}$", repr=False, description="SHA-256 of the token in hexadecimal.")
    rights: dict[QueuePattern, tuple[Right, ...]] = Field(
        description="For each queue pattern: `send`, `listen`, `manage`, `observe`."
    )
    limits: RateSettings | None = Field(
        default=None,
        description="The [limits](limits.md) of this identity; `{}`: none. None: those of `rate_limits.identity`.",
    )
    page: PageSettings | None = Field(
        default=None,
        description="The token is part of web pages: it can only publish, from these pages, within these bounds.",
    )

    @field_validator("page")
    @classmethod
    def _only_sends(cls, page: PageSettings | None, info: ValidationInfo) -> PageSettings | None:
        others = {right for rights in info.data.get("rights", {}).values() for right in rights} - {Right.SEND}
        if page is not None and others:
            raise ValueError(f"anyone can read the token of a page, so its only right is send, not {min(others)}")
        return page


class AuthSettings(Section):
    """The credentials that callers need: tokens, issuers of tokens, client certificates, or tokens that the gateway
    makes."""

    tokens: tuple[TokenSettings, ...] = Field(default=(), min_length=1)
    issuers: tuple[IssuerSettings, ...] = Field(default=(), min_length=1, max_length=20)
    certificates: tuple[CertificateSettings, ...] = Field(default=(), min_length=1, max_length=1_000)
    made_tokens: MadeTokenSettings = MadeTokenSettings()

    @field_validator("tokens")
    @classmethod
    def _distinct(cls, tokens: tuple[TokenSettings, ...]) -> tuple[TokenSettings, ...]:
        if len({token.name for token in tokens}) < len(tokens):
            raise ValueError("two tokens have the same name")
        if len({token.sha256.lower() for token in tokens}) < len(tokens):
            raise ValueError("two entries have the same sha256")
        return tokens

    @model_validator(mode="after")
    def _has_some(self) -> Self:
        # That tokens can be made is a default. Who has nothing else must say that the first one is made in `state_dir`.
        makes_some = "made_tokens" in self.model_fields_set and self.made_tokens.enabled
        if not (self.tokens or self.issuers or self.certificates or makes_some):
            raise ValueError("needs tokens, issuers, certificates or made_tokens")
        check_issuers(self.issuers, self.names)
        check_names([*(token.name for token in self.tokens), *(issuer.prefix for issuer in self.issuers)])
        return self

    @property
    def names(self) -> list[str]:
        """The names of callers that stand in the configuration."""
        named = (certificate.name for certificate in self.certificates)
        return [*(token.name for token in self.tokens), *filter(None, named)]


class TokenKeySettings(Section):
    """A key that signs ack tokens."""

    id: str = Field(pattern="^[A-Za-z0-9._-]{1,32}$", description="The name of the key, which is part of each token.")
    secret: SecretStr = Field(min_length=32, description="The secret: at least 32 characters, used as UTF-8 bytes.")


class PeerSettings(Section):
    """Addresses of the gateways that share a broker: each settles the messages that it delivered."""

    directory: Path | None = Field(
        default=None,
        description="Directory for the sockets of gateways on this host, on a local disk. None: `peers` in "
        "`state_dir`.",
    )
    listen: Annotated[str, AfterValidator(address)] | None = Field(
        default=None,
        description="`host:port` to listen on for gateways on other hosts; all need the same `token_keys`.",
    )
    addresses: Annotated[tuple[Annotated[str, AfterValidator(address)], ...], BeforeValidator(commas)] = Field(
        default=(), description="`host:port` of each other gateway."
    )
    dns: Annotated[str, AfterValidator(address)] | None = Field(
        default=None, description="`name:port` whose DNS addresses are the other gateways, such as a headless Service."
    )


class IdempotencySettings(Section):
    """The store of idempotency keys; see docs/idempotency.md."""

    store: str = Field(
        default="own",
        min_length=1,
        description="A broker that [can](brokers.md#compare) keep the keys of all queues; `own`: that of each queue; "
        "`none`: a key is 422.",
    )
    retention_seconds: Seconds = Field(default=86_400, le=31_536_000, description="The time for which a key is kept.")
    max_keys: int = Field(
        default=1_000_000,
        ge=1,
        le=1_000_000_000,
        description="Maximum keys of one store. A further key is 503; one beyond its caller's share is 429.",
    )


class JournalSettings(Section):
    """The journal of message events; see docs/journal.md."""

    landing: str | None = Field(
        default=None,
        min_length=1,
        description="Where closed segments go: a directory, a URL of fsspec (`s3://bucket/path`), or "
        "`kafka://host/topic`. None: no journal.",
    )
    open_directory: Path | None = Field(
        default=None, description="Directory of the open segments. None: `journal` in `state_dir`."
    )
    node: str | None = Field(
        default=None,
        pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="The name of this gateway in its records. None: the host name.",
    )
    compression: Literal["gzip", "zstd"] = Field(default="zstd", description="Compression of closed segments.")
    segment_bytes: int = Field(
        default=67_108_864, ge=65_536, le=1_073_741_824, description="Uncompressed size at which a segment is closed."
    )
    segment_seconds: Seconds = Field(default=60, le=3_600, description="Age at which a segment is closed.")
    max_bytes: int | None = Field(
        default=None,
        ge=1_048_576,
        description="Maximum size of all landed segments in a directory; the oldest are deleted. None, and other "
        "stores: never deleted.",
    )
    bodies: bool = Field(default=False, description="Whether records contain the envelopes.")
    meta: Annotated[
        tuple[Annotated[str, Field(pattern=kept_meta.NAME, max_length=kept_meta.MAX_NAME)], ...],
        BeforeValidator(commas),
    ] = Field(
        default=(),
        max_length=kept_meta.MAX_NAMES,
        description="Members of `meta` that records keep, at most 8, such as `ext.shop.tenant`; messages are found by "
        "them.",
    )
    buffer_bytes: int = Field(
        default=16_777_216, ge=65_536, description="Maximum size of the records that wait in memory for the disk."
    )
    when_full: Literal["drop", "wait"] = Field(
        default="drop",
        description="`drop`: records are dropped, and a gap counts them; `wait`: requests wait for buffer space.",
    )
