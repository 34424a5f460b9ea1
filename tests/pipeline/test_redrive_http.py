"""The sender with answers of proxies and with broken connections."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import pytest

from babelgate.pipeline.send.gateway import Busy, GatewayClient, GatewayRefusal, Outcome, Target
from babelgate.pipeline.send.sender import Sender, StoredMessage

Answer = tuple[int, dict[str, str], bytes]
HTML = b"<html><h1>Bad gateway</h1></html>"

OLD_DETAIL = "The first call with this idempotency key was cut off: its message may have been published. None was now."
"""The text of gateways whose results have no ``retryable``."""


@contextmanager
def answering(answer: Callable[[bytes], Answer | None]) -> Iterator[Target]:
    """A server that answers a body with (status, headers, content); None: it hangs up."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            told = answer(self.rfile.read(int(self.headers["content-length"])))
            if told is None:
                self.close_connection = True
                return
            status, headers, content = told
            self.send_response(status)
            for name, value in {"content-length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield Target(f"http://127.0.0.1:{server.server_address[1]}", "t")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def accepted(content: bytes) -> Answer:
    results = [{"index": number, "status": 201} for number, _ in enumerate(content.splitlines())]
    return 201, {}, msgspec.json.encode({"results": results})


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((502, {}, HTML), Busy("http_502", 502, None)),
        ((524, {"retry-after": "soon"}, HTML), Busy("http_524", 524, None)),
        ((429, {"retry-after": "7"}, b'{"code":"overloaded"}'), Busy("overloaded", 429, 7.0)),
        ((503, {"retry-after": formatdate(0, usegmt=True)}, b""), Busy("http_503", 503, 0.0)),
        (None, Busy("no_answer", None, None)),
        ((201, {}, HTML), Busy("no_answer", 201, None)),
        ((201, {"content-encoding": "gzip"}, b"torn"), Busy("no_answer", None, None)),
        ((207, {}, b'{"results":[{"status":201}]}'), Busy("no_answer", None, None)),
        ((200, {}, HTML), GatewayRefusal(200, "http_200", "it gave no reason")),
        ((308, {"location": "https://elsewhere/"}, b""), GatewayRefusal(308, "http_308", "it gave no reason")),
    ],
)
def test_what_is_no_answer_of_a_gateway(answer: Answer | None, expected: Busy | GatewayRefusal) -> None:
    with answering(lambda content: answer) as target:
        gateway = GatewayClient(target)
        assert gateway.send("q", [b"{}", b"{}"]) == expected
        gateway.close()


@pytest.mark.parametrize(
    ("result", "status"),
    [
        ({"status": 504, "code": "outcome_unknown", "detail": "Cut off.", "retryable": False}, "unknown"),
        ({"status": 504, "code": "outcome_unknown", "detail": OLD_DETAIL}, "unknown"),
        ({"status": 504, "code": "outcome_unknown", "detail": "No answer.", "retryable": True}, "left"),
        ({"status": 503, "code": "storage_full", "retryable": True}, "left"),
        ({"status": 422, "code": "missing_urn", "retryable": False}, "rejected"),
        ({"status": 201, "replayed": True}, "replayed"),
    ],
)
def test_what_became_of_a_message(result: dict[str, object], status: str) -> None:
    with answering(lambda content: (207, {}, msgspec.json.encode({"results": [result]}))) as target:
        gateway = GatewayClient(target)
        told = gateway.send("q", [b"{}"])
        gateway.close()
    assert isinstance(told, list)
    assert [each.status for each in told] == [status]


def test_a_date_to_come_back_at_is_waited_for() -> None:
    later = formatdate(time.time() + 60, usegmt=True)
    with answering(lambda content: (503, {"retry-after": later}, HTML)) as target:
        gateway = GatewayClient(target)
        told = gateway.check("q")
        gateway.close()
    assert isinstance(told, Busy)
    assert 50 < (told.retry_after or 0) <= 61


def test_a_request_that_is_too_large_goes_in_parts() -> None:
    """And the next ones are smaller from the first."""
    sizes: list[int] = []
    found: dict[str, Outcome] = {}

    def bounded(content: bytes) -> Answer:
        sizes.append(len(content))
        return accepted(content) if len(content) <= 1000 else (413, {}, HTML)

    def settled(message: StoredMessage, outcome: Outcome) -> None:
        assert message.identity not in found
        found[message.identity] = outcome

    with answering(bounded) as target:
        sender = Sender(target, settled, rate=None, give_up_seconds=5)
        for number in range(600):
            sender.add(StoredMessage(str(number), "q", "k", b"x" * (2000 if number == 300 else 90)))
        sender.finish()
        sender.close()
    assert sender.refused is None
    assert found.pop("300") == Outcome("rejected", 413, "http_413")
    assert set(found.values()) == {Outcome("accepted", 201)}
    assert len(found) == 599
    assert max(sizes[-9:]) <= 1000, "it is learnt: the last 100 messages are sent in parts from the first"
