"""Makes the pictures of the console in ``docs/images``: ``python -m tools.screenshots [PAGE…]`` writes them.

They show a real gateway over SQLite with an hour of traffic, in Debian's Chromium. The user has signed in with a token
that has all rights.
"""

from __future__ import annotations

import math
import re
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Collection
from pathlib import Path

import httpx

from babelgate.clock import now_ms
from tests.harness.browser import browser
from tests.harness.console import RIGHTS, Tab, console, tabs, tokens

IMAGES = Path(__file__).resolve().parents[1] / "docs/images"
PAGES = {
    "queues": "queues",
    "queue": "queues/invoices",
    "overview": "",
    "message": "queues/invoices/messages/{message}",
    "publish": "queues/invoices/publish",
    "receive": "queues/invoices/receive",
    "pause": "queues/invoices/pause",
    "purge": "queues/invoices/purge",
    "push": "queues/emails/push",
    "dead-letter-queues": "dead-letters",
    "dead-letters": "queues/webhooks/dead-letters",
    "letters": "queues/webhooks/dead-letters/list",
    "letter": "queues/webhooks/dead-letters/{letter}",
    "edit": "queues/webhooks/dead-letters/{letter}/edit",
    "redrive": "queues/webhooks/dead-letters/redrive",
    "redrive-job": "queues/thumbnails/dead-letters/redrives/{job}",
    "find": "find?id={rejected}",
}
"""The pages, by the names of their pictures. ``rejected``: the id of a message that is a dead letter; ``message``: the
key of one that is ready."""
CHARTS = ("queues", "queue", "overview")
"""The pages that show the last hour, the first ones: the clock stands still for them."""
SIGN_IN = "sign-in"
"""The page that is shown before the sign-in."""
TOKEN = "operator"
"""Name and text of the token that has all rights."""
LOOKS = {"": (False, 1280), "-dark-narrow": (True, 360)}
"""What the names of pictures end with: whether it is dark, and how many pixels it is wide."""
MAX_BYTES = 150_000
"""A reader of the documentation loads several."""

_MINUTES = 55
_QUEUES = {
    "orders.created": 9,
    "orders.paid": 6,
    "emails": 14,
    "invoices": 3,
    "thumbnails": 20,
    "search.index": 11,
    "webhooks": 5,
}
"""The queues, and how many messages of each there are in a busy minute."""


class _Past:
    """A clock in Unix ms. The traffic sets it and the pictures stop it: a slow machine makes no gap in a chart."""

    def __init__(self) -> None:
        self._at: int | None = now_ms() - _MINUTES * 60_000
        self._behind = 0

    def __call__(self) -> int:
        return now_ms() - self._behind if self._at is None else self._at

    def advance(self) -> None:
        """Go to the next minute, and stay there."""
        self._at = self() + 60_000

    def run(self) -> None:
        """Go on from here, as fast as time passes."""
        self._behind = now_ms() - self()
        self._at = None

    def stop(self) -> None:
        """Stay here."""
        self._at = self()


def _traffic(client: httpx.Client, clock: _Past) -> str:
    """An hour of messages: most are acked, some wait, and a few fail. Returns the id of one that failed."""
    failed = ""
    for minute in range(_MINUTES):
        busy = 0.6 + 0.4 * math.sin(minute / 7)
        for index, (queue, most) in enumerate(_QUEUES.items()):
            count = max(1, round(most * (busy if index % 2 else 1.2 - busy)))
            job = f"urn:shop:{queue.replace('.', ':')}"
            batch = [{"job": job, "data": {"number": minute * 100 + each}} for each in range(count)]
            client.post(f"queues/{queue}/messages:batch", json=batch).raise_for_status()
            if queue == "invoices" and minute > 30:
                continue
            found = client.post(f"queues/{queue}/messages:receive", json={"max_messages": 100, "lease_seconds": 600})
            messages = found.json()["messages"]
            tokens = [message["ack_token"] for message in messages]
            rejected = tokens[:1] if queue in ("webhooks", "thumbnails") and minute % 9 == 4 else []
            kept = tokens[-2:] if minute == _MINUTES - 1 else []
            acked = [token for token in tokens if token not in (*rejected, *kept)]
            if acked:
                client.post(f"queues/{queue}/messages:ack", json={"ack_tokens": acked}).raise_for_status()
            if rejected:
                failed = messages[0]["envelope"]["meta"]["id"]
                error = {"message": "the endpoint answered 410", "exception": "shop.webhooks.Gone"}
                refusal = {"ack_tokens": rejected, "error": error}
                client.post(f"queues/{queue}/messages:reject", json=refusal).raise_for_status()
        clock.advance()
    clock.run()
    return failed


