"""Configures log lines: one chain of processors for our loggers and for libraries, as JSON or for a console, on stdout.

A line never quotes a message: see :func:`add_exception`. Long values are cut, and secrets in URLs are masked.
"""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from collections.abc import Iterator, MutableMapping
from datetime import UTC, datetime
from pathlib import Path
from traceback import walk_tb
from typing import Any, Literal, TextIO

import msgspec
import structlog
from structlog.dev import ConsoleRenderer, plain_traceback
from structlog.stdlib import BoundLogger, ProcessorFormatter

from babelgate.errors import BrokerError, ConfigError
from babelgate.masking import MASK, mask_text
from babelgate.terminal import printable, unguarded

MAX_VALUE = 1_000
"""Maximum characters of one value in a line; a longer value is cut and ends in ``…``."""
_MAX_SEARCHED = 4 * MAX_VALUE
"""Maximum characters of a value that are searched for URLs, because the time of a search grows with their square."""
MAX_FRAMES = 12
"""Innermost frames that are written for an exception."""
MAX_CAUSES = 4
"""Exceptions that are written for a chain of causes."""
_ROOT = Path(__file__).parents[2]
_OWN = frozenset({"exception", "_record"})
_PLAIN = (int, float, type(None))
_FORESEEN = (BrokerError, ConfigError, OSError)

_encoder = msgspec.json.Encoder(enc_hook=str)

Fields = MutableMapping[str, Any]
Format = Literal["auto", "json", "console"]


def get_logger(name: str) -> BoundLogger:
    """Return a logger below ``babelgate``: ``log.warning("event", key=value)``."""
    logger: BoundLogger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[structlog.stdlib.filter_by_level, *CHAIN, ProcessorFormatter.wrap_for_formatter],
        wrapper_class=BoundLogger,
        context_class=dict,
        cache_logger_on_first_use=True,
    )
    return logger


def configure(level: str, format: Format, stream: TextIO | None = None) -> None:
    """Write the log lines of this process to ``stream`` (None: stdout). A second call replaces the first.

    ``level`` is debug, info, warning or error. Libraries never log below info: their debug lines may quote messages.
    """
    # The lines of a console have styles, and the formatter escapes unprintable characters.
    stream = unguarded(sys.stdout if stream is None else stream)
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter(format, stream.isatty()))
    logging.basicConfig(level=max(level.upper(), "INFO", key=logging.getLevelName), handlers=[handler], force=True)
    logging.getLogger("babelgate").setLevel(level.upper())
    # Our own lines report its start and stop; on a terminal its lines would only bury them.
    quiet = is_console(format, stream.isatty()) and level == "info"
    logging.getLogger("uvicorn").setLevel(logging.WARNING if quiet else logging.NOTSET)
    # httpx logs one line for each call to a peer or a management API.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    # They log every frame and link state, and errors that the binding reports itself.
    logging.getLogger("azure").setLevel(logging.CRITICAL)
    # This logger quotes each malformed tracestate of a request.
    logging.getLogger("opentelemetry.trace.span").setLevel(logging.ERROR)
    logging.captureWarnings(True)
    # Otherwise logging would write a failed line to standard error, unmasked.
    logging.raiseExceptions = False


def formatter(format: Format, terminal: bool) -> logging.Formatter:
    """Return the formatter for all records of the standard library's logging, which include structlog's."""
    render = _console(terminal) if is_console(format, terminal) else [_json_for_terminal if terminal else _json]
    return ProcessorFormatter(foreign_pre_chain=CHAIN, processors=[ProcessorFormatter.remove_processors_meta, *render])


def is_console(format: Format, terminal: bool) -> bool:
    """Return whether lines are written as readable text rather than JSON."""
    return format == "console" or (format == "auto" and terminal)


def json_line(level: str, name: str, event: str, fields: Fields) -> bytes:
    """Return a complete JSON line of ``fields`` that need no processing; fast enough for every request."""
    return _encode(_line(level, name, event, fields)) + b"\n"


def add_origin(logger: Any, method: str, fields: Fields) -> Fields:
    """Add the first fields of a line: timestamp, level, logger and event."""
    record: logging.LogRecord | None = fields.pop("_record", None)
    structured = fields.pop("_from_structlog", True)
    name = logger.name if record is None else record.name
    event = fields.pop("event")
    if name == "asyncio":
        # The further lines of asyncio quote the exception and its future.
        event = event.partition("\n")[0]
    # structlog passes the name of the method; the standard library knows only levels.
    level = "error" if method == "exception" else method
    first = _line(level, name, event, fields)
    return first if record is None else first | {"_record": record, "_from_structlog": structured}


