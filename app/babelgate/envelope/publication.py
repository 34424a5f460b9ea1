"""Reads any publish body as a Publication, and reports all problems of a bad one at once.

:mod:`babelgate.envelope.fast_path` reads ordinary bodies faster, and uses this module for all others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from babelgate.clock import Clock
from babelgate.envelope.contract import (
    BLANK,
    CORE,
    CORE_META,
    FORBIDDEN,
    FORBIDDEN_META,
    INT64_MAX,
    LANGS,
    MAX_ID,
    Envelope,
    Limits,
    Publication,
    identity,
    is_cloud_event,
    is_id,
    is_int64,
    is_text,
    job_defect,
)
from babelgate.envelope.options import OPTIONS, option_problems
from babelgate.errors import BodyTooLarge, EnvelopeError, EnvelopeSyntaxError, Problem
from babelgate.jsontext import (
    JsonSyntaxError,
    JsonTooDeep,
    Member,
    ObjectText,
    compact,
    decode_object,
    defects,
    exceeds_depth,
    is_encodable,
    is_plain,
    parse_object,
    pointer,
    quote,
)
from babelgate.schematext import did_you_mean

ENTRY_ALLOWANCE = 65_536
"""Bytes that an entry or a draft may have in addition to its envelope, for its options."""
MAX_PROBLEMS = 100
"""Maximum problems in one answer; a body can have a hundred thousand."""

_ENTRY = ("envelope", *OPTIONS)
_DRAFT = ("job", "urn", "trace_id", "data", "meta", *OPTIONS)
_DRAFT_META = ("lang", "queue", "ext")
_MAX_SHOWN = 200
"""Maximum characters of a value that an error shows."""
_DEFECTS = {
    "number_out_of_range": "The number must fit a double; send a larger one as a string.",
    "lone_surrogate": "The string holds an unpaired surrogate, which UTF-8 cannot carry.",
}
_CLOUD_EVENT = (
    "The body is a CloudEvent and no envelope: send it as application/cloudevents+json, several as an array of the "
    "type application/cloudevents-batch+json."
)
_UUIDS_AT_ONCE = 128
# https://www.rfc-editor.org/rfc/rfc9562#section-5.4
_VERSION = bytes(0x40 | octet & 0x0F for octet in range(256))
_VARIANT = bytes(0x80 | octet & 0x3F for octet in range(256))
_UUID = re.compile("(.{8})(.{4})(.{4})(.{4})(.{12})")

_uuids: list[str] = []
"""Random UUIDs, of which each is used once: one read of the system's entropy serves many."""


def new_ids() -> tuple[str, str]:
    """Return two random UUIDs of version 4."""
    while True:
        try:
            return _uuids.pop(), _uuids.pop()
        except IndexError:
            octets = bytearray(os.urandom(16 * _UUIDS_AT_ONCE))
            octets[6::16] = octets[6::16].translate(_VERSION)
            octets[8::16] = octets[8::16].translate(_VARIANT)
            _uuids.extend(map("-".join, _UUID.findall(octets.hex())))


os.register_at_fork(after_in_child=_uuids.clear)


def is_full(top: Mapping[str, Any], meta: Mapping[str, Any]) -> bool:
    """Return whether a body is a full envelope; otherwise it is a draft, which the gateway completes."""
    return "attempts" in top or "id" in meta or "schema_version" in meta or "created_at" in meta


def check_size(actual: int, limits: Limits) -> None:
    """Raise BodyTooLarge if an envelope of ``actual`` bytes exceeds the limit."""
    if actual > limits.max_message_bytes:
        raise BodyTooLarge(actual=actual, limit=limits.max_message_bytes)


def read_any(body: bytes, queue: str, limits: Limits, clock: Clock, trace_id: str | None = None) -> Publication:
    """Read a full envelope, a draft, or an entry. ``trace_id`` is used for a draft without one.

    Raises EnvelopeSyntaxError, EnvelopeError or BodyTooLarge.
    """
    if len(body) > limits.max_message_bytes + ENTRY_ALLOWANCE:
        raise BodyTooLarge(actual=len(body), limit=limits.max_message_bytes)
    try:
        root = decode_object(body, ("data", "envelope"))
    except JsonSyntaxError as error:
        raise EnvelopeSyntaxError([Problem("", "invalid_json", f"The body is not one JSON object: {error}.")]) from None
    except JsonTooDeep:
        raise _too_deep("", limits) from None
    members = root.by_name()
    if "envelope" in members and "job" not in members and "urn" not in members:
        return _read_entry(members, queue, limits, clock, trace_id)
    # The options of a draft are no part of its envelope. A full envelope keeps them, for _Reading to refuse.
    named = [] if is_full(members, _meta_of(members)) else [name for name in OPTIONS if name in members]
    options = _options(members) if named else {}
    for name in named:
        root.remove(name)
    check_size(len(str(root).encode()) if named else len(body), limits)
    reading = _Reading(root, body, "", queue, limits, trace_id)
    return Publication(reading.envelope(clock, list(option_problems(options))), **options)


