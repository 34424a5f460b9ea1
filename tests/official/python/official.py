"""What the programs around clients for Python have in common: a message is a JSON object a line."""

from __future__ import annotations

import base64
import json
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

ENDED = threading.Event()
"""The standard input has a line."""


def with_odd(line: Mapping[str, Any], odd: Mapping[str, Any]) -> dict[str, Any]:
    """The headers of a line, and ``odd`` for one that asks for them."""
    return {**line["headers"], **(odd if line["odd"] else {})}


def _typed(value: object) -> str:
    """A text as it is, another value behind its type."""
    if isinstance(value, memoryview):
        value = bytes(value)
    return value if type(value) is str else f"{type(value).__name__} {value!r}"


def show(payload: bytes, headers: Mapping[Any, Any] | None, properties: Mapping[str, object]) -> None:
    """Print a message."""
    line = {
        "payload": base64.b64encode(payload).decode(),
        "headers": {str(name): _typed(value) for name, value in (headers or {}).items()},
        "properties": {name: None if value is None else str(value) for name, value in properties.items()},
    }
    print(json.dumps(line), flush=True)


def _wait_for_a_line() -> None:
    sys.stdin.readline()
    ENDED.set()


def run(produce: Callable[[str, str, list[Any]], None], consume: Callable[[str, str, str], None]) -> None:
    """Call ``produce`` with the lines of the standard input; or ``consume``, that settles messages by the verb
    (``consume``, ``return`` or ``reject``) and shows them. It returns after one message if the verb is another than
    ``consume``, and when :data:`ENDED`. Arguments: the verb, the URL, the queue."""
    verb, url, queue = sys.argv[1:]
    if verb == "produce":
        lines = [json.loads(line) for line in sys.stdin]
        produce(url, queue, [line | {"payload": base64.b64decode(line["payload"])} for line in lines])
    else:
        threading.Thread(target=_wait_for_a_line, daemon=True).start()
        consume(url, queue, verb)
