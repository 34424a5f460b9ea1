"""What a log line holds, in both formats, and what it never holds."""

from __future__ import annotations

import io
import json
import logging
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from babelgate.config import settings
from babelgate.errors import BrokerUnavailable, ConfigError
from babelgate.observe import logs
from babelgate.observe.log_throttle import SECONDS, LogThrottle
from babelgate.observe.logs import MAX_CAUSES, MAX_FRAMES, MAX_VALUE, formatter, get_logger

NAME = "babelgate.tested"
log = get_logger(NAME)
theirs = logging.getLogger("library.tested")


class Lines:
    """What loggers write, in one format."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.handler = logging.StreamHandler(self.stream)
        self.show("json")

    def show(self, format: logs.Format, terminal: bool = False) -> None:
        """Use ``format`` from now on."""
        self.handler.setFormatter(formatter(format, terminal))

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    def all(self) -> list[dict[str, Any]]:
        """The JSON objects."""
        return [json.loads(line) for line in self.text.split("\n")[:-1]]

    def one(self) -> dict[str, Any]:
        (line,) = self.all()
        return line


@pytest.fixture
def lines() -> Iterator[Lines]:
    found = Lines()
    loggers = [logging.getLogger(NAME), theirs, logging.getLogger("asyncio")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(found.handler)
        logger.setLevel(logging.INFO)
    yield found
    for logger, level in zip(loggers, before, strict=True):
        logger.removeHandler(found.handler)
        logger.setLevel(level)


def raised(error: BaseException, cause: BaseException | None = None) -> None:
    """Log ``error`` as an exception that is being handled."""
    try:
        raise error from cause
    except BaseException:
        log.exception("failed", request_id="r-1")


class TestJson:
    def test_the_fields_and_their_order(self, lines):
        before = datetime.now(UTC).isoformat(timespec="milliseconds")
        log.warning("told", queue="emails", count=3, seconds=0.5, there=True, missing=None)
        line = lines.one()
        assert list(line)[:4] == ["timestamp", "level", "logger", "event"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["timestamp"])
        assert line.pop("timestamp")[:23] >= before[:23]
        assert line == {
            "level": "warning",
            "logger": NAME,
            "event": "told",
            "queue": "emails",
            "count": 3,
            "seconds": 0.5,
            "there": True,
            "missing": None,
            "pid": os.getpid(),
        }

    def test_a_library_tells_in_the_same_form(self, lines):
        theirs.error("lost %s of %d", "one", 2)
        line = lines.one()
        assert list(line) == ["timestamp", "level", "logger", "event", "pid"]
        assert (line["level"], line["logger"], line["event"]) == ("error", "library.tested", "lost one of 2")

    def test_one_event_is_one_line(self, lines):
        log.info("told", value="a\nb\r\u2028c")
        theirs.info("first\nsecond")
        raised(ValueError("x\ny"))
        assert lines.text.count("\n") == len(lines.all()) == 3
        assert lines.all()[0]["value"] == "a\nb\r\u2028c"

    def test_levels(self, lines):
        log.debug("too much")
        theirs.debug("too much")
        assert lines.text == ""

    def test_any_value_can_be_told(self, lines):
        log.info(
            "told", error=BrokerUnavailable(broker="b", reason="down"), names={"x"}, lone="\ud800", pairs=(1, None)
        )
        line = lines.one()
        assert line["error"] == "The broker b is not available: down. Nothing was written."
        assert (line["names"], line["lone"], line["pairs"]) == (["x"], "\ud800", [1, None])


class TestExceptions:
    def test_class_place_and_cause(self, lines):
        raised(RuntimeError("outer"), ConnectionResetError(104, "reset"))
        line = lines.one()
        outer, inner = line["exception"]
        assert (line["level"], line["request_id"]) == ("error", "r-1")
        assert outer["type"] == "builtins.RuntimeError"
        assert re.fullmatch(rf"{re.escape(__file__)}:\d+ raised", outer["frames"][-1])
        assert (inner["type"], inner["text"]) == ("builtins.ConnectionResetError", "[Errno 104] reset")

    def test_a_text_that_may_quote_a_message_is_told_at_debug_only(self, lines):
        try:
            int("hunter2")
        except ValueError:
            log.exception("failed")
            theirs.exception("failed")
        assert "hunter2" not in lines.text
        logging.getLogger("babelgate").setLevel(logging.DEBUG)
        try:
            raised(ValueError("hunter2"))
        finally:
            logging.getLogger("babelgate").setLevel(logging.NOTSET)
        assert lines.all()[-1]["exception"][0]["text"] == "hunter2"

    def test_a_group_tells_of_its_parts(self, lines):
        raised(ExceptionGroup("hunter2", [KeyError("hunter2"), OSError(2, "gone")]))
        assert "hunter2" not in lines.text
        (group,) = lines.one()["exception"]
        assert [part["type"] for part in group["exceptions"]] == ["builtins.KeyError", "builtins.FileNotFoundError"]

    def test_its_length_is_bounded(self, lines):
        def deep(left: int) -> None:
            if left:
                deep(left - 1)
            raise RecursionError

        def chained(left: int) -> None:
            try:
                deep(100)
            except RecursionError as error:
                if not left:
                    raise
                try:
                    chained(left - 1)
                finally:
                    del error

        try:
            chained(10)
        except RecursionError:
            log.exception("failed")
        told = lines.one()["exception"]
        assert len(told) == MAX_CAUSES
        assert {len(error["frames"]) for error in told} == {MAX_FRAMES}

    def test_the_event_loop_quotes_exceptions_in_its_further_lines(self, lines):
        logging.getLogger("asyncio").error("Task exception was never retrieved\nfuture: <Task exception='hunter2'>")
        assert lines.one()["event"] == "Task exception was never retrieved"


class TestSecrets:
    @pytest.mark.parametrize(
        "url",
        [
            "amqp://user:hunter2@host/vhost",
            "redis://:hunter2@host:6379/0",
            "amqps://user:hunt er2/hunter2@host",
            "redis://host?password=hunter2&db=1",
        ],
    )
    def test_urls_lose_theirs_wherever_they_stand(self, lines, url):
        log.warning(f"cannot reach {url}", url=url, error=OSError(f"no answer from {url!r}, sorry"), urls=[url])
        theirs.warning("cannot reach %s: try later", url)
        raised(OSError(f"{url} is gone"))
        assert len(lines.all()) == 3
        assert not re.search(r"hunter2|er2", lines.text)
        assert "host" in lines.all()[0]["url"]

    @pytest.mark.parametrize("unit", ["a", "a://", "x?", "://"])
    def test_no_value_makes_masking_slow(self, lines, unit):
        text = "amqp://guest:secret" + unit * 15_000 + "@host/"
        began = time.thread_time()
        log.warning("lost", reason=text, reasons=[unit * 15_000 + "://"])
        # Of CPU, for what takes a millisecond; it took minutes.
        assert time.thread_time() - began < 5
        (line,) = lines.all()
        assert line["reason"] == "amqp://***"

    def test_a_long_value_is_cut(self, lines):
        log.info("told", message_id="x" * 100_000, ids=["y" * 100_000])
        line = lines.one()
        assert (line["message_id"], line["ids"]) == ("x" * MAX_VALUE + "…", ["y" * MAX_VALUE + "…"])


class TestForPeople:
    def test_a_line(self, lines):
        lines.show("console")
        log.warning("told", queue="emails", count=3)
        assert re.search(r"\[warning\s*\] told\s+\[babelgate\.tested\] queue=emails count=3 pid=\d+\n$", lines.text)

    def test_an_exception_follows_in_lines_of_its_own(self, lines):
        lines.show("console")
        raised(RuntimeError("hunter2"), OSError(2, "gone"))
        _, *rest = lines.text.splitlines()
        assert rest[0] == "  builtins.RuntimeError"
        assert re.fullmatch(rf"    at {re.escape(__file__)}:\d+ raised", rest[1])
        assert rest[2] == "  builtins.FileNotFoundError: '[Errno 2] gone'"

    def test_a_terminal_gets_no_commands_of_others(self, lines):
        lines.show("console")
        log.info("told", path="/a\x1b[31m\nforged", unicode="é")
        theirs.info("told \x1b]0;title\x07\nforged")
        assert lines.text.count("\n") == 2
        assert "\x1b" not in lines.text and "\x07" not in lines.text
        assert "unicode=é" in lines.text or "unicode='é'" in lines.text

    def test_json_on_a_terminal_means_the_same_and_gives_it_no_commands(self, lines):
        log.info("told", path="/a\x7f\x9b31m\u202e\u2028é")
        lines.show("json", terminal=True)
        log.info("told", path="/a\x7f\x9b31m\u202e\u2028é")
        piped, shown = lines.all()
        assert piped["path"] == shown["path"]
        assert lines.text.split("\n")[1].isprintable()


CONFIGURED = """
import logging, sys, warnings
from opentelemetry.trace import TraceState
from babelgate.observe import logs
logs.configure(sys.argv[1], sys.argv[2])
log = logs.get_logger("babelgate.x")
for name in ("debug", "info", "warning", "error"):
    getattr(log, name)("ours")
    getattr(logging.getLogger("library"), name)("theirs")