def _too_deep(at: str, limits: Limits) -> EnvelopeError:
    return EnvelopeError([Problem(at, "too_deep", f"The envelope has more than {limits.max_depth} levels of nesting.")])


def _read_entry(
    members: Mapping[str, Member], queue: str, limits: Limits, clock: Clock, trace_id: str | None
) -> Publication:
    options = _options(members)
    problems = [*option_problems(options), *_unknown(members, _ENTRY, "An entry")]
    wrapped = members["envelope"]
    if not isinstance(wrapped.value, dict):
        raise EnvelopeError(
            [Problem("/envelope", "invalid_entry", "envelope must be an object."), *problems][:MAX_PROBLEMS]
        )
    text = wrapped.raw.encode()
    check_size(len(text), limits)
    reading = _Reading(parse_object(wrapped.raw, ("data",)), text, "/envelope", queue, limits, trace_id)
    return Publication(reading.envelope(clock, problems), **options)


def _meta_of(members: Mapping[str, Member]) -> dict[str, Member]:
    meta = members.get("meta")
    return parse_object(meta.raw).by_name() if meta is not None and isinstance(meta.value, dict) else {}


def _options(members: Mapping[str, Member]) -> dict[str, Any]:
    """Return the values of the options among ``members`` that are not null."""
    return {name: members[name].value for name in OPTIONS if name in members and members[name].value is not None}


def _unknown(members: Iterable[str], valid: Sequence[str], what: str, *above: str) -> Iterator[Problem]:
    """Yield a problem for each of ``members`` that is not ``valid``; ``above`` is the path to their object. Only the
    first says which name was probably meant: to find it takes longer than to read a member."""
    meant: str | None = None
    for name in members:
        if name not in valid:
            at = pointer(*above, name) if is_encodable(name) else pointer(*above)
            meant = did_you_mean(name, valid) if meant is None else ""
            yield Problem(at, "unknown_member", f"{what} may have only the members {', '.join(valid)}.{meant}")


