"""A real browser without a window, to see how it renders a page."""

from __future__ import annotations

import fcntl
import html
import http.server
import itertools
import json
import os
import re
import select
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from playwright.sync_api import Browser, expect, sync_playwright

from tests.harness import chromium as started
from tests.harness.ci import missing

PAGE_SECONDS = 240
"""How long a page may take. A busy machine needs a minute to start a browser."""
PATIENCE_MS = 60_000
"""How long a browser on a busy machine may take for one step."""
expect.set_options(timeout=PATIENCE_MS)
_CONTAINED = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu")
"""Neither a sandbox nor shared memory can be counted on in a container; the pages are ours."""
_MEASURE = """
<script>
addEventListener("load", () => {
  const figures = [...document.querySelectorAll("figure")].map(figure => {
    const box = figure.getBoundingClientRect();
    const marks = [...figure.querySelectorAll("svg .mark-rect path")].map(path => {
      const own = path.getBoundingClientRect();
      const inside = own.left >= box.left - 1 && own.right <= box.right + 1
        && own.top >= box.top && own.bottom <= box.bottom;
      return {width: own.width, height: own.height, fill: getComputedStyle(path).fill, inside};
    });
    const texts = [...figure.querySelectorAll("svg text")].map(text => {
      const own = text.getBoundingClientRect();
      return {text: text.textContent, inside: own.left >= box.left && own.right <= box.right,
        height: own.height, size: parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a};
    });
    return {title: figure.querySelector("h3").textContent, marks, texts};
  });
  document.querySelectorAll("details").forEach(details => details.open = true);
  const tables = [...document.querySelectorAll("table")].map(table => {
    const cells = [...table.querySelectorAll("th, td")].filter(cell => cell.getClientRects().length);
    return {
      heads: cells.filter(cell => cell.tagName === "TH" && cell.scope === "col").length,
      scrolls: table.parentElement.scrollWidth > table.parentElement.clientWidth,
      inside: cells.every(cell => cell.getBoundingClientRect().right <= innerWidth),
    };
  });
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const sizes = new Set();
  while (walker.nextNode()) {
    const parent = walker.currentNode.parentElement;
    if (walker.currentNode.textContent.trim() && parent.getClientRects().length && !parent.closest("svg, script")) {
      sizes.add(parseFloat(getComputedStyle(parent).fontSize));
    }
  }
  const measured = document.createElement("pre");
  measured.id = "measured";
  measured.textContent = JSON.stringify({
    figures,
    tables,
    sizes: [...sizes],
    width: innerWidth,
    page: getComputedStyle(document.body).backgroundColor,
    overflows: document.documentElement.scrollWidth > document.documentElement.clientWidth,
  });
  parent.document.body.append(measured);
});
</script>
"""
_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')


def chromium() -> str:
    """The program that starts it, deaf to changes of the network; ends the test where there is no Chromium."""
    if started.found() is None:
        missing("Chromium", "install chromium-headless-shell or chromium")
    return started.__file__


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser without a window. Playwright keeps an event loop in this thread: no asynchronous test runs beside it,
    so a module has only one kind of tests."""
    with sync_playwright() as playwright:
        launch = playwright.chromium.launch
        opened = launch(executable_path=chromium(), args=_CONTAINED, timeout=PAGE_SECONDS * 1_000)
        try:
            yield opened
        finally:
            opened.close()


def measure(page: bytes, width: int, *, dark: bool = False) -> dict[str, Any]:
    """Load ``page`` in a frame of ``width`` pixels, and what was drawn: figures with boxes and colours, and tables.

    A script is added for it, so that the page's policy against scripts is left out. A frame, because the windows of
    Chromium are never narrower than 500 pixels.
    """
    text = _POLICY.sub("", page.decode()).replace("</body>", f"{_MEASURE}</body>")
    frame = f'<iframe style="border: 0; width: {width}px; height: 4000px" srcdoc="{html.escape(text)}"></iframe>'
    with _opened(f"<!doctype html><meta charset=utf-8><body>{frame}</body>") as url:
        options = ["--blink-settings=preferredColorScheme=0"] if dark else []
        shown = _run(width + 100, "--virtual-time-budget=5000", *options, "--dump-dom", url).stdout
    found = re.search(r'<pre id="measured">(.*?)</pre>', shown, re.S)
    assert found is not None, shown[-2000:]
    measured: dict[str, Any] = json.loads(html.unescape(found[1]))
    assert measured["width"] == width
    return measured


def complaints(page: bytes, width: int = 1200) -> list[str]:
    """What the browser's console says while it loads ``page`` as it is."""
    with _opened(page.decode()) as url:
        ended = _run(width, "--enable-logging=stderr", "--virtual-time-budget=5000", "--dump-dom", url)
    assert "</html>" in ended.stdout
    return [line for line in ended.stderr.splitlines() if "CONSOLE" in line]


