"""The command line against a real gateway."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import click
import httpx
import pytest

from babelgate.cli.main import cli
from babelgate.gateway.dead_letters import MAX_SCANNED
from tests.harness import program
from tests.harness.gateway import gateway
from tests.harness.pages import commands_work

ROOT = Path(__file__).parents[2]
TOKEN = "a-token-for-the-tests"
SHOP_ONLY = "a-token-for-the-shop"


def rights(name: str, token: str, queues: str) -> dict:
    held = {queues: ["send", "listen", "manage"]}
    return {"name": name, "sha256": sha256(token.encode()).hexdigest(), "rights": held}


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    config = {
        "auth": {"tokens": [rights("all", TOKEN, "*"), rights("shop", SHOP_ONLY, "shop.*")]},
        "queues": {"named": {"broker": "local"}},
        "default": {"broker": "local"},
    }
    with gateway(tmp_path_factory.mktemp("gateway"), config) as process:
        yield process


def run(*arguments: str, stdin: bytes = b"", **environ: str) -> subprocess.CompletedProcess[bytes]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BABELGATE_")}
    return program.run(*arguments, environ=clean | environ, stdin=stdin)


@pytest.fixture
def babelgate(running):
    def babelgate(
        *arguments: str, stdin: bytes = b"", token: str = TOKEN, json: bool = True
    ) -> subprocess.CompletedProcess[bytes]:
        given = (*arguments, "--json") if json else arguments
        done = run(*given, stdin=stdin, BABELGATE_URL=running.url, BABELGATE_TOKEN=token)
        assert b"Traceback" not in done.stderr
        return done

    return babelgate


def lines(done: subprocess.CompletedProcess[bytes]) -> list[dict]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def shown(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().splitlines()


def draft(n: int) -> bytes:
    return b'{"job":"count","data":{"n":%d}}\n' % n


@pytest.mark.parametrize("proxy", [{}, {"https_proxy": "http://127.0.0.1:1"}], ids=["direct", "by a proxy"])
def test_authorities_are_read_where_tls_may_need_them(running, proxy):
    """To read them takes longer than a call."""
    environ = {"BABELGATE_URL": running.url, "BABELGATE_TOKEN": TOKEN, "SSL_CERT_FILE": "/nowhere"}
    done = program.run("queues", environ={"PATH": os.environ["PATH"], **environ, **proxy})
    assert (done.returncode == 0) == (not proxy), done.stderr


class TestPublishAndReceive:
    def test_one_message_by_options(self, babelgate, queue):
        (receipt,) = lines(babelgate("publish", queue, "--job", "x", "--data", '{"price": 1.10}', "--trace-id", "t-1"))
        done = babelgate("receive", queue, "--ack", "--envelope")
        assert b'"price":1.10' in done.stdout
        (envelope,) = lines(done)
        assert (envelope["meta"]["id"], envelope["trace_id"]) == (receipt["id"], "t-1")
        assert lines(babelgate("receive", queue)) == []

    def test_one_message_once(self, babelgate, queue):
        command = ("publish", queue, "--job", "x", "--idempotency-key", r'order "4711\0"')
        receipts = [lines(babelgate(*command)) for _ in range(2)]
        assert receipts[0] == receipts[1]
        assert len(lines(babelgate("receive", queue, "--ack", "--max", "2"))) == 1
        assert babelgate(*command[:-1], "é").returncode == 2
        assert babelgate(*command[:-1], "order-1").returncode == 0

    def test_one_document_of_many_lines(self, babelgate, queue):
        lines(babelgate("publish", queue, stdin=b'{\n  "job": "x",\n  "data": {}\n}\n'))
        (message,) = lines(babelgate("receive", queue))
        assert (message["envelope"]["job"], message["attempts"]) == ("x", 0)

    def test_an_array(self, babelgate, queue):
        done = babelgate("publish", queue, stdin=b"[" + draft(1) + b"," + draft(2) + b"]")
        assert lines(done) == [{"accepted": 2, "failed": 0}]

    def test_a_file_of_many_lines(self, babelgate, queue, tmp_path):
        path = tmp_path / "messages.ndjson"
        path.write_bytes(b"\n".join(draft(n) for n in range(2_500)))
        assert lines(babelgate("publish", queue, str(path))) == [{"accepted": 2_500, "failed": 0}]
        received = lines(babelgate("receive", queue, "--max", "3000", "--ack", "--envelope"))
        assert [envelope["data"]["n"] for envelope in received] == [*range(2_500)]

    def test_a_terminal_sees_progress(self, running, queue, tmp_path):
        path = tmp_path / "messages.ndjson"
        path.write_bytes(b"".join(draft(n) for n in range(2_500)))
        terminal, behind = pty.openpty()
        environ = os.environ | {"BABELGATE_URL": running.url, "BABELGATE_TOKEN": TOKEN, "TERM": "xterm"}
        command = [sys.executable, "-m", "babelgate", "publish", queue, str(path), "--json"]
        done = subprocess.run(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=behind, timeout=120)
        os.close(behind)
        shown = os.read(terminal, 65_536)
        os.close(terminal)
        assert (done.returncode, json.loads(done.stdout)["accepted"]) == (0, 2_500)
        assert b"publishing" in shown

    def test_a_reader_that_goes_away_leaves_messages_unacknowledged(self, running, babelgate, queue):
        babelgate("publish", queue, "--ndjson", stdin=b"".join(draft(n) for n in range(3)))
        environ = os.environ | {"BABELGATE_URL": running.url, "BABELGATE_TOKEN": TOKEN}
        command = [
            sys.executable,
            "-m",
            "babelgate",
            "receive",
            queue,
            "--ack",
            "--lease",
            "0.2",
            "--max",
            "3",
            "--json",
        ]
        with subprocess.Popen(
            command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as receiver:
            assert receiver.stdout and receiver.stderr
            receiver.stdout.close()
            assert (receiver.wait(120), receiver.stderr.read()) == (1, b"")
        again = lines(babelgate("receive", queue, "--wait", "5"))
        assert again[0]["envelope"]["data"] == {"n": 0}

    def test_a_token_may_stand_in_a_file(self, running, queue, tmp_path):
        path = tmp_path / "token"
        path.write_text(TOKEN + "\n")
        done = run("publish", queue, "--job", "x", BABELGATE_URL=running.url, BABELGATE_TOKEN_FILE=str(path))
        assert done.returncode == 0

    def test_bad_lines_are_told_by_number_and_the_others_published(self, babelgate, queue):
        stdin = draft(1) + b"\n" + b"not json\n" + b'{"data":{}}\n' + draft(2)
        done = babelgate("publish", queue, "--ndjson", stdin=stdin)
        assert (done.returncode, json.loads(done.stdout)) == (1, {"accepted": 2, "failed": 2})
        told = done.stderr.decode().splitlines()
        assert [line.split(":")[0] for line in told] == ["line 3", "line 4"]
        assert "missing_urn" in told[1]

    def test_events_are_published_alone_in_an_array_and_one_a_line(self, babelgate, queue):
        made = [{"specversion": "1.0", "id": f"{n}", "source": "/shop", "type": "x", "data": n} for n in range(5)]
        texts = [json.dumps(each).encode() for each in made]
        for stdin in (texts[0], b"[%b,%b]" % (texts[1], texts[2]), b"%b\n\n%b\n" % (texts[3], texts[4])):
            assert babelgate("publish", queue, "--cloudevents", stdin=stdin).returncode == 0
        found = [each["envelope"] for each in lines(babelgate("receive", queue, "--max", "10", "--ack"))]
        assert [(each["meta"]["id"], each["data"]["body"]) for each in found] == [(f"{n}", n) for n in range(5)]
        shown = json.loads(babelgate("validate", queue, "--cloudevents", stdin=texts[0]).stdout)
        assert shown["envelope"]["meta"]["ext"]["cloudevents"]["source"] == "/shop"
        refused = babelgate("publish", queue, "--cloudevents", stdin=b'{"specversion": "1.0"}')
        assert refused.returncode == 1 and refused.stderr.startswith(b"missing_attribute: ")

    def test_a_refused_envelope(self, babelgate, queue):
        done = babelgate("publish", queue, stdin=b'{"data": 1}')
        assert (done.returncode, done.stdout) == (1, b"")
        assert done.stderr.startswith(b"missing_urn: ")
        assert b"/data: invalid_data" in done.stderr

    def test_received_lines_can_be_published_again(self, babelgate, queue):
        babelgate("publish", queue, stdin=draft(1) + draft(2))
        received = babelgate("receive", queue, "--max", "5", "--envelope", "--ack")
        for line in received.stdout.splitlines():
            body = json.loads(line) | {"meta": json.loads(line)["meta"] | {"queue": f"{queue}.copy"}}
            assert babelgate("publish", f"{queue}.copy", stdin=json.dumps(body).encode()).returncode == 0
        assert len(lines(babelgate("receive", f"{queue}.copy", "--max", "5"))) == 2

    def test_without_ack_messages_come_again(self, babelgate, queue):
        babelgate("publish", queue, "--job", "x")
        assert len(lines(babelgate("receive", queue, "--lease", "0.2"))) == 1
        (again,) = lines(babelgate("receive", queue, "--wait", "10"))
        assert again["redelivered"]

    @pytest.mark.parametrize("command", [["tail"], ["receive", "--follow", "--ack"]], ids=["tail", "receive"])
    def test_messages_are_printed_as_they_come_until_an_interrupt(self, running, babelgate, queue, command):
        environ = os.environ | {"BABELGATE_URL": running.url, "BABELGATE_TOKEN": TOKEN}
        # A shell starts what runs in the background with SIGINT ignored, and a child inherits that.
        with subprocess.Popen(
            [sys.executable, "-m", "babelgate", *command, queue, "--json"],
            cwd=ROOT,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as following:
            assert following.stdout
            for n in range(2):
                babelgate("publish", queue, stdin=draft(n))
                assert json.loads(following.stdout.readline())["envelope"]["data"] == {"n": n}
            following.send_signal(signal.SIGINT)
            _, errors = following.communicate(timeout=120)
        says = b"" if command[0] == "receive" else f"tail: peeking at {queue}; no message is taken.\n".encode()
        assert (following.returncode, errors) == (130, says)
        left = lines(babelgate("receive", queue, "--max", "9"))
        assert [message["attempts"] for message in left] == ([] if command[0] == "receive" else [0, 0])

    def test_tail_prints_each_message_once(self, babelgate, queue):
        babelgate("publish", queue, "--ndjson", stdin=b"".join(draft(n) for n in range(3)))
        found = shown(babelgate("tail", queue, "--max", "3", json=False))
        assert found[0].split() == ["ID", "ATTEMPTS", "JOB", "DATA"]
        assert [line.split()[1:] for line in found[1:]] == [["0", "count", f'{{"n":{n}}}'] for n in range(3)]


class TestForPeople:
    def test_a_message_from_publish_to_ack(self, babelgate, queue):
        published = shown(babelgate("publish", queue, "--job", "x", "--data", '{"price": 1.10}', json=False))
        id_ = published[0].split()[1]
        assert published[0] == f"accepted {id_} on {queue} (local)"
        heads, row = shown(babelgate("peek", queue, json=False))
        assert row.split() == [id_, "0", "x", '{"price":1.10}']
        assert shown(babelgate("receive", queue, "--ack", json=False)) == [heads, row]
        assert shown(babelgate("receive", queue, json=False)) == []
        assert shown(babelgate("publish", queue, stdin=draft(1) + draft(2), json=False)) == ["2 accepted, 0 refused"]
        assert shown(babelgate("purge", queue, "--dry-run", json=False)) == ["2 messages would be removed"]
        assert shown(babelgate("purge", queue, "--dead-letters", "--dry-run", json=False)) == [
            "0 dead letters would be removed"
        ]
        assert shown(babelgate("purge", queue, "--yes", json=False)) == ["2 messages removed"]

    def test_an_escape_sequence_in_a_message_does_not_reach_the_terminal(self, babelgate, queue):
        babelgate("publish", queue, "--job", "x\x1b[2J")
        assert "\x1b" not in shown(babelgate("peek", queue, json=False))[1]

    def test_validate_shows_what_would_be_written(self, babelgate, queue):
        found = shown(babelgate("validate", queue, "--job", "x", "--trace-id", "t-1", json=False))
        assert f"queue: {queue}" in found and "  trace_id: t-1" in found
        (projection,) = lines(babelgate("validate", queue, "--job", "x"))
        assert projection["envelope"]["meta"]["queue"] == queue
        assert lines(babelgate("peek", queue)) == []
        refused = babelgate("validate", queue, "--mode", "consume", stdin=draft(1), json=False)
        assert (refused.returncode, refused.stdout) == (1, b"")

    def test_brokers(self, babelgate):
        heads, row = shown(babelgate("brokers", json=False))
        assert heads.split() == ["BROKER", "KIND", "STATE", "REQUIRED", "URL"]
        assert row.split()[:4] == ["local", "sqlite", "up", "no"]
        assert lines(babelgate("brokers"))[0]["kind"] == "sqlite"

    def test_redrive(self, babelgate, queue):
        for command in (["dead-letters", "redrive"], ["redrive"]):
            found = shown(babelgate(*command, queue, "--dry-run", json=False))
            assert found == ["0 dead letters match, 0 failed"]


class TestSettle:
    def test_the_output_of_receive_is_acknowledged(self, babelgate, queue):
        babelgate("publish", queue, stdin=draft(1) + draft(2))
        received = babelgate("receive", queue, "--max", "2")
        assert lines(babelgate("ack", queue, stdin=received.stdout)) == [{"settled": 2, "failed": 0}]
        assert shown(babelgate("ack", queue, stdin=received.stdout, json=False)) == ["2 settled, 0 failed"]
        assert lines(babelgate("peek", queue)) == []

    def test_nack_counts_and_what_was_not_attempted_does_not(self, babelgate, queue):
        babelgate("publish", queue, "--job", "x")
        for how, attempts in (("--not-attempted", 0), ("--delay-seconds=0", 0), ("--not-attempted", 1)):
            (message,) = lines(babelgate("receive", queue, "--wait", "10"))
            assert message["attempts"] == attempts
            assert lines(babelgate("nack", queue, message["ack_token"], how)) == [{"settled": 1, "failed": 0}]

    def test_what_is_not_settled_is_told_by_number(self, babelgate, queue):
        babelgate("publish", queue, "--job", "x")
        (message,) = lines(babelgate("receive", queue))
        done = babelgate("ack", queue, stdin=f"nonsense\n\n{message['ack_token']}\n".encode())
        assert (done.returncode, json.loads(done.stdout)) == (1, {"settled": 1, "failed": 1})
        assert done.stderr.startswith(b"token 1: invalid_ack_token: ")
        for stdin in (b"", b"\n", b'{"envelope": {}}\n'):
            empty = babelgate("nack", queue, stdin=stdin)
            assert (empty.returncode, b"ACK_TOKENS" in empty.stderr) == (2, True)


class TestHelp:
    @staticmethod
    def commands(group: click.Group, *above: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
        for name, command in group.commands.items():
            if isinstance(command, click.Group):
                yield from TestHelp.commands(command, *above, name)
            else:
                yield (*above, name), command

    def test_every_command_has_an_example_that_its_options_allow(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "messages.ndjson").touch()
        for path, command in self.commands(cli):
            words = [line.strip() for line in (command.epilog or "").splitlines()]
            given = [line for line in words if line.startswith("babelgate ")]
            assert given, f"{' '.join(path)} has no example"
            for example in given:
                said = shlex.split(example.partition(" < ")[0].partition(" > ")[0])
                assert tuple(said[1 : len(path) + 1]) == path, example
                # It raises UsageError for what the command does not know.
                with command.make_context(path[-1], said[len(path) + 1 :]):
                    pass

    def test_a_shell_completes_commands(self):
        for shell in ("bash", "zsh", "fish"):
            done = run("", _BABELGATE_COMPLETE=f"{shell}_source")
            assert (done.returncode, b"_BABELGATE_COMPLETE" in done.stdout) == (0, True), done.stderr


class TestQueues:
    def test_queues(self, babelgate):
        babelgate("publish", "named", "--job", "x")
        table = shown(babelgate("queues", json=False))
        assert table[0].split()[:4] == ["QUEUE", "BROKER", "SOURCE", "READY"]
        (row,) = [line for line in table if line.startswith("named ")]
        assert row.split()[:4] == ["named", "local", "configured", "1"]
        assert "named" in [found["queue"] for found in lines(babelgate("queues"))]

    def test_pause_and_resume(self, babelgate, queue):
        assert queue not in babelgate("queues", "--paused").stdout.decode()
        (said,) = shown(babelgate("pause", queue, "--reason", "a\x1b[2Jb", json=False))
        assert said.startswith(f"{queue} is paused. It is kept in state_dir")
        (answer,) = lines(babelgate("pause", queue, "--reason", "x", "--refuse-publishes"))
        assert (answer["pause"]["reason"], answer["pause"]["by"]) == ("x", "all")
        refused = babelgate("publish", queue, "--job", "x")
        assert (refused.returncode, refused.stderr.partition(b":")[0]) == (1, b"queue_paused")
        (row,) = [line for line in shown(babelgate("queues", "--paused", json=False)) if line.startswith(queue)]
        assert row.endswith("paused, refuses publishes")
        (said,) = shown(babelgate("resume", queue, json=False))
        assert said.startswith(f"{queue} is not paused. ")
        assert queue not in babelgate("queues", "--paused").stdout.decode()
        (answer,) = lines(babelgate("resume", queue))
        assert answer["pause"] is None


class TestDeadLetters:
    @pytest.fixture
    def dead(self, babelgate, running, queue):
        """Rejects all messages of the queue; returns the decoded output of ``list``."""

        def dead(messages: bytes) -> list[dict]:
            babelgate("publish", queue, stdin=messages)
            with running.client(headers={"authorization": f"Bearer {TOKEN}"}) as client:
                receive = f"queues/{queue}/messages:receive?max_messages=100"
                while got := client.post(receive).json()["messages"]:
                    tokens = [message["ack_token"] for message in got]
                    client.post(f"queues/{queue}/messages:reject", json={"ack_tokens": tokens}).raise_for_status()
            return lines(babelgate("dead-letters", "list", queue))

        return dead

    def test_list_and_show(self, babelgate, dead, queue):
        letters = dead(draft(1) + draft(2) + b'{"job":"other","data":{"n":1.0e3}}')
        assert [letter["job"] for letter in letters] == ["count", "count", "other"]
        heads, *rows = shown(babelgate("dead-letters", "list", queue, "--job", "count", json=False))
        assert heads.split()[:4] == ["LETTER", "ID", "MESSAGE", "ID"]
        assert [row.split()[0] for row in rows] == [letter["letter_id"] for letter in letters[:2]]
        assert len(lines(babelgate("dead-letters", "list", queue, "--limit", "2"))) == 2
        last = letters[2]["letter_id"]
        found = babelgate("dead-letters", "show", queue, last)
        assert (lines(found), b'"n":1.0e3' in found.stdout) == ([letters[2]], True)
        assert f"letter_id: {last}" in shown(babelgate("dead-letters", "show", queue, last, json=False))
        unknown = babelgate("dead-letters", "show", queue, "nothing")
        assert (unknown.returncode, unknown.stderr.partition(b":")[0]) == (1, b"unknown_dead_letter")

    def test_more_than_one_page_is_listed(self, babelgate, dead, queue):
        babelgate("publish", queue, stdin=b"".join(map(draft, range(50))))
        assert len(dead(b"".join(map(draft, range(50, 100))))) == 50
        assert dead(draft(100)) and len(lines(babelgate("dead-letters", "list", queue, "--limit", "1000"))) == 101

    def test_one_behind_very_many_is_found(self, babelgate, dead, queue):
        dead(b"".join(map(draft, range(MAX_SCANNED + 1))))
        *_, last = lines(babelgate("dead-letters", "list", queue, "--limit", str(2 * MAX_SCANNED)))
        assert lines(babelgate("dead-letters", "show", queue, last["letter_id"])) == [last]
        edited = babelgate("dead-letters", "redrive", queue, last["letter_id"], "--data", '{"edited":1}')
        assert edited.returncode == 0, edited.stderr
        unknown = babelgate("dead-letters", "show", queue, last["letter_id"])
        assert (unknown.returncode, unknown.stderr.partition(b":")[0]) == (1, b"unknown_dead_letter")

    def test_redrive_by_conditions(self, babelgate, dead, queue):
        dead(draft(1) + draft(2) + b'{"job":"other","data":{}}')
        command = ("dead-letters", "redrive", queue)
        (dry,) = lines(babelgate(*command, "--dry-run", "--job", "count"))
        assert (dry["matched"], dry["redriven"]) == (2, 0)
        assert lines(babelgate("receive", queue)) == []
        (done,) = lines(babelgate(*command, "--job", "count", "--limit", "1", "--to-queue", f"{queue}.again"))
        assert (done["redriven"], done["complete"]) == (1, False)
        (rest,) = lines(babelgate(*command, "--reason", "failed"))
        assert (rest["redriven"], rest["complete"]) == (2, True)
        assert len(lines(babelgate("receive", queue, "--max", "9"))) == 2

    def test_redrive_by_id_and_edited(self, babelgate, dead, queue):
        first, second, third = (letter["letter_id"] for letter in dead(draft(1) + draft(2) + draft(3)))
        command = ("dead-letters", "redrive", queue)
        sent = shown(babelgate(*command, first, "--data", '{"n":1.0e3}', json=False))
        assert sent[0].startswith(f"sent back to {queue} with id ")
        (edited,) = lines(babelgate(*command, second, "--body", "-", "--to-queue", queue, stdin=draft(7)))
        assert edited["edited"] is True
        partly = babelgate(*command, third, "nothing", json=False)
        assert (partly.returncode, partly.stdout) == (1, b"1 dead letters were sent back, 1 failed\n")
        assert partly.stderr.startswith(b"nothing: unknown_dead_letter: ")
        peeked = babelgate("peek", queue, "--limit", "9")
        assert [message["envelope"]["data"] for message in lines(peeked)] == [{"n": 1000}, {"n": 7}, {"n": 3}]
        assert b'"n":1.0e3' in peeked.stdout

    def test_redrive_in_the_background(self, babelgate, dead, queue):
        dead(draft(1))
        started = shown(babelgate("dead-letters", "redrive", queue, "--background", json=False))[0]
        identity = started.split()[1]
        assert started.startswith("job ") and identity in shown(babelgate("dead-letters", "jobs", queue, json=False))[1]
        (cancelled,) = lines(babelgate("dead-letters", "jobs", queue, identity, "--cancel"))
        assert cancelled["id"] == identity
        deadline = time.monotonic() + 60
        while (job := lines(babelgate("dead-letters", "jobs", queue, identity))[0])["state"] == "running":
            assert time.monotonic() < deadline, job
        if job["state"] == "cancelled":
            babelgate("dead-letters", "jobs", queue, identity, "--resume")
        assert len(lines(babelgate("receive", queue, "--wait", "10"))) == 1

    def test_delete(self, babelgate, dead, queue):
        first, second = (letter["letter_id"] for letter in dead(draft(1) + draft(2)))
        (answer,) = lines(babelgate("dead-letters", "delete", queue, first))
        assert (answer["removed"], answer["failed"]) == (1, 0)
        partly = babelgate("dead-letters", "delete", queue, first, second, json=False)
        assert (partly.returncode, partly.stdout) == (1, b"1 dead letters removed, 1 failed\n")
        assert partly.stderr.startswith(f"{first}: unknown_dead_letter: ".encode())
        assert lines(babelgate("dead-letters", "list", queue)) == []


class TestExitCodes:
    def test_refused_is_1_and_readable(self, babelgate, queue):
        unknown = babelgate("publish", queue, "--job", "x", token="nobody's")
        assert (unknown.returncode, unknown.stderr.partition(b":")[0]) == (1, b"unauthenticated")
        foreign = babelgate("receive", queue, token=SHOP_ONLY)
        assert (foreign.returncode, foreign.stderr.partition(b":")[0]) == (1, b"forbidden")
        assert babelgate("publish", "shop.a", "--job", "x", token=SHOP_ONLY).returncode == 0
        assert babelgate("publish", "no queue/at all", "--job", "x").returncode == 1

    @pytest.mark.parametrize(
        "arguments",
        [
            ["publish"],
            ["publish", "q", "--nonsense"],
            ["publish", "q", "/nowhere/file"],
            ["publish", "q", "--job", "x", "--data", "{"],
            ["publish", "q", "-", "--job", "x"],
            ["publish", "q", os.devnull, "--job", "x"],
            ["publish", "q", "--job", "x", "--data", "[]"],
            ["publish", "q", os.devnull],
            ["validate", "q"],
            ["receive", "q", "--max", "0"],
            ["nack", "q", "t", "--not-attempted", "--delay-seconds", "1"],
            ["publish", "q", "--job", "x", "--delay-seconds", "inf"],
            ["receive", "q", "--wait", "nan"],
            ["receive", "q", "--lease", "9" * 400],
            ["receive", "q", "--max", "9" * 5_000],
            ["nack", "q", "t", "--delay-seconds", "nan"],
            ["dead-letters", "redrive", "q", "--per-second", "nan"],
            ["dead-letters", "redrive", "q", "--per-second", "1e400"],
            ["dead-letters", "list", "q", "--limit", "0"],
            ["purge", "q"],
            ["dead-letters", "redrive", "q", "a", "b", "--data", "{}"],
            ["dead-letters", "redrive", "q", "--data", "{}"],
            ["dead-letters", "redrive", "q", "a", "--data", "{}", "--dry-run"],
            ["dead-letters", "redrive", "q", "a", "--data", "{"],
            ["dead-letters", "redrive", "q", "a", "--body", os.devnull],
            ["dead-letters", "redrive", "q", "a", "--job", "x"],
            ["dead-letters", "list", "q", "--reason", "foo"],
            ["dead-letters", "delete", "q"],
            ["dead-letters", "jobs", "q", "--cancel"],
            ["nonsense"],
        ],
    )
    def test_usage_is_2(self, arguments):
        assert run(*arguments).returncode == 2

    def test_an_edit_that_is_no_text_is_wrong_usage(self):
        done = run("dead-letters", "redrive", "q", "a", "--body", "-", stdin=b'{"job":"x","data":{"a":"\xff"}}')
        assert (done.returncode, b"it is not JSON" in done.stderr) == (2, True)

    @pytest.mark.parametrize(
        ("arguments", "stdin"),
        [
            (["--trace-id", "t"], draft(1)),
            (["--data", "{}"], draft(1)),
            (["--delay-seconds", "60"], draft(1) + draft(2)),
            (["--deliver-at", "60"], draft(1) + draft(2)),
            (["--ttl-seconds", "60"], draft(1) + draft(2)),
            (["--priority", "9"], draft(1) + draft(2)),
            (["--ordering-key", "k", "--ndjson"], draft(1)),
            (["--idempotency-key", "k"], draft(1) + draft(2)),
            (["--delay-seconds", "60"], b"[" + draft(1) + b"]"),
        ],
    )
    def test_an_option_that_would_be_ignored_is_2(self, babelgate, queue, arguments, stdin):
        assert babelgate("publish", queue, *arguments, stdin=stdin).returncode == 2
        assert lines(babelgate("receive", queue)) == []

    @pytest.mark.parametrize("token", ["sécret", "hunter2\nhunter2"])
    def test_a_token_that_cannot_be_sent_is_2_and_not_quoted(self, babelgate, token):
        done = babelgate("queues", token=token)
        assert (done.returncode, b"hunter2" in done.stderr) == (2, False)

    @pytest.mark.parametrize(
        "command",
        [
            ["queues"],
            ["brokers"],
            ["publish", "q", "--job", "x"],
            ["validate", "q", "--job", "x"],
            ["receive", "q"],
            ["peek", "q"],
            ["tail", "q"],
            ["ack", "q", "token"],
            ["purge", "q", "--yes"],
            ["top"],
            ["dead-letters", "list", "q"],
            ["dead-letters", "show", "q", "letter"],
            ["dead-letters", "redrive", "q"],
            ["dead-letters", "delete", "q", "letter"],
            ["dead-letters", "jobs", "q"],
        ],
    )
    def test_unreachable_is_3(self, command):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        done = run(*command, "--url", f"http://127.0.0.1:{port}")
        assert (done.returncode, done.stdout) == (3, b"")
        assert done.stderr.startswith(b"no answer from http://127.0.0.1")

    def test_a_url_that_is_none_is_3(self):
        assert run("queues", "--url", "nonsense").returncode == 3

    @pytest.mark.parametrize(
        ("command", "url"),
        [
            ("queues", "http://a\nb"),
            ("queues", "http://u:hunter2\x1b[2J@h"),
            ("queues", "http://[::1"),
            ("queues", "http://h:x"),
            ("queues", "http://☃.x"),
            ("pipeline redrive --lake lake", "http://h\x7f/"),
        ],
    )
    def test_what_cannot_be_a_url_is_2(self, command, url):
        done = run(*command.split(), BABELGATE_URL=url)
        assert (done.returncode, done.stdout) == (2, b"")
        *usage, told = done.stderr.splitlines()
        assert told.startswith(b"Error: Invalid value for --url: ")
        assert all(line.startswith((b"Usage: ", b"Try ")) or not line for line in usage)
        assert b"hunter2" not in done.stderr and b"\x1b" not in done.stderr


class TestCheckConfig:
    CONFIG = """
