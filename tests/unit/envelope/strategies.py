"""Bodies for the property tests: JSON as written, so that spacing, escapes, literals and repeated keys vary."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

Pairs = list[tuple[str, str]]

NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["-0", "1.10", "1E5", "1e-400", "1e400", "-1e400", "9" * 320, "0e9", "1.50e+3", "0.10"]),
)
TEXTS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        ["1e9", "urn:a", ", ", '"data"', "{[", "]", '}\\"[', "\\", "/", "é", "\u2028", "😀", "\x7f", " \t", "\u00a0"]
    ),
)
SPACES = st.sampled_from(["", "", " ", "\n\t", "\r "])


def written(text: str, ascii_only: bool) -> str:
    """``text`` as a JSON string, with or without escapes for what is not ASCII."""
    quoted = json.dumps(text, ensure_ascii=ascii_only)
    return quoted.replace("/", "\\/") if ascii_only else quoted


def strings(texts: st.SearchStrategy[str] = TEXTS) -> st.SearchStrategy[str]:
    return st.builds(written, texts, st.booleans())


def render(pairs: Pairs, space: str, ascii_only: bool) -> str:
    members = (f"{written(name, ascii_only)}{space}:{space}{raw}" for name, raw in pairs)
    return "{" + space + f"{space},{space}".join(members) + space + "}"


def _array(items: list[str], space: str) -> str:
    return "[" + space + f"{space},".join(items) + "]"


def _containers(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.lists(st.tuples(TEXTS, values), max_size=4)
    return st.one_of(
        st.builds(_array, st.lists(values, max_size=4), SPACES), st.builds(render, pairs, SPACES, st.booleans())
    )


VALUES = st.recursive(
    st.one_of(NUMBERS, strings(), st.sampled_from(["true", "false", "null", r'"\ud800"'])), _containers, max_leaves=12
)
OBJECTS = st.builds(render, st.lists(st.tuples(TEXTS, VALUES), max_size=4), SPACES, st.booleans())

_ODD = st.one_of(VALUES, st.sampled_from(["null", "[]", "{}", '""', '" "', "1", "1.0", "-1", "true", '"x"']))
_NAMES = [
    "job",
    "urn",
    "trace_id",
    "data",
    "meta",
    "attempts",
    "dead_letter",
    "timestamp",
    "x",
    "Job",
    "envelope",
    "headers",
]
_META_NAMES = ["id", "queue", "lang", "schema_version", "created_at", "ts", "source", "ext", "max_retries", "attempts"]


@st.composite
def _changed(draw: st.DrawFn, pairs: Pairs, names: list[str]) -> Pairs:
    """``pairs`` with up to three members dropped, replaced, repeated or added, often in another order."""
    changed = list(pairs)
    for _ in range(draw(st.integers(0, 3))):
        name = draw(st.sampled_from(names))
        match draw(st.sampled_from(["drop", "add", "replace"])):
            case "drop":
                changed = [pair for pair in changed if pair[0] != name]
            case "add":
                changed.insert(draw(st.integers(0, len(changed))), (name, draw(_ODD)))
            case _:
                changed = [(key, draw(_ODD) if key == name else raw) for key, raw in changed]
    return draw(st.one_of(st.just(changed), st.permutations(changed)))


@st.composite
def frames(draw: st.DrawFn, clean: bool = False) -> str:
    """A full envelope for the queue ``orders`` as text; without ``clean`` often broken."""
    space, ascii_only = draw(SPACES), draw(st.booleans())
    names = st.text(min_size=1, max_size=8).filter(lambda text: text.strip(" \t\n\v\f\r") != "")
    ids = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=8)
    meta: Pairs = [
        ("id", draw(strings(ids))),
        ("queue", '"orders"'),
        ("lang", draw(st.sampled_from(['"php"', '"python"']))),
        ("schema_version", "1"),
        ("created_at", str(draw(st.integers(0, 2**63 - 1)))),
    ]
    top: Pairs = [
        ("job", draw(strings(names))),
        ("trace_id", draw(strings(names))),
        ("data", draw(OBJECTS)),
        ("meta", ""),
        ("attempts", str(draw(st.integers(0, 2**63 - 1)))),
    ]
    if not clean:
        meta = draw(_changed(meta, _META_NAMES))
    written_meta = render(meta, space, ascii_only)
    top = [(name, written_meta if name == "meta" else raw) for name, raw in top]
    if not clean:
        top = draw(_changed(top, _NAMES))
    return draw(SPACES) + render(top, space, ascii_only) + draw(SPACES)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Any bytes, most of them close to an envelope."""
    body = draw(frames()).encode(errors="surrogatepass")
    if draw(st.integers(0, 4)) == 0:
        at = draw(st.integers(0, len(body)))
        body = body[:at] + draw(st.binary(max_size=2)) + body[at + draw(st.integers(0, 3)) :]
    return draw(st.sampled_from([body, body, body, body, draw(st.binary(max_size=8))]))


_OPTIONS = {
    "delay_seconds": "1.50",
    "ordering_key": '"é"',
    "headers": '{"a" : "b"}',
    "idempotency_key": '"k"',
    "broker_properties": '{"SessionId" : "é", "TimeToLive": 1.50}',
    "deliver_at": "1790000000000",
    "ttl_seconds": "1.50",
    "priority": "9",
}
_META = '{"id":"i","queue":"orders","lang":"go","schema_version":1,"created_at":5}'


@st.composite
def near_ordinary(draw: st.DrawFn) -> bytes:
    """Bodies that differ from an ordinary one in a value, a literal, a repeated member or the spacing."""
    ordinary: Pairs = [
        ("job", '"urn:a"'),
        ("trace_id", '"t"'),
        ("data", draw(OBJECTS)),
        (
            "meta",
            draw(st.sampled_from([_META, _META[:-1] + ',"ext":{"a" : 1.10, "b":1e400}}', _META[:-1] + ',"ext":[1]}'])),
        ),
        ("attempts", "0"),
    ]
    name = draw(st.sampled_from([name for name, _ in ordinary]))
    value = draw(st.one_of(_ODD, st.just(dict(ordinary)[name])))
    changed = [(key, value if key == name else raw) for key, raw in ordinary]
    options = draw(st.lists(st.tuples(st.sampled_from(list(_OPTIONS)), _ODD), max_size=2))
    options += draw(st.lists(st.sampled_from(list(_OPTIONS.items())), max_size=3))
    draft = draw(st.permutations([*ordinary[:3], *options]))
    pairs = draw(st.sampled_from([ordinary, changed, ordinary[:3], draft, [(name, value), *ordinary]]))
    return render(pairs, draw(SPACES), draw(st.booleans())).encode(errors="surrogatepass")


def exact(text: str) -> Any:
    """``text`` parsed with its key order, repeated keys and number literals."""
    return json.loads(
        text, object_pairs_hook=tuple, parse_int=lambda raw: f"int {raw}", parse_float=lambda raw: f"float {raw}"
    )
