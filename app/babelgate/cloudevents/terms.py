"""Names, forms and rules of CloudEvents 1.0."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from babelgate.clock import milliseconds
from babelgate.errors import Problem
from babelgate.jsontext import is_encodable

STRUCTURED: Final = "application/cloudevents+json"
BATCHED: Final = "application/cloudevents-batch+json"
PREFIX: Final = "application/cloudevents"
"""What all media types of structured and batched events begin with."""
SPEC_VERSION: Final = "1.0"
JSON: Final = "application/json"

EVENT_FIELDS: Final = frozenset({b"ce-specversion", b"ce-id", b"ce-source", b"ce-type"})
"""The headers of the required attributes. A request with one of them is an event in the binary mode."""

EXT: Final = "cloudevents"
"""The member of ``meta.ext`` with the attributes of an event."""
MARK: Final = "data"
"""The member of EXT that says where the data is. No attribute has this name (JSON format, section 3)."""
NO_DATA: Final = "none"
BODY: Final = "body"
BODY_BASE64: Final = "body_base64"

REQUIRED: Final = ("specversion", "id", "source", "type")
OPTIONAL: Final = ("datacontenttype", "dataschema", "subject", "time")
OF_DELIVERY: Final = frozenset({"bqacktoken", "bqleaseexpiresat", "bqattempts", "bqredelivered"})
"""Extension attributes of a received event that belong to its delivery, and not to the message."""
TRACE_ID: Final = "bqtraceid"
PARTITION_KEY: Final = "partitionkey"
TRACEPARENT, TRACESTATE = "traceparent", "tracestate"

INT32_MAX: Final = 2**31 - 1

is_name = re.compile(r"[a-z0-9]+").fullmatch
"""Whether a text is the name of an attribute (spec, "Naming Conventions")."""
_has_control = re.compile("[\x00-\x1f\x7f-\x9f]").search
"""Characters that a String must not have (spec, "Type System")."""
_has_blank = re.compile(r"\s").search
_is_time = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII).fullmatch
_is_media_type = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+\s*(;.*)?").fullmatch
_is_json = re.compile(r"[^/]+/(?:[^/]+\+)?json").fullmatch
"""JSON format, section 3.1: a media subtype ``json``, or one with the suffix ``+json``."""
_is_text = re.compile(r"text/.+|[^/]+/(?:[^/]+\+)?xml|application/x-www-form-urlencoded").fullmatch
_charset = re.compile(r";\s*charset\s*=\s*\"?([^\s;\"]+)", re.IGNORECASE).search
_UTF8 = frozenset({"utf-8", "utf8", "us-ascii", "ascii"})


@dataclass(frozen=True, slots=True)
class HeaderProblem(Problem):
    """One defect of a ``header``, in which the binary mode has an attribute. ``pointer`` is empty."""

    header: str = ""


class Place(NamedTuple):
    """Where a defect is: the RFC 6901 ``pointer`` in the body, or a ``header``."""

    pointer: str = ""
    header: str = ""

    def problem(self, code: str, detail: str) -> Problem:
        """A defect here."""
        return HeaderProblem("", code, detail, self.header) if self.header else Problem(self.pointer, code, detail)


def is_json(content_type: str | None) -> bool:
    """Return whether data of this type is JSON; so it is without a type."""
    return content_type is None or _is_json(_essence(content_type)) is not None


def is_text(content_type: str) -> bool:
    """Return whether data of this type is text in UTF-8 by its declaration."""
    charset = _charset(content_type)
    is_utf8 = charset is None or charset[1].lower() in _UTF8
    return is_utf8 and _is_text(_essence(content_type)) is not None


def _essence(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def name_defect(name: str) -> tuple[str, str] | None:
    """Return code and description of the defect of an attribute's name."""
    if is_name(name) and name != MARK:
        return None
    detail = "The name of an attribute has only the characters a-z and 0-9, and is not 'data'."
    return "invalid_attribute_name", detail


def value_defect(name: str, value: Any) -> tuple[str, str] | None:
    """Return code and description of the defect of an attribute's value, which is not null."""
    if name == "specversion":
        if value == SPEC_VERSION:
            return None
        return "unsupported_specversion", "specversion must be '1.0', the version of CloudEvents."
    if name in REQUIRED or name in OPTIONAL or name in (PARTITION_KEY, TRACE_ID):
        return _text_defect(name, value)
    if isinstance(value, str):
        return _character_defect(name, value)
    if type(value) is bool or (type(value) is int and -INT32_MAX - 1 <= value <= INT32_MAX):
        return None
    detail = f"{name} must be a string, a boolean or an integer of 32 bits. Send any other value as a string."
    return "invalid_attribute", detail


def _text_defect(name: str, value: Any) -> tuple[str, str] | None:
    if not isinstance(value, str) or not value.strip():
        return "invalid_attribute", f"{name} must be a string that is not blank."
    if name == "time" and not (_is_time(value) and milliseconds(value.upper()) is not None):
        return "invalid_time", "time must be an RFC 3339 time with a zone, such as 2026-01-31T23:59:59Z."
    if name == "datacontenttype" and not _is_media_type(value):
        return "invalid_attribute", "datacontenttype must be a media type, such as application/json."
    if name in ("source", "dataschema") and _has_blank(value):
        return "invalid_attribute", f"{name} is a URI, which has no blanks: encode them as %20."
    return _character_defect(name, value)


def _character_defect(name: str, value: str) -> tuple[str, str] | None:
    if _has_control(value):
        return "invalid_attribute", f"{name} has a control character, which no attribute may have."
    if not is_encodable(value):
        return "lone_surrogate", "The string holds an unpaired surrogate, which UTF-8 cannot carry."
    return None
