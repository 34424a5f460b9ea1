"""Commands on terminals of several widths: nothing is cut away, and no line ends within a word."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import program
from tests.harness.gateway import GatewayProcess, gateway
from tests.harness.terminal import output_of

JOB = "urn:babel:a-shop-with-a-long-name:order-placed"
DATA = {"to": "ada@example.com", "text": "words " * 40, "end": "the-last-word"}
WHY = "the mail server of the other side refused the message because the mailbox of this user is full"
WIDTHS = [60, 80, 200, 1_000]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with gateway(tmp_path_factory.mktemp("gateway"), {"default": {"broker": "local"}}) as process:
        yield process


def environ(running: GatewayProcess) -> dict[str, str]:
    hidden = ("BABELGATE_", "COLUMNS", "LINES")
    return {k: v for k, v in os.environ.items() if not k.startswith(hidden)} | {"BABELGATE_URL": running.url}


def piped(running: GatewayProcess, *arguments: str) -> list[str]:
    done = program.run(*arguments, environ=environ(running))
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().splitlines()


def on_terminal(running: GatewayProcess, columns: int, *arguments: str) -> list[str]:
    return output_of(*arguments, environ=environ(running), columns=columns).decode().replace("\r\n", "\n").splitlines()


def publish(running: GatewayProcess, queue: str, count: int = 2) -> None:
    with running.client() as client:
        for n in range(count):
            answer = client.post(f"queues/{queue}/messages", json={"job": JOB, "data": DATA | {"n": n}})
            answer.raise_for_status()


def dead_letter(running: GatewayProcess, queue: str) -> None:
    with running.client() as client:
        for message in client.post(f"queues/{queue}/messages:receive?max_messages=9").json()["messages"]:
            rejected = {"ack_tokens": [message["ack_token"]], "error": {"message": WHY}}
            client.post(f"queues/{queue}/messages:reject", json=rejected).raise_for_status()


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize(
    "command", [["receive", "--max", "2", "--ack"], ["peek"], ["tail", "--max", "2"]], ids=lambda given: given[0]
)
def test_the_whole_data_is_shown(running: GatewayProcess, queue: str, command: list[str], columns: int) -> None:
    publish(running, queue)
    told = [line for line in on_terminal(running, columns, command[0], queue, *command[1:]) if "peeking" not in line]
    whole = [json.dumps(DATA | {"n": n}, separators=(",", ":")) for n in range(2)]
    if columns == 1_000:
        heads, *rows = told
        assert heads.split() == ["ID", "ATTEMPTS", "JOB", "DATA"]
        assert [row.split("  ")[-1] for row in rows] == whole
    else:
        one, other = "\n".join(told).split("\n\n")
        for block, data in zip((one, other), whole, strict=True):
            id_, attempts, job, head, text = block.split("\n")
            assert id_.startswith("id: ") and (attempts, job) == ("attempts: 0", f"job: {JOB}")
            assert (head, text) == ("data:", data)
    left = piped(running, "peek", queue)
    assert len(left) == (0 if command[0] == "receive" else 3)


def test_what_fits_is_a_table(running: GatewayProcess, queue: str) -> None:
    with running.client() as client:
        client.post(f"queues/{queue}/messages", json={"job": "count", "data": {"n": 1}})
    told = on_terminal(running, 200, "peek", queue)
    assert [line.split() for line in told] == [line.split() for line in piped(running, "peek", queue)]
    assert told[0].split() == ["ID", "ATTEMPTS", "JOB", "DATA"]


def test_a_wide_message_after_others_begins_the_blocks(running: GatewayProcess, queue: str) -> None:
    with running.client() as client:
        client.post(f"queues/{queue}/messages", json={"job": "count", "data": {"n": 1}})
    publish(running, queue, 1)
    text = "\n".join(on_terminal(running, 100, "peek", queue))
    rows, block = text.split("\n\n")
    assert len(rows.splitlines()) == 2
    assert block.startswith("id: ") and block.endswith(json.dumps(DATA | {"n": 0}, separators=(",", ":")))


def test_wide_characters_have_two_columns(running: GatewayProcess, queue: str) -> None:
    with running.client() as client:
        client.post(f"queues/{queue}/messages", json={"job": "count", "data": {"t": "字" * 20}})
    # 82 columns before the data, 9 for its name and marks, and 20 or 40 for its text.
    assert on_terminal(running, 120, "peek", queue)[0].startswith("id: ")
    assert on_terminal(running, 140, "peek", queue)[0].startswith("ID ")


def test_json_and_pipes_are_as_wide_as_they_are(running: GatewayProcess, queue: str) -> None:
    publish(running, queue, 1)
    heads, row = piped(running, "peek", queue)
    assert (heads.split()[0], row.split("  ")[-1]) == ("ID", json.dumps(DATA | {"n": 0}, separators=(",", ":")))
    assert json.loads("".join(on_terminal(running, 60, "peek", queue, "--json")))["envelope"]["job"] == JOB


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_lists_break_no_words(running: GatewayProcess, queue: str, columns: int) -> None:
    publish(running, queue)
    dead_letter(running, queue)
    commands = {
        "queues": ["queues"],
        "letters": ["dead-letters", "list", queue],
        "jobs": ["dead-letters", "jobs", queue],
        "brokers": ["brokers"],
    }
    for name, command in commands.items():
        # Ages go on between two commands.
        words = {word for line in piped(running, *command)[1:] for word in line.split() if "." not in word}
        told = on_terminal(running, columns, *command)
        assert all(len(line) <= columns or len(line.split()) == 1 for line in told), (name, told)
        # A line ends where a word does: no word of the pipe is missing.
        assert words <= {word for line in told for word in line.split()}, name
    letter = piped(running, "dead-letters", "list", queue)[1].split()[0]
    told = on_terminal(running, columns, "dead-letters", "show", queue, letter)
    whole = " ".join(line.strip() for line in told)
    assert WHY in whole
    assert all(len(line) <= columns for line in told if "{" not in line and "words" not in line)


def test_a_block_has_a_line_for_each_column(running: GatewayProcess, queue: str, tmp_path: Path) -> None:
    publish(running, queue, 1)
    dead_letter(running, queue)
    told = on_terminal(running, 80, "dead-letters", "list", queue)
    names = [line.partition(":")[0] for line in told if not line.startswith(" ")]
    assert names == ["letter id", "message id", "job", "reason", "attempts", "failed at", "error"]