def _picture(tab: Tab, path: str, target: Path) -> None:
    width = tab.page.evaluate("innerWidth")
    tab.page.set_viewport_size({"width": width, "height": 900})
    tab.go(path)
    tab.page.wait_for_load_state("networkidle")
    tab.check()
    height = min(tab.page.evaluate("document.body.scrollHeight"), 1_000)
    tab.page.set_viewport_size({"width": width, "height": height})
    tab.page.wait_for_timeout(300)
    tab.page.screenshot(path=target)
    size = target.stat().st_size
    print(f"{target.name}: {size:,} bytes")
    if size > MAX_BYTES:
        raise SystemExit(f"{target} has more than {MAX_BYTES:,} bytes.")


def _places(client: httpx.Client, tab: Tab, rejected: str) -> dict[str, str]:
    """What stands for the names in :data:`PAGES`. Sets a push whose target has no address, redrives the dead letters of
    a queue, and waits for the ends of both."""
    page = tab.go("queues/invoices").page.content()
    key = re.findall(r"queues/invoices/messages/([0-9a-f]{32})", page)[0]
    letters = client.get("queues/webhooks/dead-letters").raise_for_status().json()["dead_letters"]
    push = {"url": "https://mail.example/hooks/emails", "secrets": ["whsec_" + b64encode(bytes(32)).decode()]}
    draft = {"job": "urn:shop:emails", "data": {"number": _MINUTES * 100}}
    client.post("queues/emails/messages", json=draft).raise_for_status()
    client.put("queues/emails/push", json=push).raise_for_status()
    while not client.get("queues/emails/push").raise_for_status().json()["state"]["failures"]:
        time.sleep(0.1)
    redrive = client.post("queues/thumbnails/dead-letters:redrive", json={"background": True}).raise_for_status()
    job = redrive.json()["id"]
    while client.get(f"queues/thumbnails/redrives/{job}").raise_for_status().json()["state"] == "running":
        time.sleep(0.1)
    return {"rejected": rejected, "message": key, "letter": letters[0]["letter_id"], "job": job}


def main(names: Collection[str]) -> None:
    """Write the pictures of these pages; of all without names."""
    if unknown := set(names) - {*PAGES, SIGN_IN}:
        raise SystemExit(f"No such page: {', '.join(sorted(unknown))}. There are {', '.join([*PAGES, SIGN_IN])}.")
    clock = _Past()
    with tempfile.TemporaryDirectory(prefix="babelgate-pictures-") as folder, browser() as opened:
        options = {
            "auth": tokens(**{TOKEN: {"*": [*RIGHTS]}}),
            "journal": {"landing": f"{folder}/journal", "node": "gateway-1"},
        }
        with console(Path(folder), clock, **options) as server, tabs(opened) as opening:
            looks = {ending: opening(server, dark=dark, width=width) for ending, (dark, width) in LOOKS.items()}
            for ending, tab in looks.items():
                if not names or SIGN_IN in names:
                    _picture(tab, SIGN_IN, IMAGES / f"console-{SIGN_IN}{ending}.png")
            with server.client(TOKEN) as client:
                rejected = _traffic(client, clock)
                for tab in looks.values():
                    tab.go(SIGN_IN).sign_in(TOKEN)
                places = _places(client, looks[""], rejected)
            clock.stop()
            for name, path in PAGES.items():
                if name not in CHARTS:
                    clock.run()
                for ending, tab in looks.items():
                    if not names or name in names:
                        _picture(tab, path.format(**places), IMAGES / f"console-{name}{ending}.png")


if __name__ == "__main__":
    main(sys.argv[1:])