brokers:
  local: sqlite:///%s/a.db
  cache: {url: "redis://user:hunter2@127.0.0.1:1/0", required: true}
queues:
  "orders.*": {broker: cache, native_name: "shop.{queue}", backoff_seconds: [1, 10]}
  emails: {broker: cache, lease_seconds: 30, max_attempts: 5}
default: {broker: local}
"""
    NATIVE = """
brokers:
  local: sqlite:///%s/a.db
  cache: redis://127.0.0.1:1/0
  rabbit: amqp://127.0.0.1:1/
queues:
  "lv.*": {broker: cache, layout: laravel}
  "j.*": {broker: rabbit, profile: ojs, naming: spec}
  bills: {broker: rabbit, queue_type: quorum, native_name: "shop.{queue}"}
  old: {broker: rabbit, declare: passive}
  here: {broker: local}
default: {broker: rabbit, profile: ojs}
"""

    @pytest.fixture
    def check(self, tmp_path):
        def check(yaml: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
            path = tmp_path / "babelgate.yaml"
            path.write_text(yaml)
            done = run("check-config", "--config", str(path), *arguments)
            assert b"hunter2" not in done.stdout + done.stderr
            assert b"Traceback" not in done.stderr
            return done

        return check

    def test_prints_the_routes_in_the_order_of_lookup(self, check, tmp_path):
        done = check(self.CONFIG % tmp_path)
        assert done.returncode == 0, done.stderr
        brokers, routes = done.stdout.decode().split("\n\n")
        assert "redis://user:***@127.0.0.1:1/0" in brokers
        assert [line.split() for line in routes.splitlines()[1:]] == [
            ["emails", "cache", "emails", "list", "emails.dlq", "30", "5", "-", "-"],
            ["orders.*", "cache", "shop.{queue}", "list", "shop.{queue}.dlq", "60", "10", "1,10", "-"],
            ["(any", "other)", "local", "{queue}", "-", "-", "60", "10", "-", "-"],
        ]
        # The broker that is down is no reason to refuse: the service would start.
        assert b"warning: The broker cache is not available" in done.stderr
        assert b"no auth is configured" in done.stderr
        assert [path.name for path in tmp_path.iterdir()] == ["babelgate.yaml"]

    def test_shows_how_the_broker_stores_each_queue(self, check, tmp_path):
        done = check(self.NATIVE % tmp_path, "--offline")
        assert done.returncode == 0, done.stderr
        head, *routes = [re.split("  +", line) for line in done.stdout.decode().split("\n\n")[1].splitlines()]
        assert head[2:5] == ["NATIVE QUEUE", "STORED AS", "DEAD-LETTER QUEUE"]
        assert {route[0]: route[2:5] for route in routes} == {
            "bills": ["shop.bills", "plain, quorum", "shop.bills.dlq"],
            "old": ["old", "plain", "old.dlq"],
            "here": ["here", "-", "-"],
            "lv.*": ["queues:{queue}", "laravel", "queues:{queue}.dlq"],
            "j.*": ["ojs.queue.{queue}", "ojs, classic", "ojs.queue.dlx.{queue}"],
            "(any other)": ["ojs.queue.{queue}", "ojs, classic", "ojs.dead.{queue}"],
        }
        assert max(map(len, done.stdout.decode().splitlines())) <= 120

    def test_prints_json_for_programs(self, check, tmp_path):
        done = check(self.NATIVE % tmp_path, "--offline", "--json")
        assert (done.returncode, done.stderr) == (0, b"")
        found = json.loads(done.stdout)
        assert {"broker": "cache", "url": "redis://127.0.0.1:1/0", "required": False} in found["brokers"]
        assert any("no auth is configured" in warning for warning in found["warnings"])
        assert found["routes"][-1] == {
            "queue": None,
            "broker": "rabbit",
            "native_name": "ojs.queue.{queue}",
            "stored_as": {"profile": "ojs", "queue_type": "classic"},
            "dead_letter_queue": "ojs.dead.{queue}",
            "lease_seconds": 60.0,
            "max_attempts": 10,
            "backoff_seconds": [],
            "ttl_seconds": None,
            "dead_letter_retention_seconds": None,
            "ordering_key": "refuse",
            "expired": "dead_letter",
            "limits": None,
            "schema": "off",
            "schema_on_receive": False,
            "encrypt": False,
        }

    @pytest.mark.parametrize(
        "auth", ["", "auth: {tokens: [{name: a, sha256: %s, rights: {'*': [send]}}]}" % ("a" * 64)]
    )
    def test_with_strict_a_warning_is_an_error(self, check, auth):
        for options in ((), ("--json",)):
            plain, strict = check(auth, *options), check(auth, *options, "--strict")
            assert (plain.returncode, strict.returncode) == (0, 0 if auth else 1)
            assert (strict.stdout, strict.stderr) == (plain.stdout, plain.stderr)

    def test_offline_connects_to_nothing(self, check, tmp_path):
        done = check(self.CONFIG % tmp_path, "--offline")
        assert (done.returncode, b"not available" in done.stderr) == (0, False)

    @pytest.mark.parametrize(
        ("yaml", "told"),
        [
            ("nonsense: 1\nport: x", ["nonsense: unknown key", "port: "]),
            ("queues: {a: {broker: local, nonsense: 1}}", ["queues.a.nonsense: "]),
            ("brokers: {a: {url: 'sqlite:///a.db', nonsense: 1}}", ["brokers.a.nonsense: "]),
            ("brokers: {a: 'redis+cluster://:hunter2@h'}", ["brokers.a.url: "]),
            ("brokers: {a: 'hunter2'}", ["brokers.a.url: the URL must start with one of sqlite://"]),
            ("queues: {'a*': {broker: local, native_name: x}}", ["queues.a*.native_name: must contain {queue}"]),
            (
                "queues: {a: {broker: local, native_name: x}, b: {broker: local, native_name: x}}",
                ["queues.b.native_name: queues.a already uses the native queue 'x'"],
            ),
            (
                "brokers: {r: 'redis://h'}\nqueues: {a: {broker: r, layout: laravel, frames: true}}",
                ["queues.a.frames: "],
            ),
            ("auth: none\nhost: 0.0.0.0\nport: 99999", ["port: "]),
            ("host: 0.0.0.0", ["host: 0.0.0.0 can be reached"]),
            ("tls_cert: /nowhere\ntls_key: /nowhere", ["tls_cert: /nowhere is not a file"]),
        ],
    )
    def test_refuses_and_names_the_key(self, check, yaml, told):
        done = check(yaml, "--offline")
        assert done.returncode == 1
        found = done.stderr.decode().splitlines()
        assert len(found) >= len(told)
        for line, expected in zip(sorted(found), sorted(told), strict=False):
            assert line.startswith(expected)


def test_version():
    assert run("--version").stdout.startswith(b"babelgate, version ")


def test_serve_greets_with_lines_that_work(tmp_path):
    environ = {n: v for n, v in os.environ.items() if not n.startswith("BABELGATE_")}
    command = [sys.executable, "-m", "babelgate", "serve", "--port", "0"]
    environ["BABELGATE_STATE_DIR"] = str(tmp_path)
    with subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as serving:
        assert serving.stderr
        try:
            url = serving.stderr.readline().split()[3].decode()
            text = ""
            while "ack " not in text:
                text += serving.stderr.readline().decode()
            commands = [line.strip().split(None, 1)[1] for line in text.splitlines() if "curl" in line]
            assert httpx.get(f"{url}/livez", timeout=60).status_code == 200
            commands_work(commands, tmp_path)
        finally:
            serving.terminate()
            assert serving.wait(120) == 0