logging.getLogger("httpx").info("call")
TraceState.from_header(["no such thing"])
warnings.warn("careful")
"""


def configured(level: str, format: str = "json", **options: Any) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-W", "always", "-c", CONFIGURED, level, format]
    return subprocess.run(command, check=True, stderr=subprocess.PIPE, **options)


class TestConfigure:
    @pytest.mark.parametrize(
        ("level", "ours", "libraries"),
        [
            ("debug", ["debug", "info", "warning", "error"], ["info", "warning", "error"]),
            ("error", ["error"], ["error"]),
        ],
    )
    def test_levels(self, level, ours, libraries):
        done = configured(level, stdout=subprocess.PIPE)
        assert done.stderr == b""
        found = [json.loads(line) for line in done.stdout.splitlines()]
        assert [line["level"] for line in found if line["event"] == "ours"] == ours
        assert [line["level"] for line in found if line["event"] == "theirs"] == libraries
        assert not [line for line in found if line["event"] == "call"]
        assert b"no such thing" not in done.stdout, "a header of a request"
        assert len([line for line in found if line["logger"] == "py.warnings"]) == (level == "debug")

    def test_a_reader_that_is_gone_is_nobody_to_quote_lines_to(self):
        reader, writer = os.pipe()
        os.close(reader)
        try:
            done = subprocess.run(
                [sys.executable, "-c", CONFIGURED, "info", "json"], stdout=writer, stderr=subprocess.PIPE
            )
        finally:
            os.close(writer)
        assert b"ours" not in done.stderr and b"theirs" not in done.stderr

    def test_auto_is_for_people_on_a_terminal(self):
        reader, writer = pty.openpty()
        try:
            configured("error", "auto", stdout=writer)
            shown = os.read(reader, 65_536)
        finally:
            os.close(reader)
            os.close(writer)
        assert b"ours" in shown and b'"event"' not in shown
        assert b'"event":"ours"' in configured("error", "auto", stdout=subprocess.PIPE).stdout


@pytest.mark.parametrize(("key", "value"), [("log_level", "loud"), ("log_level", "info "), ("log_format", "xml")])
def test_what_is_unknown_is_refused(key, value):
    with pytest.raises(ConfigError, match=f"^{key}: "):
        settings.load(None, {f"BABELGATE_{key.upper()}": value})


class TestSparing:
    @pytest.fixture
    def now(self):
        return [0.0]

    @pytest.fixture
    def sparing(self, lines, now):
        return LogThrottle(log, lambda: now[0])

    def test_the_first_at_once_and_then_a_count(self, lines, now, sparing):
        for code in ("a", "b", "c"):
            sparing.warning("poison", queue="q", code=code)
        assert [(line["count"], line["code"]) for line in lines.all()] == [(1, "a")]
        now[0] += SECONDS
        sparing.warning("poison", queue="q", count=5, code="d")
        assert [(line["queue"], line["count"], line["code"]) for line in lines.all()[1:]] == [("q", 7, "d")]

    def test_queues_and_events_are_told_apart(self, lines, sparing):
        for event, queue in (("poison", "p"), ("poison", "q"), ("lost", "q"), ("lost", "q")):
            sparing.warning(event, queue=queue)
        assert len(lines.all()) == 3

    def test_it_remembers_no_more_than_it_may(self, lines, sparing):
        for n in range(2_000):
            sparing.warning("poison", queue=f"q{n}")
        sparing.warning("poison", queue="q1999")
        sparing.warning("poison", queue="q0")
        assert len(lines.all()) == 2_001
