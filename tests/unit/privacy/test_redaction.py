"""Redaction of bodies: what is hidden at each place, what stays as it was written, and edits of what was hidden."""

from __future__ import annotations

import json

import pytest

from babelgate.envelope import dead_letter_block, dead_letter_record
from babelgate.privacy.redaction import EVERYTHING, MARKER, Redaction, check_pointer

PLACES = ["/data/card/number", "/data/customers/*/email", "/data/a~1b/m~0n", "/data/items/1", "/meta/ext/shop/person"]
REDACTION = Redaction(PLACES)


def envelope(data, **others):
    return json.dumps({"job": "j", "data": data, **others}, separators=(",", ":"), ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ('{"card":{"number":"S","kind":1.10}}', '{"card":{"number":"[redacted]","kind":1.10}}'),
        ('{"card":{"number":{"deep":["S"]}}}', '{"card":{"number":"[redacted]"}}'),
        ('{"card":{"number":"S","number":7}}', '{"card":{"number":"[redacted]"}}'),
        ('{"card":{"n\\u0075mber":"S"}}', '{"card":{"number":"[redacted]"}}'),
        ('{"card":[1],"other":"x"}', '{"card":[1],"other":"x"}'),
        (
            '{"customers":[{"email":"S"},{"email":null,"k":9007199254740993},3]}',
            '{"customers":[{"email":"[redacted]"},{"email":"[redacted]","k":9007199254740993},3]}',
        ),
        ('{"customers":{"x":{"email":"S"}}}', '{"customers":{"x":{"email":"[redacted]"}}}'),
        ('{"a/b":{"m~n":"S"},"items":[1,"S",3]}', '{"a/b":{"m~n":"[redacted]"},"items":[1,"[redacted]",3]}'),
    ],
)
def test_the_value_at_a_place_is_hidden_and_the_rest_is_as_written(data, shown):
    body = '{"job":"j","data":%s,"meta":{"id":"i","ext":{"shop":{"person":"S","order":1}}},"attempts":0}'
    assert REDACTION.redacted((body % data).encode()).decode() == (body % shown).replace(
        '"person":"S"', f'"person":"{MARKER}"'
    )


@pytest.mark.parametrize(
    "body",
    [
        b"SECRET",
        b'"SECRET"',
        b'["SECRET"]',
        b'{"data":{"card":{"number":"SECRET"}}',
        b'{"data":{"card":{"number":"\\ud800SECRET"}},"\\ud800":1}',
        b'{"card":"SECRET"}',
        b'{"job":{"card":"SECRET"},"data":"SECRET","meta":["SECRET"],"attempts":"SECRET","trace_id":["SECRET"]}',
        b'{"data":{"card":{"number":"SECRET"}},"data":{"card":{"number":"SECRET"}}}',
        b"\xff\xfeSECRET",
        b'{"data":' + b'{"card":' * 5_000 + b'"SECRET"' + b"}" * 5_001,
        b"",
    ],
)
def test_nothing_is_shown_whose_place_is_unknown(body):
    assert b"SECRET" not in REDACTION.redacted(body)
    assert b"SECRET" not in REDACTION.redacted(
        dead_letter_record(body, dead_letter_block("poison", "q", 0, 1, error="invalid_json"))
    )


def test_the_block_of_a_dead_letter_stays():
    record = dead_letter_record(
        envelope({"card": {"number": "S"}}), dead_letter_block("failed", "q", 3, 1, error="no such mailbox")
    )
    shown = json.loads(REDACTION.redacted(record))
    assert shown["data"] == {"card": {"number": MARKER}}
    assert shown["dead_letter"]["error"] == "no such mailbox"


def test_everything_hides_all_but_the_frame():
    body = envelope({"a": 1, "b": ["x"]}, meta={"id": "i", "ext": {"v": {"t": 1}}})
    hidden = {"a": MARKER, "b": MARKER}
    assert json.loads(EVERYTHING.redacted(body)) == {
        "job": "j",
        "data": hidden,
        "meta": {"id": "i", "ext": {"v": MARKER}},
    }


def test_an_edit_keeps_what_its_writer_has_not_seen():
    original = envelope({"card": {"number": "S", "kind": 1}, "customers": [{"email": "a"}, {"email": "b"}]}, odd="S")
    edited = json.loads(REDACTION.redacted(original))
    edited["data"]["card"]["kind"] = 2
    edited["data"]["customers"][1]["email"] = "c"
    body, missing = REDACTION.restored(json.dumps(edited).encode(), original)
    assert missing == []
    assert json.loads(body) == json.loads(original) | {
        "data": {"card": {"number": "S", "kind": 2}, "customers": [{"email": "a"}, {"email": "c"}]}
    }
    wrapped, missing = REDACTION.restored(json.dumps({"envelope": edited, "priority": 1}).encode(), original)
    assert (json.loads(wrapped), missing) == ({"envelope": json.loads(body), "priority": 1}, [])


@pytest.mark.parametrize(
    ("data", "missing"),
    [
        ({"customers": [{"email": MARKER}]}, ["/data/customers/0/email"]),
        ({"card": {"number": MARKER}}, ["/data/card/number"]),
        ({"card": {"number": "new"}}, []),
        ({"other": MARKER}, []),
    ],
)
def test_a_marker_without_a_value_is_named(data, missing):
    """A list of another length has no values: nobody knows which item was removed."""
    original = envelope({"customers": [{"email": "a"}, {"email": "b"}]})
    edited = envelope(data)
    assert REDACTION.restored(edited, original) == (edited, missing)
    wrapped = json.dumps({"envelope": {"job": "j", "data": data}}).encode()
    assert REDACTION.restored(wrapped, original)[1] == [f"/envelope{each}" for each in missing]


@pytest.mark.parametrize("text", ["", "/", "/data", "/job", "/meta/id", "/meta/ext", "data/x", "/data/~2", "/datax/y"])
def test_other_pointers_are_refused(text):
    with pytest.raises(ValueError, match="JSON pointer below /data or /meta/ext"):
        check_pointer(text)
