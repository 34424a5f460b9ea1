"""The official SDKs of CloudEvents for Python, JavaScript and Go, as senders to a gateway and as its consumers."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
from cloudevents.core.bindings.http import HTTPMessage, from_http, to_binary, to_structured
from cloudevents.core.formats.json import JSONFormat

from tests.official.programs import built

LANGUAGES = ("python", "node", "go")
MODES = ("binary", "structured", "batched")
COUNTS = ("one", "many")
_ACCEPT = {"one": "application/cloudevents+json", "many": "application/cloudevents-batch+json"}
_FORMAT = JSONFormat()
_SECONDS = 300

Event = Mapping[str, Any]
"""An event in the JSON format."""


def send(language: str, mode: str, urls: Sequence[str], events: Sequence[Event]) -> None:
    """Publish all ``events`` to each of the ``urls`` with the SDK for ``language``. Fails unless all are accepted."""
    lines = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in events)
    if language != "python":
        _run(language, ["send", mode, *urls], lines)
        return
    made = [_FORMAT.read(None, line) for line in lines.splitlines()]
    with httpx.Client(timeout=_SECONDS) as client:
        for url in urls:
            if mode == "batched":
                body = b"[" + b",".join(map(_FORMAT.write, made)) + b"]"
                messages = [HTTPMessage({"content-type": _ACCEPT["many"]}, body)]
            else:
                messages = [(to_binary if mode == "binary" else to_structured)(each, _FORMAT) for each in made]
            for message in messages:
                client.post(url, headers=message.headers, content=message.body).raise_for_status()


def receive(language: str, count: str, urls: Sequence[str]) -> dict[str, list[Event]]:
    """The events of one answer of each of the ``urls``, as the SDK for ``language`` has read and written them."""
    if language != "python":
        return dict(json.loads(line) for line in _run(language, ["receive", count, *urls]).splitlines())
    found = {}
    with httpx.Client(timeout=_SECONDS) as client:
        for url in urls:
            answer = client.post(url, headers={"accept": _ACCEPT[count]}).raise_for_status()
            # The SDK reads no batches.
            texts = [answer.content] if count == "one" else [json.dumps(each).encode() for each in answer.json()]
            headers = dict(answer.headers) if count == "one" else {"content-type": _ACCEPT["one"]}
            events = [from_http(HTTPMessage(headers, text), _FORMAT, None) for text in texts]
            found[url] = [json.loads(_FORMAT.write(each)) for each in events]
    return found


def data_of(event: Event) -> Any:
    """The data of an event: a JSON value, or bytes."""
    return base64.b64decode(event["data_base64"]) if event.get("data_base64") else event.get("data")


def _run(language: str, arguments: Sequence[str], lines: str = "") -> str:
    folder = built(language)
    program = [folder / "cloudevents"] if language == "go" else ["node", folder / "cloudevents.js"]
    ran = subprocess.run([*program, *arguments], input=lines, capture_output=True, text=True, timeout=_SECONDS)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
