"""The page of the tutorial that uses the console, followed in a real browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.harness import console, tutorial
from tests.harness.letters import dead

pytestmark = pytest.mark.browser


def test_a_message_is_published_rejected_repaired_and_acked(open_tab, tmp_path):
    (message,) = tutorial.blocks("5-console", "json")
    with console.console(tmp_path) as server, server.client() as client:
        tab = open_tab(server).go("queues/emails")
        page = tab.page

        def follow(role, name):
            # What the page calls it is what the console calls it.
            assert f"**{name}**" in (tutorial.FOLDER / "5-console.md").read_text("utf-8")
            tab.follow(page.get_by_role(role, name=name, exact=True))

        follow("link", "Publish")
        page.get_by_label("Message").fill(message)
        page.get_by_role("button", name="Publish", exact=True).click()
        expect(page.get_by_role("status").filter(has_text="Published")).to_be_visible()
        tab.go("queues/emails")
        follow("link", "Receive")
        page.get_by_role("button", name="Receive").click()
        page.locator(".lease:not(.htmx-added)").wait_for()
        page.get_by_label("Reason of a nack or reject").fill("ada is no address")
        page.get_by_role("button", name="Reject").click()
        page.get_by_text("Dead-lettered. Message").wait_for()
        assert [each["error"] for each in dead(client, "emails")] == ["ada is no address"]
        tab.go("queues/emails")
        tab.follow(page.get_by_label("This queue").get_by_role("link", name="Dead letters"))
        tab.follow(page.get_by_role("link", name="List group 1"))
        tab.follow(page.locator("tbody th a"))
        expect(page.locator("dl.facts").first).to_contain_text("ada is no address")
        follow("link", "Edit and redrive…")
        editor = page.get_by_label("Envelope, or job and data alone")
        editor.fill(editor.input_value().replace('"ada"', '"ada@example.com"'))
        expect(page.locator("#checked")).to_contain_text("It is valid.")
        follow("button", "Redrive it like this")
        assert dead(client, "emails") == []
        tab.go("queues/emails/receive")
        page.get_by_role("button", name="Receive").click()
        lease = page.locator(".lease:not(.htmx-added)")
        expect(lease).to_contain_text("ada@example.com")
        lease.get_by_role("button", name="Ack", exact=True).click()
        tab.settled("Acked.")
        tab.check()
