"""The canonical form of what lies on a queue: the frame in the contract's order, nothing added.

It is what a re-emit would write, in the one spelling that every gateway writes: keys that a re-emit drops are left out
(:attr:`~app.envelope.contract.Received.warnings` names them), and ``urn`` is folded into ``job``. Members that another
program left out stay out, null stays null, and unknown keys follow the known ones.
"""

from __future__ import annotations

from collections.abc import Mapping

from app.envelope.contract import FORBIDDEN, FORBIDDEN_META, identity
from app.envelope.ordinary import canonical_ordinary
from app.jsontext import Member, compact_any, decode_object, parse_object

_TOP = ("trace_id", "data", "meta", "attempts")
_META = ("id", "queue", "lang", "schema_version", "created_at")


def canonical(body: bytes) -> bytes:
    """The canonical form of ``body``, which :func:`app.envelope.inspect` has found valid; itself where it is so."""
    made = canonical_ordinary(body)
    if made is None:
        top = decode_object(body, ("data",)).by_name()
        job = identity(top)
        assert job is not None
        members = [f'"job":{compact_any(job.raw)}', *_ordered(top, _TOP, ("job", "urn", *FORBIDDEN))]
        made = f"{{{','.join(members)}}}".encode()
    return body if made == body else made


def _ordered(members: Mapping[str, Member], known: tuple[str, ...], dropped: tuple[str, ...]) -> list[str]:
    names = [name for name in known if name in members]
    names += [name for name in members if name not in known and name not in dropped]
    return [f"{compact_any(members[name].key)}:{_value(members[name], known)}" for name in names]


def _value(member: Member, known: tuple[str, ...]) -> str:
    if known is _TOP and member.name == "meta":
        return f"{{{','.join(_ordered(parse_object(member.raw).by_name(), _META, FORBIDDEN_META))}}}"
    if member.name in known and type(member.value) is int:
        # Of the integers only -0 can be spelled in two ways.
        return str(member.value)
    return compact_any(member.raw)
