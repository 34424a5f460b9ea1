"""Makes the pictures of the console in ``docs/images``: ``python -m tools.screenshots [PAGE…]`` writes them.

They show a real gateway over SQLite with an hour of traffic, in Debian's Chromium.
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
from tests.harness.console import RIGHTS, ConsoleServer, OpenTab, console, tabs, tokens

IMAGES = Path(__file__).resolve().parents[1] / "docs/images"
PAGES = {
    "overview": "",
    "queues": "queues",
    "queue": "queues/invoices",
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
SIGN_IN = "sign-in"
"""The page of a gateway that has tokens."""
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
    """A clock that the traffic sets."""

    at: int | None = now_ms() - _MINUTES * 60_000
    """In Unix ms; None: as it is."""

    def __call__(self) -> int:
        return now_ms() if self.at is None else self.at


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
        clock.at = now_ms() - (_MINUTES - 1 - minute) * 60_000
    clock.at = None
    return failed


def _picture(opening: OpenTab, server: ConsoleServer, path: str, target: Path, dark: bool, width: int) -> None:
    tab = opening(server, dark=dark, width=width).go(path)
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


def _places(client: httpx.Client, rejected: str) -> dict[str, str]:
    """What stands for the names in :data:`PAGES`. Sets a push whose target has no address, redrives the dead letters of
    a queue, and waits for the ends of both."""
    page = client.get("console/queues/invoices").raise_for_status().text
    key = re.findall(r"queues/invoices/messages/([0-9a-f]{32})", page)[0]
    letters = client.get("queues/webhooks/dead-letters").raise_for_status().json()["dead_letters"]
    push = {"url": "https://mail.example/hooks/emails", "secrets": ["whsec_" + b64encode(bytes(32)).decode()]}
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
        own = Path(folder)
        closed = own / "closed"
        closed.mkdir()
        journal = {"landing": f"{folder}/journal", "node": "gateway-1"}
        auth = tokens(shop={"*": [*RIGHTS]})
        with (
            console(own, clock, journal=journal) as server,
            console(closed, auth=auth) as guarded,
            tabs(opened) as opening,
        ):
            with server.client() as client:
                places = _places(client, _traffic(client, clock))
            for name, path in {**PAGES, SIGN_IN: SIGN_IN}.items():
                for ending, (dark, width) in LOOKS.items():
                    if not names or name in names:
                        shown = guarded if name == SIGN_IN else server
                        target = IMAGES / f"console-{name}{ending}.png"
                        _picture(opening, shown, path.format(**places), target, dark, width)


if __name__ == "__main__":
    main(sys.argv[1:])
