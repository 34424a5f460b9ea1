"""``pipeline redrive``, ``replay`` and ``backfill``: the messages sent, their queues, and the ledger."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
import re
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from babelgate.pipeline.journal.reader import read_journal
from tests.harness.gateway import gateway
from tests.harness.local import free_port
from tests.harness.secrets import found_in
from tests.pipeline.sending import Sends, body, drained, envelopes, messages_of, write

DEAD = {"dead_letter": {"reason": "failed"}}


@pytest.fixture
def sends(spark, tmp_path):
    return Sends(spark, tmp_path)


@pytest.fixture
def running(tmp_path, sends):
    with gateway(tmp_path) as process:
        sends.url = process.url
        yield process


def of(told):
    """The counts that are not 0."""
    return {name: count for name, count in told["counts"].items() if count}


def test_every_message_goes_once(sends, running, tmp_path):
    many = [body(number, f"q{number % 3}") for number in range(300)]
    write(tmp_path / "in.ndjson", *many, many[0], body(1, "q1", attempts=4))
    told = sends("backfill", tmp_path / "in.ndjson", "--from", "bodies")
    assert of(told) == {"selected": 300, "duplicates": 2, "accepted": 300}
    assert told["by_queue"] == {f"q{number}": {"accepted": 100} for number in range(3)}
    lines = sends.ledger()
    assert {(line["status"], line["http_status"], line["attempts"]) for line in lines} == {("accepted", 201, 1)}
    assert len({line["idempotency_key"] for line in lines}) == 300
    found = envelopes(running, "q1")
    assert sorted(each["data"]["number"] for each in found) == list(range(1, 300, 3))
    assert {each["attempts"] for each in found if each["meta"]["id"] == "id-1"} == {4}, "the last that was found"

    again = sends("backfill", tmp_path / "in.ndjson", "--from", "bodies")
    assert again["completed_at"] == told["completed_at"]
    assert again["unchanged"] and not told["unchanged"]
    assert "nothing is left to send" in sends.output and "starting Spark" not in sends.output
    other = sends("backfill", tmp_path / "in.ndjson", "--from", "bodies", "--run-id", "once-more", "--limit", 2)
    assert of(other) == {"selected": 2, "duplicates": 2, "accepted": 2}, "another run has other keys"
    assert drained(running, "q1") == {"id-1": 1}
    sends("backfill", tmp_path / "in.ndjson", "--from", "bodies", "--run-id", "once-more", "--limit", 3, code=2)
    assert "Run once-more was begun with other options: limit." in sends.output
    sends("redrive", tmp_path / "in.ndjson", "--from", "dead-letters", "--run-id", "once-more", "--limit", 2, code=2)
    assert "Run once-more belongs to backfill" in sends.output
    write(tmp_path / "in.ndjson", *many)
    sends("backfill", tmp_path / "in.ndjson", "--from", "bodies", "--run-id", "once-more", "--limit", 2, code=2)
    assert "Run once-more is done, and had other inputs" in sends.output


def test_messages_are_sent_as_they_were_asked_for(sends, running, tmp_path):
    write(tmp_path / "in", body(1, "old", **DEAD), body(2, "old"), body(3, "older", attempts=0))
    told = sends("backfill", tmp_path / "in", "--from", "bodies", "--to-queue", "new", code=4)
    assert of(told) == {"selected": 3, "accepted": 2, "rejected": 1}
    assert told["codes"] == {"reserved_key": 1}
    assert [line["code"] for line in sends.ledger()] == ["reserved_key", None, None]
    assert "1 messages were rejected" in sends.output
    assert [(each["meta"]["queue"], each["attempts"]) for each in envelopes(running, "new")] == [("new", 3), ("new", 0)]

    given = "--from", "bodies", "--drop-dead-letter", "--reset-attempts", "--select", "queue = 'old'"
    assert of(sends("backfill", tmp_path / "in", *given)) == {"selected": 2, "accepted": 2}
    found = envelopes(running, "old")
    assert {each["attempts"] for each in found} == {0}
    assert not any("dead_letter" in each for each in found)
    assert drained(running, "older") == {}


def test_quarantine_goes_back_and_tells_what_is_still_wrong(sends, running, tmp_path):
    no_id = b'{"job":"urn:a","trace_id":"t","data":{},"meta":{"queue":"q","schema_version":2},"attempts":0}'
    fixable = body(1, trace_id="t", data={})[:-1] + b',"dead_letter":7}'
    nowhere = [
        b'{"job":"urn:c","meta":{"id":"\\u001b[31mred","queue":"%b"}}' % name for name in (b"..", b"\\u001b[2Jq")
    ]
    write(tmp_path / "in", body(0), no_id, fixable, b"no json", b'{"job":"urn:b"}', *nowhere)
    result = sends("validate", tmp_path / "in")
    assert result["counts"]["quarantined"] == 6
    sends("redrive", "--dry-run")
    assert "\\u001b[2Jq  \\u001b[31mred" in sends.shown
    assert "\x1b" not in sends.output, "what a producer says is not obeyed by the terminal"
    told = sends("redrive", code=4)
    assert of(told) == {"selected": 6, "accepted": 1, "rejected": 5}
    assert told["codes"] == {"unsupported_schema_version": 1, "no_queue": 2, "invalid_queue": 2}
    assert of(sends("redrive", code=4)) == of(told)
    assert "nothing is left to send" in sends.output and "starting Spark" not in sends.output
    names = {line["message_id"] for line in sends.ledger()}
    assert names >= {"id-1", f"sha256:{hashlib.sha256(no_id).hexdigest()}"}
    assert drained(running, "q") == {"id-1": 1}
    assert of(sends("backfill")) == {"selected": 1, "accepted": 1}
    assert drained(running, "q") == {"id-0": 1}


def test_an_export_of_dead_letters(sends, running, tmp_path):
    with running.client() as client:
        for number in range(3):
            client.post("/queues/q/messages", content=body(number), headers={"content-type": "application/json"})
        received = client.post("/queues/q/messages:receive", json={"max_messages": 3}).json()["messages"]
        tokens = [message["ack_token"] for message in received]
        assert client.post("/queues/q/messages:reject", json={"ack_tokens": tokens}).status_code == 200
        (tmp_path / "dead.json").write_bytes(client.get("/queues/q/dead-letters").content)
    told = sends("redrive", tmp_path / "dead.json", "--from", "dead-letters", "--reset-attempts", "--to-queue", "again")
    assert of(told) == {"selected": 3, "accepted": 3}
    assert drained(running, "again") == {"id-0": 1, "id-1": 1, "id-2": 1}


def test_a_dry_run_tells_and_sends_nothing(sends, tmp_path):
    write(tmp_path / "in", *(body(number, f"q{number % 2}") for number in range(25)), b'{"job":"urn:b"}', body(1, "q1"))
    sends("backfill", tmp_path / "in", "--from", "bodies", "--dry-run")
    assert "26 messages would be sent to http://127.0.0.1:9; nothing was sent." in sends.output
    assert [line.split() for line in sends.shown.splitlines()[1:3]] == [["13", "q0"], ["12", "q1"]]
    assert "(no queue: --to-queue names one)" in sends.output
    assert "1 further rows are duplicates by id" in sends.output
    assert "q0  id-0  1000  b'{" in sends.output
    assert not Path(sends.root).exists()


def test_a_file_that_cannot_be_read_to_its_end_is_not_passed_over(sends, running, tmp_path):
    """It is told, whatever is selected, and the run is not done before it was read."""
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "a", body(1), body(2))
    whole = gzip.compress(b"".join(body(number, "other") + b"\n" for number in range(3, 2000)))
    path = tmp_path / "in" / "b.gz"
    path.write_bytes(whole[:-12])
    given = "backfill", tmp_path / "in", "--from", "bodies"
    sends(*given, "--dry-run", "--select", "queue = 'q'")
    assert sends.shown.startswith("2 messages would be sent")
    assert re.search(
        r"1 files or bodies could not be read completely, such as file:\S*/b.gz@\d+: Its gzip data", sends.shown
    )
    told = sends(*given, "--select", "queue = 'q'", code=4)
    assert of(told) == {"selected": 2, "accepted": 2, "unread": 1}
    assert "warning: 1 files or bodies could not be read" in sends.output
    sends(*given, "--select", "queue = 'q'", code=4)
    path.write_bytes(whole)
    sends(*given, "--select", "queue = 'q'", code=2)
    told = sends(*given, "--select", "queue = 'q'", "--run-id", told["run_id"])
    assert of(told) == {"selected": 2, "accepted": 2}
    assert drained(running, "q") == {"id-1": 1, "id-2": 1}

    table = pa.table({"one": [body(8), None, b""], "two": [body(9)] * 3})
    parquet.write_table(table, tmp_path / "bodies.parquet")
    given = "backfill", tmp_path / "bodies.parquet", "--from", "bodies"
    sends(*given, code=4)
    assert "Which column holds the bodies?" in sends.output
    told = sends(*given, "--column", "one", code=4)
    assert of(told) == {"selected": 2, "duplicates": 1, "accepted": 1, "rejected": 1}
    assert told["codes"] == {"no_body": 1}
    told = sends(*given, "--column", "two")
    assert of(told) == {"selected": 1, "duplicates": 2, "accepted": 1}
    assert drained(running, "q") == {"id-8": 1, "id-9": 1}


def test_a_selection_is_the_same_however_the_rows_lie(sends, running, tmp_path):
    bodies = [body(number, "q", trace_id="t") for number in range(200)]
    for name in ("first", "second"):
        random.Random(name).shuffle(bodies)
        write(tmp_path / name, *bodies)
        given = "--from", "bodies", "--select", "created_at % 2 = 1", "--limit", 7
        assert of(sends("backfill", tmp_path / name, *given)) == {"selected": 7, "accepted": 7}
        assert drained(running, "q") == {f"id-{number}": 1 for number in range(1, 15, 2)}


def test_what_was_told_wrong_is_said_before_anything_is_sent(sends, tmp_path):
    write(tmp_path / "in", body(1), body(2, "other"))
    given = "backfill", tmp_path / "in", "--from", "bodies"
    for select, wrong in (("nothing = 1", "nothing"), ("queue ==", "syntax"), ("attempts", "boolean")):
        sends(*given, "--select", select, code=2)
        assert "--select" in sends.output
        assert wrong in sends.output.lower()
    sends(*given, "--run-id", "a/b", code=2)
    sends(*given, "--to-queue", "a b", code=2)
    sends(*given, "--max-rate", "nan", code=2)
    sends(*given, "--max-rate", "inf", code=2)
    sends(*given, "--summary", tmp_path / "no" / "such.json", code=2)
    assert "there is no folder" in sends.output
    sends(*given, "--url", "localhost:1", code=2)
    sends(*given, "--url", "http://shop:secret@127.0.0.1:1", code=2)
    assert "secret" not in sends.output
    sends("backfill", tmp_path / "nowhere", "--from", "bodies", code=2)
    sends("backfill", tmp_path, code=2)
    assert "INPUTS: --from accepted reads the lake" in sends.output
    sends("backfill", "--from", "bodies", code=2)
    assert "INPUTS: --from bodies reads files" in sends.output
    sends("backfill", code=1)
    assert "has no dataset accepted" in sends.output
    sends(*given, code=1)
    assert "No gateway answers at http://127.0.0.1:9." in sends.output
    digests = [hashlib.sha256(token).hexdigest() for token in (b"secret", b"useless")]
    rights = {"*": ["send"]}, {"x": ["send"]}
    tokens = [{"name": f"t{n}", "sha256": digests[n], "rights": rights[n]} for n in range(2)]
    with gateway(
        tmp_path, {"auth": {"tokens": tokens}, "queues": {"q": {"broker": "local"}}, "default": None}
    ) as process:
        sends.url = process.url
        sends(*given, code=1)
        assert "401 unauthenticated" in sends.output
        sends(*given, "--token", "useless", code=1)
        assert "403 forbidden" in sends.output
        sends(*given, "--token", "secret", code=2)
        assert "for the queue other: 404 queue_not_found" in sends.output
        assert "secret" not in sends.output
        told = sends(*given, "--token", "secret", "--select", "queue = 'q'")
        assert of(told) == {"selected": 1, "accepted": 1}
    assert not any(b"secret" in path.read_bytes() for path in Path(sends.root).rglob("*") if path.is_file())


def test_where_nobody_keeps_keys_nothing_is_sent(sends, tmp_path):
    write(tmp_path / "in", body(1))
    with gateway(tmp_path, {"idempotency": {"store": "none"}}) as process:
        sends.url = process.url
        sends("backfill", tmp_path / "in", "--from", "bodies", code=1)
        assert "422 idempotency_unsupported" in sends.output
        assert "1 messages are left" in sends.output
        assert drained(process, "q") == {}


@pytest.mark.redis
def test_a_circuit_opens_and_the_rest_is_sent_later(sends, tmp_path):
    write(tmp_path / "in", *(body(number, "up" if number % 2 else "down") for number in range(40)))
    down = {
        "local": f"sqlite:///{tmp_path}/messages.db",
        "down": {"url": f"redis://127.0.0.1:{free_port()}", "required": False},
    }
    config = {
        "port": free_port(),
        "queues": {"down": {"broker": "down"}},
        "default": {"broker": "local"},
        "brokers": down,
    }
    given = "backfill", tmp_path / "in", "--from", "bodies", "--parallelism", 1, "--give-up-seconds", 1.5
    with gateway(tmp_path, config) as process:
        sends.url = process.url
        told = sends(*given, code=4)
        assert told["counts"]["left"] + told["counts"]["accepted"] == 40
        assert told["by_queue"]["down"] == {"left": 20}
        assert set(told["codes"]) == {"broker_unavailable"}
        assert f"{told['counts']['left']} messages are left" in sends.output
        sent = told["counts"]["accepted"]
    config["queues"] = {}
    with gateway(tmp_path, config) as process:
        told = sends(*given)
        assert of(told) == {"selected": 40, "accepted": 40}
        assert sent < 40
        assert drained(process, "up") + drained(process, "down") == {f"id-{number}": 1 for number in range(40)}


def test_a_run_whose_inputs_have_changed_is_not_begun_anew_unasked(sends, tmp_path):
    write(tmp_path / "in", *(body(number) for number in range(10)))
    given = "backfill", tmp_path / "in", "--from", "bodies"
    with gateway(tmp_path, {"idempotency": {"store": "none"}}) as process:
        sends.url = process.url
        sends(*given, code=1)
    (run,) = (path.name.removeprefix("run=") for path in (Path(sends.root) / "ledger" / "v=1" / "_pieces").iterdir())
    write(tmp_path / "in", *(body(number) for number in range(12)))
    with gateway(tmp_path, {"port": int(sends.url.rpartition(":")[2])}) as process:
        sends(*given, code=2)
        assert f"Continue it with --run-id {run}" in sends.output
        write(tmp_path / "in2", body(20, "q2"))
        elsewhere = sends("backfill", tmp_path / "in2", "--from", "bodies")
        assert of(elsewhere) == {"selected": 1, "accepted": 1}, "what lies elsewhere is another matter"
        assert of(sends(*given, "--run-id", run)) == {"selected": 12, "accepted": 12}
        assert "have changed since it was begun" in sends.output
        assert len(drained(process, "q")) == 12


def test_what_was_cut_off_longer_ago_than_keys_are_kept_is_not_gone_on_with_unasked(sends, tmp_path):
    """Also when it was killed before it wrote anything down, and when it was cut off a second time since."""
    write(tmp_path / "in", *(body(number) for number in range(10)))
    given = "backfill", tmp_path / "in", "--from", "bodies"
    pieces = Path(sends.root) / "ledger" / "v=1" / "_pieces"
    with gateway(tmp_path, {"idempotency": {"store": "none"}}) as process:
        sends.url = process.url
        for name in ("early", "twice"):
            sends(*given, "--run-id", name, code=1)
            for piece in (pieces / f"run={name}").glob("*.parquet"):
                os.utime(piece, (time.time() - 20 * 3600,) * 2)
        for piece in (pieces / "run=early").glob("*.parquet"):
            piece.unlink()
        sends(*given, "--run-id", "twice", code=1)
        assert "422 idempotency_unsupported" in sends.output, "within 24 h it goes on"
    port = int(sends.url.rpartition(":")[2])
    for name, seconds in (("early", 60), ("twice", 36000)):
        with gateway(tmp_path, {"port": port, "idempotency": {"retention_seconds": seconds}}) as process:
            sends(*given, "--run-id", name, code=1)
            assert f"Run {name} was cut off" in sends.output
            assert drained(process, "q") == {}
            if name == "twice":
                told = sends(*given, "--run-id", name, "--unknown", "publish")
                assert of(told) == {"selected": 10, "accepted": 10}


def test_from_the_journal(sends, tmp_path):
    """What was accepted is sent again, with its headers, in the order of its key; of the dead letters, those that still
    lie there."""
    journal = {"landing": str(tmp_path / "journal"), "compression": "gzip", "bodies": True}
    with gateway(tmp_path, {"journal": journal}) as process:
        with process.client() as client:
            for number in reversed(range(6)):
                entry = {"envelope": json.loads(body(number)), "headers": {"shop": f"n-{number}"}, "ordering_key": "k"}
                assert client.post("/queues/q/messages", json={**entry, "ttl_seconds": 3600}).status_code == 201
            received = client.post("/queues/q/messages:receive", json={"max_messages": 6}).json()["messages"]
            by_id = {message["envelope"]["meta"]["id"]: message["ack_token"] for message in received}
            client.post("/queues/q/messages:ack", json={"ack_tokens": [by_id["id-0"], by_id["id-1"]]})
            rejected = {"ack_tokens": [by_id[f"id-{number}"] for number in (2, 3, 4)]}
            assert client.post("/queues/q/messages:reject", json=rejected).status_code == 200
            listed = client.get("/queues/q/dead-letters").json()["dead_letters"]
            assert len(listed) == 3
            redriven = client.post("/queues/q/dead-letters:redrive", json={"limit": 1}).json()
            assert redriven["redriven"] == 1
        assert process.stop() == 0
        process.start()
        sends.url = process.url
        sends("ingest", tmp_path / "journal")
        told = sends("redrive", "--from", "journal", "--to-queue", "dead", "--reset-attempts")
        assert of(told) == {"selected": 2, "accepted": 2}
        left = {each["id"] for each in listed} - {listed[0]["id"]}
        dead = messages_of(process, "dead")
        assert {each["envelope"]["meta"]["id"] for each in dead} == left
        assert all(each["headers"] == {"shop": f"n-{each['envelope']['data']['number']}"} for each in dead)
        told = sends("replay", "--to-queue", "again", "--select", "queue = 'q' and created_at < 1005")
        assert of(told) == {"selected": 5, "accepted": 5}
        sends("replay", "--to-queue", "again", "--select", "queue = 'q' and created_at < 1005")
        assert "nothing is left to send" in sends.output and "starting Spark" not in sends.output
        again = [(each["envelope"]["meta"]["id"], each["headers"]) for each in messages_of(process, "again")]
        assert again == [(f"id-{number}", {"shop": f"n-{number}"}) for number in reversed(range(5))]
        without = "--without", "headers", "--without", "ordering_key"
        sends("replay", "--to-queue", "bare", "--select", "ordering_key = 'k' and queue = 'q'", *without)
        bare = messages_of(process, "bare")
        assert [each["headers"] for each in bare] == [{}] * 6


@pytest.mark.parametrize("origin", ["quarantined", "dead-letters"])
def test_only_the_journal_has_what_is_left_out(sends, origin):
    sends("redrive", "--from", origin, "--without", "headers", code=2)
    assert f"--without: --from {origin} has no headers or ordering keys to leave out" in sends.output


def test_encrypted_bodies_of_the_journal(spark, sends, tmp_path):
    """The lake has what the gateway has encrypted. A command with the keys sends it; without them it tells which key
    is missing, and the run is not done."""
    keys = [{"id": "2026", "secret": "n" * 32}]
    settings = {
        "journal": {"landing": str(tmp_path / "journal"), "compression": "gzip", "bodies": True},
        "body_keys": keys,
        "queues": {"pay": {"broker": "local", "encrypt": True}},
        "default": {"broker": "local"},
    }
    (tmp_path / "keys.json").write_text(json.dumps(keys))
    with gateway(tmp_path, settings) as process:
        with process.client() as client:
            for number, queue in enumerate(("pay", "pay", "q")):
                sent = json.loads(body(number, queue, data={"note": f"confidential-{number}"}))
                entry = {"envelope": sent, "headers": {"to": f"confidential-{number}"}}
                assert client.post(f"/queues/{queue}/messages", json=entry).status_code == 201
            received = client.post("/queues/pay/messages:receive", json={}).json()["messages"]
            rejected = {"ack_tokens": [received[0]["ack_token"]]}
            assert client.post("/queues/pay/messages:reject", json=rejected).status_code == 200
        assert process.stop() == 0
        process.start()
        sends.url = process.url
        sends("ingest", tmp_path / "journal")
        found = read_journal(spark, sends.root).where("queue = 'pay' and envelope_encrypted is not null").collect()
        assert len(found) >= 2 and {row["envelope"] for row in found} == {None}
        told = sends("replay", "--to-queue", "again", code=4)
        assert of(told) == {"selected": 1, "accepted": 1, "unread": 2}
        assert "2 files or bodies could not be read completely" in sends.output
        assert "body_keys has no key with the id '2026'" in sends.output
        sends("replay", "--to-queue", "q2", "--select", "queue = 'q'", "--dry-run")
        assert "1 messages would be sent" in sends.output and "could not be read" not in sends.output
        given = "--body-keys", tmp_path / "keys.json"
        told = sends("replay", "--to-queue", "again", *given)
        assert of(told) == {"selected": 3, "accepted": 3}
        again = {each["envelope"]["meta"]["id"]: each["headers"] for each in messages_of(process, "again")}
        assert again == {f"id-{number}": {"to": f"confidential-{number}"} for number in range(3)}
        sends("redrive", "--from", "journal", "--to-queue", "dead", "--reset-attempts", *given)
        assert drained(process, "dead") == {received[0]["envelope"]["meta"]["id"]: 1}
    lake = [(path.name, path.read_bytes()) for path in Path(sends.root).rglob("*") if path.is_file()]
    assert lake and found_in(lake, "confidential-0", "confidential-1") == []
