"""Names, bounds and rules of the envelope contract, and the types of the codec."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from msgspec import Struct

from babelgate.errors import Problem
from babelgate.jsontext import Member, ObjectText

Lang = Literal["php", "go", "python", "java", "dotnet", "node"]
LANGS: Final = ("php", "go", "python", "java", "dotnet", "node")
BLANK: Final = " \t\n\v\f\r"
INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)
CORE: Final = frozenset({"job", "trace_id", "data", "meta", "attempts"})
CORE_META: Final = frozenset({"id", "queue", "lang", "schema_version", "created_at"})
FORBIDDEN: Final = ("timestamp",)
FORBIDDEN_META: Final = ("max_retries", "attempts", "source", "ts")
READ_DEPTH: Final = 512
"""Levels of nesting that every SDK reads: the limit of PHP's ``json_decode``, the lowest of all SDKs."""
_MAX_DEPTH: Final = 800
MAX_ID: Final = 128
"""Maximum characters of a published ``meta.id``: that of a MessageId of Azure Service Bus, the tightest of all brokers.
https://learn.microsoft.com/en-us/azure/service-bus-messaging/duplicate-detection
They are ASCII, so that the id also fits the 255 bytes of a property of AMQP 0-9-1."""
_OF_CLOUD_EVENTS: Final = frozenset({"source", "subject", "time", "datacontenttype", "data", "data_base64"})
is_spec_version = re.compile(r"1\.0(?:[.-].*)?").fullmatch
"""Whether a text is the version of the Open Job Spec that is supported."""
is_uuid = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}").fullmatch
"""Whether a text has the form of a UUID, which the contract recommends for ids."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The gateway's own limits; the contract has none.

    ``max_message_bytes`` applies to an envelope as sent and to its canonical form. ``max_depth`` counts levels of
    nesting, including the envelope's own object; at most 800, because parsers recurse.
    """

    max_message_bytes: int = 1_048_576
    max_depth: int = 128

    def __post_init__(self) -> None:
        if self.max_message_bytes < 1:
            raise ValueError("max_message_bytes must be at least 1")
        if not 3 <= self.max_depth <= _MAX_DEPTH:
            raise ValueError(f"max_depth must be between 3 and {_MAX_DEPTH}")

    def adopt(self, other: Limits) -> None:
        """Have the values of ``other`` from now on, for all who hold this."""
        for name in ("max_message_bytes", "max_depth"):
            object.__setattr__(self, name, getattr(other, name))


# Structs for types created for every message: a frozen dataclass takes ten times as long to create.
class Envelope(Struct, frozen=True):
    """A message ready to be published: its canonical ``body`` and its members. ``created_at`` is Unix ms. ``at``: the
    RFC 6901 pointer of the envelope in the body that the client sent."""

    body: bytes
    id: str
    trace_id: str
    job: str
    attempts: int
    created_at: int
    lang: str
    at: str = ""

    def placed(self, pointer: str) -> str:
        """The pointer in the body that the client sent, for a ``pointer`` to a member of the envelope or to an option
        of the message."""
        return self.at + pointer if pointer[1:].partition("/")[0] in CORE else pointer


class Publication(Struct, frozen=True):
    """A publish request of a client. Options are None if not given, and ``deliver_at`` is Unix ms.

    ``broker_properties`` are as sent; the binding checks and reads them.
    """

    envelope: Envelope
    delay_seconds: float | None = None
    ordering_key: str | None = None
    headers: Mapping[str, str] = {}
    idempotency_key: str | None = None
    broker_properties: Mapping[str, Any] | None = None
    deliver_at: int | None = None
    ttl_seconds: float | None = None
    priority: int | None = None


class Received(Struct, frozen=True):
    """A valid envelope found on a queue.

    ``attempts`` may be negative, because the contract accepts that. ``created_at`` is Unix ms. ``warnings`` has the
    RFC 6901 pointers of keys that a re-emit drops. ``queue`` is the queue in ``meta``.
    """

    id: str | None
    trace_id: str
    job: str
    attempts: int
    created_at: int | None
    lang: str | None
    warnings: tuple[str, ...]
    queue: str | None = None
    is_dead_letter: bool = False