class _Reading:
    """Checks one envelope, as sent, member by member; ``at`` is the envelope's pointer."""

    def __init__(
        self, frame: ObjectText, text: bytes, at: str, queue: str, limits: Limits, trace_id: str | None
    ) -> None:
        if exceeds_depth(text, limits.max_depth):
            raise _too_deep(at, limits)
        self.top = frame.by_name()
        self.meta = _meta_of(self.top)
        self.full = is_full(self.top, self.meta)
        self.text = text.decode()
        self.at = at
        self.queue = queue
        self.limits = limits
        self.new_trace_id = trace_id
        self.problems: list[Problem] = []

    def envelope(self, clock: Clock, others: list[Problem]) -> Envelope:
        """Return the canonical envelope. Raises EnvelopeError with its problems, then ``others``, or BodyTooLarge."""
        job = self._job()
        self._check_meta()
        data = self.top.get("data")
        self._check(
            data is not None and isinstance(data.value, dict), "invalid_data", "/data", "data must be an object."
        )
        trace_id = self._trace_id()
        attempts = self._count(self.top, "attempts", "invalid_attempts", "/attempts")
        self._check_own_rules()
        if self.problems or others:
            raise EnvelopeError(
                [*self.problems, *others][:MAX_PROBLEMS], trace_id if trace_id and is_encodable(trace_id) else None
            )
        assert data is not None
        new_id, new_trace_id = new_ids()
        meta = {name: member.value for name, member in self.meta.items()}
        created_at = meta["created_at"] if self.full else clock()
        trace_id = trace_id or self.new_trace_id or new_trace_id
        id_, lang = meta.get("id", new_id), meta.get("lang", "python")
        body = (
            f'{{"job":{quote(job)},"trace_id":{quote(trace_id)},"data":{compact(data.raw)},"meta":{{"id":{quote(id_)},'
            f'"queue":{quote(self.queue)},"lang":"{lang}","schema_version":1,"created_at":{created_at}'
            f'{_extensions(self.meta, CORE_META)}}},"attempts":{attempts}{_extensions(self.top, CORE | {"urn"})}}}'
        ).encode()
        check_size(len(body), self.limits)
        return Envelope(body, id_, trace_id, job, attempts, created_at, lang, self.at)

    def _check(self, holds: bool, code: str, at: str, detail: str) -> None:
        if not holds:
            self.problems.append(Problem(self.at + at, code, detail))

    def _job(self) -> str:
        found = identity(self.top)
        if found is None and (defect := job_defect(self.top)) is not None:
            # Its other members are not those of an envelope either.
            raise EnvelopeError([Problem(self.at + defect[0], "invalid_job", defect[1])])
        if found is None and is_cloud_event(self.top):
            raise EnvelopeError([Problem(self.at + "/job", "missing_urn", _CLOUD_EVENT)])
        detail = "job names the message: it must be a string that is not blank."
        self._check(found is not None, "missing_urn", "/job", detail)
        job = str(found.value) if found else ""
        return job if self.full else job.strip(BLANK)

    def _trace_id(self) -> str:
        """Return the given trace_id, trimmed in a draft; an empty string if a draft has none, or null."""
        member = self.top.get("trace_id")
        value = member.value if member else None
        good = is_text(value) or (value is None and not self.full)
        detail = "trace_id must be a string that is not blank. Leave it out of a draft to get a new one."
        self._check(good, "missing_trace_id", "/trace_id", detail)
        if not good or value is None:
            return ""
        return str(value) if self.full else value.strip(BLANK)

    def _count(self, members: Mapping[str, Member], name: str, code: str, at: str) -> int:
        """Return a count of a full envelope; 0 for a draft without it."""
        value: Any = members[name].value if name in members else None if self.full else 0
        good = is_int64(value) and value >= 0
        detail = f"{name} must be an integer from 0 to {INT64_MAX}, written without fraction or exponent."
        self._check(good, code, at, detail)
        return int(value) if good else 0

    def _check_meta(self) -> None:
        if self.full or "meta" in self.top:
            is_object = "meta" in self.top and isinstance(self.top["meta"].value, dict)
            self._check(is_object, "missing_meta", "/meta", "meta must be an object; a draft may leave it out.")
            if not is_object:
                return
        if self.full:
            version = self.meta["schema_version"].value if "schema_version" in self.meta else None
            good = is_int64(version) and version == 1
            self._check(good, "unsupported_schema_version", "/meta/schema_version", "meta.schema_version must be 1.")

    def _check_own_rules(self) -> None:
        self._check_own_meta()
        forbidden = "The key is not part of an envelope: leave it out."
        for name in FORBIDDEN:
            self._check(name not in self.top, "forbidden_key", "/" + name, forbidden)
        for name in FORBIDDEN_META:
            self._check(name not in self.meta, "forbidden_key", "/meta/" + name, forbidden)
        self._check(
            "job" not in self.top or "urn" not in self.top,
            "forbidden_key",
            "/urn",
            "urn is an alias of job: send only one of them.",
        )
        self._check_names()
        reserved = "dead_letter belongs to the messages of a dead-letter queue: leave it out, or redrive the message."
        self._check("dead_letter" not in self.top, "reserved_key", "/dead_letter", reserved)
        if not is_plain(self.text):
            self._check_values({name: self.top[name] for name in self.top if name != "meta" or not self.meta})
            self._check_values(self.meta, "meta")

    def _check_names(self) -> None:
        """Refuse the options of a message, which are never part of a body, and the unknown members of a draft."""
        for name in OPTIONS:
            if name in self.top:
                raw = self.top[name].raw
                entry = f'{{"envelope": {{…}}, "{name}": {raw if len(raw) <= _MAX_SHOWN else "…"}}}'
                detail = f"{name} belongs to the message and not to its envelope: send the entry {entry}."
                self._check(False, "misplaced_option", "/" + name, detail)
        if self.full:
            return
        top = [name for name in self.top if name not in (*FORBIDDEN, "dead_letter")]
        meta = [name for name in self.meta if name not in FORBIDDEN_META]
        unknown = [*_unknown(top, _DRAFT, "A draft"), *_unknown(meta, _DRAFT_META, "The meta of a draft", "meta")]
        self.problems += (replace(each, pointer=self.at + each.pointer) for each in islice(unknown, MAX_PROBLEMS))

    def _check_own_meta(self) -> None:
        if "meta" in self.top and not isinstance(self.top["meta"].value, dict):
            return
        values = {name: member.value for name, member in self.meta.items()}
        if self.full and "meta" in self.top:
            detail = f"meta.id must be a string of 1 to {MAX_ID} printable ASCII characters that is not blank."
            self._check(is_id(values.get("id")), "invalid_id", "/meta/id", detail)
            self._count(self.meta, "created_at", "invalid_created_at", "/meta/created_at")
        if "queue" in values or (self.full and "meta" in self.top):
            named = values.get("queue")
            self._check(
                is_text(named), "invalid_queue", "/meta/queue", "meta.queue must be a string that is not blank."
            )
            mismatch = f"meta.queue must be {self.queue!r}, the queue of the path."
            self._check(not is_text(named) or named == self.queue, "queue_mismatch", "/meta/queue", mismatch)
        if "lang" in values or (self.full and "meta" in self.top):
            detail = f"meta.lang must be one of {', '.join(LANGS)}. A draft may leave it out."
            self._check(values.get("lang") in LANGS, "invalid_lang", "/meta/lang", detail)

    def _check_values(self, members: Mapping[str, Member], *above: str) -> None:
        """Check the values of ``members`` at the path ``above``. Ignored repeated members are not checked."""
        for name, member in members.items():
            if len(self.problems) >= MAX_PROBLEMS:
                return
            if not is_encodable(name):
                self._check(False, "lone_surrogate", pointer(*above), _DEFECTS["lone_surrogate"])
            else:
                for at, code in islice(defects(member.raw, *above, name), MAX_PROBLEMS):
                    self._check(False, code, at, _DEFECTS[code])


def _extensions(members: Mapping[str, Member], known: frozenset[str]) -> str:
    return "".join(f",{quote(name)}:{compact(member.raw)}" for name, member in members.items() if name not in known)
