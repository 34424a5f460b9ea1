"""The options of a message in the form of a publish, in a real browser: what they do, and where they are refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import expect

from tests.console.test_queue import JOB
from tests.harness import console
from tests.harness.console import WIDTHS
from tests.harness.memory import MemoryBinding, lacking

pytestmark = pytest.mark.browser


def fill(tab, number, **options):
    tab.page.get_by_label("Message").fill(json.dumps({"job": JOB, "data": {"n": number}}))
    for label, value in options.items():
        tab.page.get_by_label(label.replace("_", " ")).fill(value)
    return tab


def publish(tab):
    tab.follow(tab.page.get_by_role("button", name="Publish"))
    expect(tab.page.get_by_text("Published the message")).to_be_visible()


def test_priority_time_of_delivery_and_time_to_live(free, open_tab, queue):
    tab = open_tab(free).go(f"queues/{queue}/publish")
    publish(fill(tab, 1, Priority="1"))
    publish(fill(tab, 9, Priority="9"))
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M")
    fill(tab, 3, Or_deliver_at="2020-01-31T23:59").page.get_by_text("The gateway would accept it").wait_for()
    fill(tab, 3, Or_deliver_at=tomorrow, Time_to_live_in_seconds="0.5")
    expect(tab.page.locator("#check")).to_contain_text("babelgate-expires-at")
    expect(tab.page.locator("#check")).to_contain_text("delayed by")
    publish(tab)
    with free.client() as client:
        messages = client.post(f"queues/{queue}/messages:receive", json={"max_messages": 10}).json()["messages"]
        assert [each["envelope"]["data"]["n"] for each in messages] == [9, 1]
        assert client.get(f"queues/{queue}").json()["stats"]["delayed"] == 1
    tab.check()


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_what_is_wrong_is_said_at_its_field(free, open_tab, queue, width):
    tab = open_tab(free, width=width).go(f"queues/{queue}/publish")
    page = tab.page
    fill(tab, 1, Priority="12")
    fault = page.locator("#priority-fault")
    expect(fault).to_have_text("must be a whole number from 0 to 9")
    expect(page.get_by_label("Priority")).to_have_accessible_description("must be a whole number from 0 to 9")
    fill(tab, 1, Priority="")
    expect(fault).to_have_text("")
    fill(tab, 1, Delay_in_seconds="5", Or_deliver_at="2020-01-31T23:59")
    expect(page.locator("#deliver_at-fault")).to_contain_text("delay_seconds and deliver_at both delay the message")
    fill(tab, 1, Or_deliver_at="", Time_to_live_in_seconds="never")
    expect(page.locator("#ttl_seconds-fault")).to_contain_text("must be")
    expect(page.locator("#deliver_at-fault")).to_have_text("")
    tab.follow(page.get_by_role("button", name="Publish"))
    expect(page.get_by_role("alert")).to_contain_text("ttl_seconds")
    expect(page.locator("#ttl_seconds-fault")).to_contain_text("must be")
    expect(page.get_by_label("Time to live in seconds")).to_have_value("never")
    expect(page.get_by_label("Time to live in seconds")).to_have_attribute("aria-invalid", "true")
    assert (tab.axe(), tab.overflow()) == ([], 0)
    with free.client() as client:
        assert client.get(f"queues/{queue}").json()["stats"]["depth"] == 0
    tab.check()


def test_where_the_broker_has_none_the_form_says_so(tmp_path, open_tab):
    unable = lacking(max_delay_seconds=0, headers=False, priorities=False)
    with console.console_over(tmp_path, MemoryBinding(capabilities=unable)) as server:
        tab = open_tab(server).go("queues/orders/publish")
        for label in ("Delay in seconds", "Or deliver at (UTC)", "Time to live in seconds", "Priority"):
            expect(tab.page.get_by_label(label)).to_have_count(0)
        for sentence in (
            "A publish cannot be delayed.",
            "A message has no time to live",
            "Messages have no priorities.",
        ):
            expect(tab.page.locator(".options")).to_contain_text(sentence)
        expect(tab.page.locator("#check")).to_contain_text("The gateway would accept it")
        assert tab.axe() == []
        tab.go("queues/orders")
        expect(tab.page.get_by_role("region", name="What its broker can do")).to_contain_text("no priorities")
        tab.check()


def test_what_the_broker_can_do_has_priorities_and_time_to_live(free, open_tab, queue):
    tab = open_tab(free).go(f"queues/{queue}")
    abilities = tab.page.get_by_role("region", name="What its broker can do")
    expect(abilities).to_contain_text("A publish may set a priority of 0 to 9.")
    expect(abilities).to_contain_text("A publish may set a time to live.")