def add_exception(logger: Any, method: str, fields: Fields) -> Fields:
    """Replace ``exc_info`` by ``exception``: class, place and causes.

    The text of an unexpected exception may quote a message (``invalid literal for int(): '…'``), so it is written at
    level debug only. The texts of broker, configuration and operating system errors never quote a message.
    """
    given = fields.pop("exc_info", None)
    if given:
        error = sys.exc_info()[1] if given is True else given[1] if isinstance(given, tuple) else given
        if error is not None:
            fields["exception"] = list(_chain(error))
    return fields


def mask_values(logger: Any, method: str, fields: Fields) -> Fields:
    """Mask secrets in URLs, and cut long values."""
    for key, value in fields.items():
        if type(value) is str:
            if len(value) > MAX_VALUE or "://" in value:
                fields[key] = _masked(value)
        elif not isinstance(value, _PLAIN) and key not in _OWN:
            fields[key] = _masked(value)
    return fields


CHAIN: list[Any] = [add_origin, add_exception, mask_values]
"""The processors of every line, of babelgate and of libraries."""


def _line(level: str, name: str, event: str, fields: Fields) -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"timestamp": now, "level": level, "logger": name, "event": event, **fields, "pid": os.getpid()}


def _masked(value: Any) -> Any:
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [_masked(item) for item in value]
    text = str(value)
    if len(text) > _MAX_SEARCHED:
        # Without its end, with the @ behind a password, a URL cannot be masked.
        before, url, _ = text[:_MAX_SEARCHED].partition("://")
        text = f"{before}{url}{MASK}" if url else before
    text = mask_text(text)
    return text if len(text) <= MAX_VALUE else text[:MAX_VALUE] + "…"


def _chain(error: BaseException | None) -> Iterator[dict[str, Any]]:
    left = MAX_CAUSES
    while error is not None and left:
        written: dict[str, Any] = {"type": f"{type(error).__module__}.{type(error).__qualname__}"}
        if isinstance(error, _FORESEEN) or logging.getLogger("babelgate").isEnabledFor(logging.DEBUG):
            written["text"] = _masked(error)
        written["frames"] = [
            f"{_place(frame.f_code.co_filename)}:{line} {frame.f_code.co_name}"
            for frame, line in list(walk_tb(error.__traceback__))[-MAX_FRAMES:]
        ]
        if isinstance(error, BaseExceptionGroup):
            written["exceptions"] = [one for inner in error.exceptions[:MAX_CAUSES] for one in _chain(inner)]
        yield written
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        left -= 1


def _place(filename: str) -> str:
    path = Path(filename)
    if "site-packages" in path.parts:
        return filename.rpartition("site-packages/")[2]
    return str(path.relative_to(_ROOT)) if path.is_relative_to(_ROOT) else filename


def _encode(fields: Fields) -> bytes:
    try:
        return _encoder.encode(fields)
    except UnicodeEncodeError:
        # An unpaired surrogate, which JSON can escape and UTF-8 cannot encode.
        return json.dumps(fields, default=str, separators=(",", ":")).encode()


def _json(logger: Any, method: str, fields: Fields) -> str:
    return _encode(fields).decode()


def _json_for_terminal(logger: Any, method: str, fields: Fields) -> str:
    return printable(_json(logger, method, fields))


def _readable(logger: Any, method: str, fields: Fields) -> Fields:
    """Render an exception as lines, and escape control characters, which a terminal would execute."""
    written = fields.pop("exception", None)
    for key, value in fields.items():
        if isinstance(value, str) and not value.isprintable():
            fields[key] = repr(value)[1:-1]
    if written is not None:
        fields["exception"] = "\n".join(_lines(written, "  "))
    return fields


def _lines(written: list[dict[str, Any]], indent: str) -> Iterator[str]:
    for error in written:
        yield f"{indent}{error['type']}" + (f": {error['text']!r}" if "text" in error else "")
        yield from (f"{indent}  at {frame}" for frame in reversed(error["frames"]))
        yield from _lines(error.get("exceptions", []), indent + "  ")


def _console(colors: bool) -> list[Any]:
    return [_readable, ConsoleRenderer(colors=colors, exception_formatter=plain_traceback, sort_keys=False)]
