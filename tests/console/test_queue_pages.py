"""How the pages of a queue look and what they offer, on SQLite: accessibility, the keyboard, rights, large messages."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from babelgate.clock import now_ms
from tests.architecture.sources import ROOT
from tests.console.test_queue import JOB, MARKUP, publish, receive
from tests.harness import console
from tests.harness.browser import PATIENCE_MS
from tests.harness.console import WIDTHS, tokens

pytestmark = pytest.mark.browser

MIB = 1_048_576


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_pages_are_accessible(free, open_tab, dark, width, queue):
    publish(free, queue, job=f"{JOB}:{'x' * 150}", data={"text": "y" * 500})
    tab = open_tab(free, dark=dark, width=width).go(f"queues/{queue}")
    assert (tab.axe(), tab.overflow()) == ([], 0)
    tab.follow(tab.page.get_by_role("link", name=JOB))
    tab.page.get_by_role("region", name="Envelope").wait_for()
    for summary in tab.page.locator("summary").all():
        summary.click()
    assert (tab.axe(), tab.overflow()) == ([], 0)
    tab.follow(tab.page.get_by_role("link", name="Edit and publish"))
    tab.page.get_by_text("The gateway would accept it").wait_for()
    assert (tab.axe(), tab.overflow()) == ([], 0)
    tab.page.get_by_label("Message").fill("{")
    tab.page.locator("#check .bad").wait_for()
    assert (tab.axe(), tab.overflow()) == ([], 0)
    lease = receive(tab, queue)
    assert (tab.axe(), tab.overflow()) == ([], 0)
    lease.get_by_role("button", name="Ack", exact=True).click()
    tab.settled("Acked.")
    tab.page.get_by_role("button", name="Receive").click()
    tab.page.get_by_text("No message is ready.").wait_for()
    assert (tab.axe(), tab.overflow()) == ([], 0)
    tab.check()


def test_a_message_is_received_and_acked_by_the_keyboard_alone(free, open_tab, queue):
    publish(free, queue)
    tab = open_tab(free).go(f"queues/{queue}/receive")
    press = tab.page.keyboard.press

    def tab_to(name):
        for _ in range(60):
            press("Tab")
            if tab.page.evaluate("document.activeElement.textContent.trim()") == name:
                return
        raise AssertionError(name)

    tab_to("Receive")
    while tab.page.evaluate("document.activeElement.tagName") != "BUTTON":
        tab_to("Receive")
    press("Enter")
    tab.page.locator(".lease:not(.htmx-added)").wait_for()
    tab_to("Ack")
    press("Space")
    tab.page.get_by_text("Acked.").wait_for()
    tab.check()


def test_a_large_message_is_shortened_and_downloaded(free, open_tab, queue):
    publish(free, queue, data={"text": "z" * (MIB - 1_000)})
    tab = open_tab(free).go(f"queues/{queue}")
    tab.follow(tab.page.get_by_role("link", name=JOB))
    region = tab.page.get_by_role("region", name="Bytes")
    region.wait_for()
    assert len(region.inner_text()) < 25_000
    assert tab.page.get_by_role("region", name="curl").count() == 0
    tab.page.locator("summary", has_text="curl").click()
    assert "@message.json" in tab.page.get_by_role("region", name="curl").inner_text()
    with tab.page.expect_download() as download:
        tab.page.get_by_role("link", name="whole message").first.click()
    whole = Path(download.value.path()).read_bytes()
    assert whole.count(b"z") >= MIB - 1_000
    lease = receive(tab, queue)
    assert len(lease.inner_text()) < 25_000
    with tab.page.expect_download() as received:
        lease.get_by_role("link", name="whole message").click()
    assert Path(received.value.path()).read_bytes() == whole
    lease.get_by_role("button", name="Ack", exact=True).click()
    tab.page.get_by_text("Acked.").wait_for()
    tab.check()


def test_a_message_of_a_mebibyte_is_published(free, open_tab, queue):
    tab = open_tab(free).go(f"queues/{queue}/publish")
    text = '{"job": "a:b", "data": {"text": "' + "é" * (MIB // 2 - 500) + '"}}'
    tab.page.get_by_label("Message").fill(text)
    tab.follow(tab.page.get_by_role("button", name="Publish"))
    tab.page.get_by_text("Published the message").wait_for()
    tab.check()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (MARKUP.encode(), "<img src=x"),
        (b"\xff\xfe<b>", "ff fe 3c 62 3e"),
        ("\u202eabc\x01".encode(), "\\u202eabc\\x01"),
    ],
    ids=["markup", "bytes", "invisible"],
)
def test_a_foreign_body_is_shown_as_it_is(tmp_path, open_tab, queue, body, words):
    with console.console(tmp_path) as server:
        publish(server, queue)
        with closing(sqlite3.connect(tmp_path / "babelgate.db")) as file, file:
            assert file.execute("UPDATE messages SET body = ?", (body,)).rowcount == 1
        tab = open_tab(server).go(f"queues/{queue}")
        tab.follow(tab.page.get_by_role("link", name="not an envelope"))
        region = tab.page.get_by_role("region", name="Bytes")
        region.wait_for()
        assert words in region.inner_text()
        assert tab.page.get_by_text("A receive makes it a dead letter.").is_visible()
        assert (tab.axe(), tab.page.locator("main img, main script").count()) == ([], 0)
        tab.check()


def test_code_is_copied(free, open_tab, queue):
    publish(free, queue)
    tab = open_tab(free).go(f"queues/{queue}")
    tab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab.follow(tab.page.get_by_role("link", name=JOB))
    tab.page.locator("summary", has_text="Python").click()
    shown = tab.page.get_by_role("region", name="Python").inner_text()
    tab.page.locator("details[open]").get_by_role("button", name="Copy").click()
    tab.page.get_by_role("button", name="Copied").wait_for()
    assert tab.page.evaluate("navigator.clipboard.readText()").strip() == shown.strip()
    tab.check()


def test_the_command_and_the_program_in_python_run(free, open_tab, queue):
    data = {"text": f"{MARKUP} 'é\n\\ 😀", "number": 1}
    publish(free, queue, data=data)
    tab = open_tab(free).go(f"queues/{queue}")
    tab.follow(tab.page.get_by_role("link", name=JOB))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "clients/python/src")}
    for label, command in (("curl", ["bash", "-c"]), ("Python", [sys.executable, "-c"])):
        tab.page.locator("summary", has_text=label).click()
        code = tab.page.get_by_role("region", name=label).text_content()
        done = subprocess.run([*command, code], env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
    with free.client() as client:
        found = client.get(f"queues/{queue}/messages:peek").json()["messages"]
    assert len(found) == 3
    assert [each["envelope"]["data"] for each in found] == [data] * 3
    assert len({each["envelope"]["trace_id"] for each in found}) == 1
    assert len({each["envelope"]["meta"]["id"] for each in found}) == 3


def test_it_works_without_scripts(free, open_tab, queue):
    publish(free, queue)
    tab = open_tab(free, scripts=False).go(f"queues/{queue}/receive")
    tab.follow(tab.page.get_by_role("button", name="Receive"))
    tab.follow(tab.page.locator(".lease").get_by_role("button", name="Ack", exact=True))
    assert "Acked. Message" in tab.page.get_by_role("status").inner_text()
    tab.go(f"queues/{queue}/publish")
    tab.follow(tab.page.get_by_role("button", name="Publish"))
    assert "Published the message" in tab.page.get_by_role("status").inner_text()


def test_pages_show_only_what_the_token_may_do(tmp_path, open_tab):
    auth = tokens(
        all={"*": list(console.RIGHTS)}, reader={"orders.*": ["listen"]}, sender={"*": ["send"]}, other={"x": ["send"]}
    )
    with console.console(tmp_path, auth=auth) as server:
        publish(server, "orders.eu", token="all")
        tab = open_tab(server).go("queues/orders.eu").sign_in("reader")
        tab.page.get_by_role("link", name=JOB).wait_for()
        assert tab.page.get_by_role("link", name="Publish").count() == 0
        assert tab.page.get_by_role("link", name="Purge").count() == 0
        tab.follow(tab.page.get_by_role("link", name=JOB))
        assert tab.page.get_by_role("link", name="Edit and publish").count() == 0
        assert tab.page.get_by_text("tokens with the right send").is_visible()
        tab = open_tab(server).go("queues/orders.eu").sign_in("sender")
        tab.page.get_by_text("has no right listen or observe").wait_for()
        assert tab.page.get_by_role("link", name="Receive").count() == 0
        assert tab.page.get_by_role("link", name="Publish").count() == 1
        tab = open_tab(server).go("queues/orders.eu").sign_in("other")
        tab.page.get_by_text("This needs a right on the queue").wait_for()


def test_read_only(tmp_path, open_tab):
    with console.console(tmp_path, console={"read_only": True}) as server:
        publish(server, "orders")
        tab = open_tab(server).go("queues/orders")
        assert tab.page.get_by_role("link", name="Purge").count() == 0
        tab.go("queues/orders/publish")
        tab.page.get_by_text("The gateway would accept it").wait_for()
        assert tab.page.get_by_role("button", name="Publish").count() == 0
        tab.go("queues/orders/receive")
        assert tab.page.get_by_role("button", name="Receive").count() == 0
        tab.check()


def test_leases_of_another_session_are_not_shown(tmp_path, open_tab):
    auth = tokens(all={"*": list(console.RIGHTS)}, reader={"*": ["listen"]})
    with console.console(tmp_path, auth=auth) as server:
        publish(server, "orders", token="all")
        tab = open_tab(server).go("queues/orders/receive").sign_in("all")
        tab.page.wait_for_url(re.compile("receive$"))
        receive(tab, "orders")
        tab.follow(tab.page.get_by_role("button", name="Sign out"))
        tab.page.get_by_text("You have signed out.").wait_for()
        assert [key for key in tab.page.evaluate("Object.keys(sessionStorage)") if key.startswith("babelgate")] == []
        tab.go("queues/orders/receive").sign_in("reader")
        tab.page.get_by_role("button", name="Receive").wait_for()
        assert tab.page.locator(".lease").count() == 0
        tab.check()


def test_jobs_of_the_journal_are_templates(tmp_path, open_tab):
    """Also where no message is ready any more. The journal has them a little later."""
    with console.console(tmp_path, journal={"landing": str(tmp_path / "landed")}) as server:
        publish(server, "orders", job=MARKUP)
        with server.client() as client:
            client.post("queues/orders:purge")
        tab = open_tab(server)
        deadline = now_ms() + PATIENCE_MS
        while tab.go("queues/orders/publish").page.get_by_role("link", name=MARKUP).count() == 0:
            assert now_ms() < deadline
        tab.follow(tab.page.get_by_role("link", name=MARKUP))
        tab.page.wait_for_url(re.compile("job="))
        assert json.loads(tab.page.get_by_label("Message").input_value()) == {"job": MARKUP, "data": {}}
        tab.check()
