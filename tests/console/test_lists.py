"""The overview and the list of queues in a real browser: what they show, live, of whom, and of hostile brokers."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from playwright.sync_api import expect

from babelgate.clock import now_ms
from babelgate.errors import BrokerUnavailable
from tests.harness import console
from tests.harness.console import RIGHTS, WIDTHS
from tests.harness.memory import MemoryBinding

pytestmark = pytest.mark.browser

MANY = 250
"""Queues of the list: three pages."""
MARKUP = "<img src=x onerror=alert(1)>\"'><script>alert(2)</script>&amp;"


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Queues of two brokers; ``team`` has rights on some of them."""
    directory = tmp_path_factory.mktemp("shop")
    auth = console.tokens(all={"*": list(RIGHTS)}, team={"orders.*": ["listen"]}, lead={"orders.*": ["manage"]})
    config: dict[str, Any] = {
        "auth": auth,
        "brokers": {
            name: {"url": f"sqlite:///{directory}/{name}.db", "timeout_seconds": 30} for name in ("east", "west")
        },
        "queues": {"orders.*": {"broker": "west"}},
        "default": {"broker": "east"},
    }
    with console.console(directory, **config) as server, server.client("all") as client:
        for number in range(MANY):
            post(client, f"job-{number:03}")
        for each in ("created", "paid", "paid", "paid"):
            post(client, f"orders.{each}")
        token = client.post("queues/orders.paid/messages:receive").json()["messages"][0]["ack_token"]
        client.post("queues/orders.paid/messages:reject", json={"ack_tokens": [token]}).raise_for_status()
        token = client.post("queues/orders.paid/messages:receive").json()["messages"][0]["ack_token"]
        client.post("queues/orders.paid/messages:ack", json={"ack_tokens": [token]}).raise_for_status()
        yield server


def post(client, queue):
    client.post(f"queues/{queue}/messages", json={"job": "urn:shop:count", "data": {"n": 1}}).raise_for_status()


def rows(tab, label="Queues"):
    """The texts of the cells of each row."""
    region = tab.page.get_by_role("region", name=label, exact=True)
    region.wait_for()
    # The first rows are shown before the last ones have come.
    tab.page.wait_for_load_state()
    found = region.locator("tbody tr")
    return [
        [cell.strip() for cell in row]
        for row in found.evaluate_all(
            "rows => rows.map(row => [...row.cells].map(cell => cell.textContent.trim().replace(/\\s+/g, ' ')))"
        )
    ]


def names(tab):
    return [row[0] for row in rows(tab)]


def test_the_list_shows_the_counts(shop, open_tab):
    tab = open_tab(shop).go("queues?q=orders").sign_in("all")
    created, paid = rows(tab)
    assert created[:6] == ["orders.created", "1", "0", "0", "0", created[5]]
    assert paid[:5] == ["orders.paid", "1", "0", "0", "1"]
    assert paid[8] == "west"
    assert re.fullmatch(r"[\d.]+ s|\d+ min( \d+ s)?", paid[5])
    assert tab.page.locator("svg.spark").count() == 4
    tab.check()


def test_the_list_shows_the_flow_of_the_last_minute(tmp_path, open_tab):
    """At a time that stands still, because the mean falls when a minute ends."""
    at = now_ms()
    with console.console(tmp_path, clock=lambda: at) as server, server.client() as client:
        for _ in range(3):
            post(client, "orders")
        (message,) = client.post("queues/orders/messages:receive").json()["messages"]
        client.post("queues/orders/messages:ack", json={"ack_tokens": [message["ack_token"]]}).raise_for_status()
        tab = open_tab(server).go("queues")
        assert [row[6:8] for row in rows(tab)] == [["3", "1"]]
        tab.check()


def test_many_queues_are_paged_sorted_and_found(shop, open_tab):
    tab = open_tab(shop).go("queues").sign_in("all")
    assert names(tab) == [f"job-{number:03}" for number in range(100)]
    assert tab.page.get_by_text(f"1 to 100 of {MANY + 2}").is_visible()
    tab.follow(tab.page.get_by_role("link", name="Next"))
    tab.page.wait_for_url(re.compile("page=2"))
    assert names(tab)[0] == "job-100"
    tab.follow(tab.page.get_by_role("link", name="Queue", exact=True))
    tab.page.wait_for_url(re.compile("sort=-queue"))
    assert names(tab)[:2] == ["orders.paid", "orders.created"]
    tab.follow(tab.page.get_by_role("link", name="Dead", exact=True))
    tab.page.wait_for_url(re.compile("sort=-dead"))
    assert names(tab)[0] == "orders.paid"
    assert tab.page.locator("th[aria-sort=descending]").inner_text() == "Dead"
    tab.page.get_by_label("Name").fill("JOB-24")
    tab.page.get_by_text("1 to 10 of 10").wait_for()
    assert names(tab)[0] == "job-240"
    expect(tab.page).to_have_url(re.compile("q=JOB-24"))
    tab.page.get_by_label("Name").fill("nothing-has-this-name")
    tab.page.get_by_text("No queue matches.").wait_for()
    tab.page.go_back()
    tab.page.get_by_text("1 to 10 of 10").wait_for()
    tab.check()