def screenshot(page: bytes, width: int, height: int, target: Path) -> None:
    """A picture of ``page``, as PNG."""
    with _opened(page.decode()) as url:
        _run(width, f"--screenshot={target}", url, height=height)


def evaluated(url: str, script: str, seconds: float = 300) -> Any:
    """What ``script``, an expression of JavaScript, gives on the page at ``url``, once its promise is fulfilled.

    The browser is controlled by its DevTools protocol over pipes: https://chromedevtools.github.io/devtools-protocol/
    """
    orders_read, orders = os.pipe()
    answers, answers_written = os.pipe()
    # Chromium reads from the file descriptor 3 and writes to 4, so that neither may be a source.
    ends = [fcntl.fcntl(each, fcntl.F_DUPFD, 10) for each in (orders_read, answers_written)]
    with tempfile.TemporaryDirectory(prefix="babelgate-browser-", ignore_cleanup_errors=True) as profile:
        command = _command(profile, 1200, "--remote-debugging-pipe", "about:blank", height=800)
        moved = ["bash", "-c", f'exec "$@" 3<&{ends[0]} 4>&{ends[1]}', "bash", *command]
        process = subprocess.Popen(moved, pass_fds=ends, stderr=subprocess.DEVNULL)
        for each in (orders_read, answers_written, *ends):
            os.close(each)
        try:
            with os.fdopen(orders, "wb", buffering=0) as writer, os.fdopen(answers, "rb", buffering=0) as reader:
                return _DevTools(writer, reader, time.monotonic() + seconds).evaluated(url, script)
        finally:
            process.kill()
            process.wait()


class _DevTools:
    """One conversation with a browser, until ``deadline`` of the monotonic clock."""

    def __init__(self, writer: IO[bytes], reader: IO[bytes], deadline: float) -> None:
        self._writer = writer
        self._reader = reader
        self._deadline = deadline
        self._left = b""
        self._orders = itertools.count(1)

    def evaluated(self, url: str, script: str) -> Any:
        target = self._order("Target.createTarget", url="about:blank")["targetId"]
        self._session = {"sessionId": self._order("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        self._order("Page.enable")
        self._order("Page.navigate", url=url)
        while self._message().get("method") != "Page.loadEventFired":
            pass
        found = self._order("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"]["value"]

    _session: Mapping[str, str] = {}

    def _order(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._orders)
        order = {"id": number, "method": method, "params": params, **self._session}
        self._writer.write(json.dumps(order).encode() + b"\0")
        while (message := self._message()).get("id") != number:
            pass
        assert "error" not in message, message
        result: dict[str, Any] = message["result"]
        return result

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            waited = select.select([self._reader], [], [], max(self._deadline - time.monotonic(), 0))[0]
            assert waited, "the browser did not answer in time"
            data = self._reader.read(65_536)
            assert data, "the browser has ended"
            self._left += data
        text, _, self._left = self._left.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message


@contextmanager
def site(page: str) -> Iterator[int]:
    """A server of ``page``; yields its port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = page.encode()
            self.send_response(200)
            self.send_header("content-type", "text/html; charset=utf-8")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def _opened(text: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="babelgate-page-") as folder:
        path = Path(folder) / "page.html"
        path.write_text(text)
        yield path.as_uri()


def _run(width: int, *arguments: str, height: int = 4000) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory(prefix="babelgate-browser-", ignore_cleanup_errors=True) as profile:
        command = _command(profile, width, *arguments, height=height)
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PAGE_SECONDS, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended


def _command(profile: str, width: int, *arguments: str, height: int = 4000) -> list[str]:
    return [
        chromium(),
        "--headless",
        *_CONTAINED,
        "--hide-scrollbars",
        "--no-first-run",
        f"--user-data-dir={profile}",
        f"--window-size={width},{height}",
        *arguments,
    ]