@dataclass(frozen=True, slots=True)
class DeadSummary:
    """The known facts of a dead letter; unknown ones are None. ``failed_at`` is Unix ms."""

    id: str | None = None
    job: str | None = None
    trace_id: str | None = None
    reason: str | None = None
    error: str | None = None
    failed_at: int | None = None
    attempts: int | None = None


class Poison(Exception):
    """A body that must not be delivered: it is poison, or breaks a consumer rule.

    ``code`` is stable. ``pointer`` is the RFC 6901 pointer of the problem, empty for the whole body.
    """

    def __init__(self, code: str, detail: str, pointer: str = "") -> None:
        super().__init__(code, detail, pointer)
        self.code = code
        self.detail = detail
        self.pointer = pointer


def is_text(value: object) -> bool:
    """Return whether ``value`` is a non-blank string."""
    return isinstance(value, str) and value.strip(BLANK) != ""


def is_id(value: object) -> bool:
    """Return whether ``value`` can be the ``meta.id`` of a published message; see MAX_ID."""
    return (
        isinstance(value, str)
        and len(value) <= MAX_ID
        and value.isascii()
        and value.isprintable()
        and value.strip(BLANK) != ""
    )


def uuid_warnings(id_: str | None, trace_id: str | None) -> Iterator[Problem]:
    """Yield a warning for each id that is not a UUID. The contract recommends this form and does not require it."""
    for at, code, value in (("/meta/id", "id_not_uuid", id_), ("/trace_id", "trace_id_not_uuid", trace_id)):
        if value is not None and not is_uuid(value):
            name = at[1:].replace("/", ".")
            yield Problem(at, code, f"{name} is not a UUID. It is accepted; the contract recommends a UUID.")


def is_int64(value: object) -> bool:
    """Return whether ``value`` was an integer literal within int64."""
    return type(value) is int and INT64_MIN <= value <= INT64_MAX


def identity(members: Mapping[str, Member]) -> Member | None:
    """Return the member that names the job: ``job``, or its alias ``urn`` if ``job`` is not a non-blank string."""
    for name in ("job", "urn"):
        member = members.get(name)
        if member is not None and is_text(member.value):
            return member
    return None


def job_defect(members: Mapping[str, Member]) -> tuple[str, str] | None:
    """Return pointer and description of the first defect of a body that is a job of the Open Job Spec and no envelope.

    None if the body has neither ``specversion`` nor ``args``, nor a ``type`` without ``data``; and for a CloudEvent.
    """
    if not {"specversion", "args"} & members.keys() and ("type" not in members or "data" in members):
        return None
    if is_cloud_event(members):
        return None
    values = {name: member.value for name, member in members.items()}
    version = values.get("specversion", "1.0")
    if not (isinstance(version, str) and is_spec_version(version)):
        return "/specversion", "The body is a job of the Open Job Spec, whose specversion must be '1.0'."
    if not is_text(values.get("type")):
        return "/type", "The body is a job of the Open Job Spec, whose type must be a string that is not blank."
    if not isinstance(values.get("args"), list):
        return "/args", "The body is a job of the Open Job Spec, whose args must be an array."
    return "", "The body is a job of the Open Job Spec and no envelope: send it as application/openjobspec+json."


def is_cloud_event(members: Mapping[str, Member]) -> bool:
    """Return whether a body is a CloudEvent, which has a ``specversion`` and a ``type`` like a job, and no ``args``:
    https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md#required-attributes"""
    names = members.keys()
    return {"specversion", "type"} <= names and "args" not in names and not names.isdisjoint(_OF_CLOUD_EVENTS)


def dropped_keys(frame: ObjectText) -> tuple[str, ...]:
    """Return pointers of the keys that a re-emit of ``frame`` drops, except a blank ``job`` that ``urn`` replaces."""
    members = frame.by_name()
    meta = members.get("meta")
    inner = meta.value if meta is not None and isinstance(meta.value, dict) else {}
    found = ["/" + name for name in FORBIDDEN if name in members]
    found += ["/meta/" + name for name in FORBIDDEN_META if name in inner]
    job = members.get("job")
    if job is not None and not isinstance(job.value, str):
        found.append("/job")
    if "urn" in members and identity(members) is job:
        found.append("/urn")
    return tuple(found)
