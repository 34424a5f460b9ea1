"""The console of a real server, and a real browser that looks at it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Request, Response, expect

from babelgate.brokers.binding import Binding
from babelgate.clock import Clock, now_ms
from babelgate.config import settings
from babelgate.console.frame import ConsoleFrame
from babelgate.console.sessions import Sessions
from babelgate.console.site import Console
from babelgate.gateway.ack_tokens import TokenSealer
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.routing import Router, Rule
from babelgate.http.api import create_api
from babelgate.http.auth import Auth
from babelgate.http.body import RequestLimits
from babelgate.server.application import App
from babelgate.server.overload import Pacer, Shedder
from babelgate.server.server import uvicorn_config
from tests.harness.browser import PATIENCE_MS
from tests.harness.local import authorities
from tests.harness.sockets import serving
from tests.harness.ways import Served
from tests.harness.world import KEYS, ORDINARY

RIGHTS = ("send", "listen", "manage")
WIDTHS = {"wide": 1280, "narrow": 360}
_REPORT = """
addEventListener("securitypolicyviolation", (event) =>
  window.reportViolation(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));
"""


class ConsoleServer:
    """``url``: of the gateway, with its prefix. ``application``: what serves, in a thread of its own."""

    def __init__(self, application: App, url: str, loaded: settings.Settings) -> None:
        self.application = application
        self.url = url
        self.settings = loaded

    def client(self, token: str | None = None, **options: Any) -> httpx.Client:
        """A client of the API, or of a page; paths are relative to :attr:`url`."""
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(
            base_url=self.url,
            headers=headers | options.pop("headers", {}),
            timeout=120,
            verify=authorities(),
            **options,
        )


def tokens(**rights: Mapping[str, list[str]]) -> dict[str, Any]:
    """The key ``auth``: tokens that are called like their text, and their rights per queue pattern."""
    return {
        "tokens": [
            {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest(), "rights": given}
            for name, given in rights.items()
        ]
    }


@contextmanager
def console(directory: Path, clock: Clock = now_ms, **config: Any) -> Iterator[ConsoleServer]:
    """A server in a thread, over SQLite in ``directory`` unless ``config`` has other brokers. Anyone may use it unless
    ``config`` has ``auth``. ``clock``: its time, in Unix ms."""
    file = {"url": f"sqlite:///{directory}/babelgate.db", "timeout_seconds": 30}
    path = directory / "babelgate.yaml"
    given = {"state_dir": str(directory), "brokers": {"local": file}, "default": {"broker": "local"}, **config}
    path.write_text(yaml.safe_dump(given, sort_keys=False))
    loaded = settings.load(path, {})
    served = Served(loaded, clock=clock)
    with serving(uvicorn_config(served.build, loaded)) as (host, port):
        yield ConsoleServer(served.app, f"http://{host}:{port}{loaded.prefix}", loaded)


@contextmanager
def console_over(directory: Path, binding: Binding) -> Iterator[ConsoleServer]:
    """A server whose queues are all those of ``binding``. Anyone may use it."""
    loaded = settings.load(None, {"BABELGATE_STATE_DIR": str(directory)})
    auth, limits = Auth(), RequestLimits()
    built = []

    def build() -> App:
        router = Router([], Rule("*", binding, ORDINARY))
        gateway = Gateway({binding.name: binding}, router, TokenSealer(KEYS))
        pages = Console(ConsoleFrame(gateway, auth, limits, Sessions(KEYS, now_ms)))
        api = create_api(gateway, auth=auth, limits=limits, console=pages.serve)
        built.append(App(api, gateway, Shedder(Pacer(time.thread_time), gateway.has_backlog)))
        return built[-1]

    with serving(uvicorn_config(build, loaded)) as (host, port):
        yield ConsoleServer(built[0], f"http://{host}:{port}", loaded)


class Tab:
    """A page of the browser, and what went wrong on it.

    ``violations``: of the content security policy; ``errors``: of scripts, and messages of the browser's console;
    ``strangers``: requests to other hosts; ``dialogs``: what scripts have opened; ``answers``: the status of each
    request, by its address.
    """

    def __init__(self, page: Page, server: ConsoleServer) -> None:
        self.page = page
        self.server = server
        self.violations: list[str] = []
        self.errors: list[str] = []
        self.strangers: list[str] = []
        self.dialogs: list[str] = []
        self.answers: list[tuple[str, int]] = []
        page.set_default_timeout(PATIENCE_MS)
        page.expose_function("reportViolation", lambda text: self.violations.append(text))
        page.add_init_script(_REPORT)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._said)
        page.on("request", self._asked)
        page.on("response", self._answered)
        page.on("dialog", self._opened)

    def until(self, condition: Callable[[], object]) -> None:
        """Let the browser go on until ``condition`` holds."""
        deadline = time.monotonic() + PATIENCE_MS / 1_000
        while not condition():
            assert time.monotonic() < deadline, "it did not happen"
            self.page.wait_for_timeout(50)

    def go(self, path: str = "") -> Tab:
        """Open a page below ``/console/``, and wait until all of it is there."""
        self.page.goto(f"{self.server.url}/console/{path}")
        return self

    def follow(self, target: Locator) -> Tab:
        """Click on what leads to another page, and wait until all of that is there, its scripts too."""
        with self.page.expect_navigation():
            target.click()
        return self

    def reach(self, selector: str) -> None:
        """Move the focus with the keyboard to the next element that matches."""
        for _ in range(60):
            self.page.keyboard.press("Tab")
            if self.page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
                return
        raise AssertionError(selector)

    def settled(self, text: str) -> Tab:
        """Wait until ``text`` is shown, and until the scripts are done with what brought it: buttons that were added
        act by them, and the tab has stored its leases."""
        self.page.get_by_text(text).wait_for()
        expect(self.page.locator(".htmx-added, .htmx-settling")).to_have_count(0)
        return self

    def sign_in(self, token: str) -> Tab:
        """Fill in the form of the page that is shown."""
        self.page.get_by_label("Token").fill(token)
        return self.follow(self.page.get_by_role("button", name="Sign in"))

    def check(self) -> Tab:
        """Assert that nothing went wrong so far."""
        found = self.violations, self.errors, self.strangers, self.dialogs
        assert found == ([], [], [], [])
        return self

    def axe(self) -> list[str]:
        """What is not accessible on the page: rule, element and reason, each as one text."""
        found = Axe().run(self.page).response["violations"]
        return [
            f"{rule['id']}: {' '.join(map(str, node['target']))}: {node['failureSummary']}"
            for rule in found
            for node in rule["nodes"]
        ]

    def overflow(self) -> int:
        """By how many pixels the page is wider than its window."""
        width: int = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        return width

    def _said(self, message: ConsoleMessage) -> None:
        # The browser reports each refusal as an error, and tests expect some of them.
        if message.type in ("error", "warning") and "the server responded with a status of" not in message.text:
            self.errors.append(message.text)

    def _asked(self, request: Request) -> None:
        origin = "/".join(self.server.url.split("/")[:3])
        if not request.url.startswith((f"{origin}/", "data:")):
            self.strangers.append(request.url)

    def _answered(self, response: Response) -> None:
        self.answers.append((response.url, response.status))

    def _opened(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()


OpenTab = Callable[..., Tab]


@contextmanager
def tabs(opened: Browser) -> Iterator[OpenTab]:
    """A function that opens a tab for a server, each with cookies of its own. ``dark``, ``width``: how it looks;
    ``scripts``: whether the browser runs any."""
    contexts = []

    def open_tab(server: ConsoleServer, *, dark: bool = False, width: int = 1280, scripts: bool = True) -> Tab:
        context = opened.new_context(
            color_scheme="dark" if dark else "light",
            # Otherwise that of the environment, whose names are not those of a browser.
            locale="en-US",
            viewport={"width": width, "height": 900},
            java_script_enabled=scripts,
            reduced_motion="reduce",
        )
        contexts.append(context)
        return Tab(context.new_page(), server)

    try:
        yield open_tab
    finally:
        for context in contexts:
            context.close()