def test_queues_are_grouped_by_route_and_by_broker(shop, open_tab):
    tab = open_tab(shop).go("queues").sign_in("all")
    tab.page.get_by_label("Group by").select_option("route")
    assert [row[:2] for row in rows(tab, "Groups of queues")] == [["*", f"{MANY}"], ["orders.*", "2"]]
    tab.page.get_by_label("Group by").select_option("broker")
    tab.page.get_by_role("link", name="west").wait_for()
    assert rows(tab, "Groups of queues")[1][:6] == ["west", "2", "2", "0", "0", "1"]
    assert tab.axe() == []
    tab.page.get_by_role("link", name="west").click()
    assert names(tab) == ["orders.created", "orders.paid"]
    tab.page.get_by_role("link", name="Show all").click()
    tab.page.get_by_text(f"of {MANY + 2}").wait_for()
    tab.check()


def test_the_list_is_live_until_it_is_paused(shop, open_tab):
    tab = open_tab(shop).go("queues?q=orders.created").sign_in("all")
    count = int(rows(tab)[0][1])
    requests = []
    tab.page.on("request", lambda request: requests.append(request.url))
    with shop.client("all") as client:
        post(client, "orders.created")
        wait_for_ready(tab, count + 1)
        button = tab.page.get_by_role("button", name="Live")
        assert button.get_attribute("aria-pressed") == "true"
        button.click()
        assert button.get_attribute("aria-pressed") == "false"
        # What was asked for before the click has been answered.
        expect(tab.page.locator(".htmx-request")).to_have_count(0)
        asked = len(requests)
        post(client, "orders.created")
        # Longer than the pause between two updates: there is nothing to wait for.
        tab.page.wait_for_timeout(3_000)
        assert len(requests) == asked
        button.click()
        wait_for_ready(tab, count + 2)
    tab.check()


def test_an_update_that_comes_late_does_not_undo_a_search(shop, open_tab):
    tab = open_tab(shop).go("queues?group=route").sign_in("all")
    held = []
    tab.page.route(re.compile("group=route"), lambda route: held.append(route))
    tab.until(lambda: held)
    tab.page.get_by_label("Group by").select_option("broker")
    tab.page.get_by_role("link", name="west").wait_for()
    tab.page.wait_for_url(re.compile("group=broker"))
    with tab.page.expect_event("requestfinished", lambda request: "group=route" in request.url):
        held[0].continue_()
    tab.page.evaluate("new Promise(requestAnimationFrame)")
    assert rows(tab, "Groups of queues")[1][0] == "west"
    tab.check()


def test_a_user_sees_what_the_token_has_rights_for(shop, open_tab):
    tab = open_tab(shop).go("queues").sign_in("team")
    assert names(tab) == ["orders.created", "orders.paid"]
    assert tab.page.get_by_label("Broker").count() == 0
    tab.go()
    assert "job-" not in tab.page.content() and "east" not in tab.page.content()
    assert tab.page.get_by_text("sees no broker").is_visible()
    tab.go("sign-in")
    tab.follow(tab.page.get_by_role("button", name="Sign out"))
    tab.sign_in("lead")
    assert [row[0] for row in rows(tab, "Brokers")] == ["west"]
    tab.check()


def test_the_overview_shows_the_hour_and_what_needs_attention(shop, open_tab):
    tab = open_tab(shop).go().sign_in("all")
    tab.page.locator(".chart canvas").nth(2).wait_for()
    assert tab.page.get_by_text("New dead letters of the queue 'orders.paid'").is_visible()
    brokers = rows(tab, "Brokers")
    assert [(row[0], row[1]) for row in brokers] == [("east", "up"), ("west", "up")]
    assert all(row[2].startswith("SQLite 3.") for row in brokers)
    tab.page.get_by_text("The figures as a table").click()
    hour = rows(tab, "Figures by minute")[0]
    assert hour[0] == "the hour" and int(hour[1]) >= MANY + 4 and hour[6] == "1"
    update(tab)
    assert tab.page.locator("details#numbers[open]").count() == 1
    assert tab.page.locator(".chart canvas").count() == 3
    tab.check()


def update(tab):
    """Wait for the next update of the page."""
    tab.page.evaluate("document.querySelector('[data-live]').firstElementChild.dataset.old = ''")
    tab.page.wait_for_function("() => document.querySelector('[data-old]') === null")


def wait_for_ready(tab, count):
    """Wait until the first row shows ``count`` ready messages."""
    tab.page.wait_for_function(
        "count => document.querySelector('tbody td').textContent.trim() === count", arg=str(count)
    )


def test_the_focus_stays_where_it_is(shop, open_tab):
    tab = open_tab(shop).go("queues?q=orders").sign_in("all")
    tab.page.get_by_role("link", name="orders.paid").focus()
    update(tab)
    assert tab.page.evaluate("document.activeElement.textContent") == "orders.paid"
    tab.check()


def test_what_is_pressed_is_not_replaced(shop, open_tab):
    """A click is lost whose element is replaced between its press and its release."""
    tab = open_tab(shop).go("queues?q=orders").sign_in("all")
    held = []
    tab.page.route(re.compile("/console/queues"), lambda route: held.append(route))
    tab.until(lambda: held)
    box = tab.page.get_by_role("link", name="orders.paid").bounding_box()
    tab.page.mouse.move(box["x"] + 5, box["y"] + 5)
    tab.page.mouse.down()
    with tab.page.expect_event("requestfinished"):
        held[0].continue_()
    tab.page.unroute(re.compile("/console/queues"))
    tab.page.evaluate("new Promise(requestAnimationFrame)")
    tab.page.mouse.up()
    tab.page.wait_for_url(re.compile("/console/queues/orders.paid$"))
    tab.check()


def test_a_keyboard_is_enough(shop, open_tab):
    tab = open_tab(shop).go("queues").sign_in("all")
    seen = []
    for _ in range(12):
        tab.page.keyboard.press("Tab")
        seen.append(tab.page.evaluate("(document.activeElement.textContent || document.activeElement.id).trim()"))
        assert tab.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none" or seen[-1] == ""
    assert seen[0] == "Skip to the content"
    assert {"babelgate", "Overview", "Queues", "Sign out", "q"} <= {*seen}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_the_lists_are_accessible(shop, open_tab, dark, width):
    tab = open_tab(shop, dark=dark, width=width).go().sign_in("all")
    for path in ("", "queues", "queues?group=route", "queues?q=nothing", "queues?sort=-dead&broker=west"):
        tab.go(path)
        assert (path, tab.axe(), tab.overflow()) == (path, [], 0)
    tab.check()


def test_hostile_parameters_are_texts(shop, open_tab):
    tab = open_tab(shop).go("queues").sign_in("all")
    for name in ("q", "broker", "route"):
        tab.page.goto(f"{shop.url}/console/queues?{name}={MARKUP.replace('&', '%26')}")
        assert tab.page.get_by_text("No queue matches.").is_visible()
    for name in ("sort", "group", "page"):
        tab.page.goto(f"{shop.url}/console/queues?{name}={MARKUP.replace('&', '%26')}")
        assert tab.page.get_by_role("heading", level=1).inner_text() == "Invalid parameter"
    assert tab.dialogs == []
    tab.check()


class Hostile(MemoryBinding):
    """A broker that has markup in each of its texts."""

    @property
    def server_version(self):
        return f"version {MARKUP}"

    async def warnings(self):
        return [f"warning {MARKUP}"]

    async def stats(self, queue):
        raise BrokerUnavailable(self.name, f"counts {MARKUP}")


class Lost(Hostile):
    """A broker that refuses a ping in markup."""

    async def ping(self):
        raise BrokerUnavailable(self.name, f"ping {MARKUP}")


@pytest.mark.parametrize(("kind", "starts"), [(Hostile, ["warning", "version"]), (Lost, ["version", "ping"])])
def test_what_a_broker_says_is_text(tmp_path, open_tab, kind, starts):
    with console.console_over(tmp_path, kind()) as server:
        tab = open_tab(server).go()
        text = tab.page.locator("main").inner_text()
        assert [f"{start} {MARKUP}" in text for start in starts] == [True] * len(starts)
        update(tab)
        tab.go("queues")
        assert tab.page.locator("img").count() == 0
        tab.go()
        assert (tab.page.locator("img").count(), tab.axe()) == (0, [])
        tab.check()


def test_ten_thousand_queues_do_not_freeze(tmp_path, open_tab):
    """The first rows are there at once, whatever the machine: the page has a hundred, and asks for the counts of no
    more."""
    queues = {f"team-{number % 40}.job-{number}": {"broker": "local"} for number in range(10_000)}
    with console.console(tmp_path, queues=queues) as server:
        tab = open_tab(server)
        began = time.monotonic()
        tab.go("queues")
        assert len(rows(tab)) == 100
        assert time.monotonic() - began < 30
        assert tab.page.get_by_text("1 to 100 of 10,000").is_visible()
        tab.go("queues?sort=-depth")
        assert "At most 1,000 are sorted by their numbers" in tab.page.content()
        tab.go("queues?q=team-7.*&sort=-depth")
        assert tab.page.get_by_text("1 to 100 of 250").is_visible()
        tab.check()
