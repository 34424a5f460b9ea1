"""Where is my message, in a real browser: by ids and by conditions, on real brokers, with what was searched."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.brokers import registry
from tests.harness import console
from tests.harness.console import WIDTHS
from tests.harness.letters import JOB, bury, dead, eventually_found, ready
from tests.harness.local import free_port

pytestmark = pytest.mark.browser

BROKERS = [registry.HARNESSES[kind][0] for kind in ("sqlite", "redis", "rabbitmq")]
TRACE = "0f6d1d9e-2f0a-4b9e-8a39-0a4f9a3a7d10"
HOSTILE = "<script>dialog</script><img src=x onerror=alert(1)>\"'`{{7*7}}</textarea>&amp;\u202e"
KEYS = [{"id": "k1", "secret": "0123456789abcdef0123456789abcdef"}]
TRACE_URL = "https://traces.example/trace/{trace_id}?a=b&c=d"


def journal(directory):
    return {"landing": str(directory / "landed"), "node": "gw", "meta": ["ext.tenant"]}


@pytest.fixture(scope="module", params=registry.params(BROKERS))
def server(request, servers, tmp_path_factory):
    """A console with a journal that anyone may use, over one of the brokers."""
    directory = tmp_path_factory.mktemp("find")
    broker = servers.broker(request.param, directory)
    brokers = {"main": {"url": broker.url, "timeout_seconds": 30}}
    with console.console(
        directory,
        brokers=brokers,
        default=broker.route(),
        journal=journal(directory),
        console={"trace_url": TRACE_URL},
    ) as served:
        yield served


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A console over SQLite with a journal, in which all texts are markup, and with a peer that does not answer."""
    directory = tmp_path_factory.mktemp("hostile")
    peers = {"listen": f"127.0.0.1:{free_port()}", "addresses": [f"127.0.0.1:{free_port()}"]}
    auth = console.tokens(all={"*": list(console.RIGHTS)}, reader={"shop": ["listen"]}, sender={"*": ["send"]})
    with (
        console.console(directory, journal=journal(directory), auth=auth, peers=peers, token_keys=KEYS) as served,
        served.client("all") as client,
    ):
        bury(client, "shop", HOSTILE, exception=HOSTILE, job=HOSTILE, data={HOSTILE: HOSTILE}, trace_id=HOSTILE)
        bury(client, "other", HOSTILE, job=HOSTILE, trace_id=HOSTILE)
        for queue in ("shop", "other"):
            eventually_found(client, dead(client, queue)[0]["id"], "rejected")
        yield served


def find(tab, text):
    tab.page.get_by_label("Message id or trace id").fill(text)
    return tab.follow(tab.page.get_by_role("search", name="By an id").get_by_role("button", name="Find"))


def test_a_message_is_followed_across_queues(server, queue, open_tab):
    with server.client() as client:
        bury(client, queue, "no such mailbox", trace_id=TRACE)
        (letter,) = dead(client, queue)
        eventually_found(client, letter["id"], "rejected")
        tab = find(open_tab(server).go("find"), letter["id"])
        section = tab.page.get_by_role("region", name="Message 1", exact=True)
        expect(section).to_contain_text("dead_lettered")
        expect(section).to_contain_text(f"It is in the dead letters of {queue}")
        rows = section.locator("tbody tr")
        for event in ("accepted", "delivered", "rejected"):
            expect(rows.filter(has_text=event)).to_have_count(1)
        address = "https://traces.example/trace/0f6d1d9e2f0a4b9e8a390a4f9a3a7d10?a=b&c=d"
        expect(tab.page.get_by_role("link", name="its trace")).to_have_attribute("href", address)
        expect(tab.page.get_by_text("everything from")).to_be_visible()
        count = rows.count()
        # From here to the letter, and back.
        tab.follow(section.get_by_role("link", name="its dead letter"))
        tab.follow(tab.page.locator("tbody th a"))
        expect(tab.page.get_by_role("region", name="History", exact=True).locator("tbody tr")).to_have_count(count)
        other = f"{queue}-other"
        tab.page.get_by_label("Send it to the queue").fill(other)
        tab.follow(tab.page.get_by_role("button", name="Redrive", exact=True))
        expect(tab.page.get_by_text("The dead letter was sent to")).to_be_visible()
        ready(client, other, 1)
        eventually_found(client, letter["id"], "acked")
        find(tab.go("find"), letter["id"])
        expect(section).to_contain_text(f"A consumer of {other} has finished it.")
        expect(rows.filter(has_text=f"{queue} → {other}")).to_have_count(1)
        expect(tab.page.get_by_role("region", name="Way", exact=True).locator("circle")).to_have_count(rows.count() + 1)
        expect(tab.page.get_by_role("region", name="Way", exact=True).locator("text")).to_have_count(2)
        # The trace has the same message.
        find(tab, TRACE)
        expect(tab.page.get_by_role("heading", name=f"Message {letter['id']}")).to_be_visible()
        tab.check()


def test_events_are_found_by_job_queue_and_event(server, queue, open_tab):
    with server.client() as client:
        bury(client, queue, "x", "y")
        for letter in dead(client, queue):
            eventually_found(client, letter["id"], "rejected")
    tab = open_tab(server).go("find")
    tab.page.get_by_text("By job, queue, event or time").click()
    form = tab.page.get_by_role("search", name="By job, queue, event or time")
    form.get_by_label("Queue").fill(queue)
    form.get_by_label("Event").select_option("accepted")
    form.get_by_label("Job").fill(JOB)
    form.get_by_label("From (UTC)").fill("2020-01-31T00:00")
    tab.follow(form.get_by_role("button", name="Find"))
    rows = tab.page.get_by_role("region", name="Events", exact=True).locator("tbody tr")
    expect(rows).to_have_count(2)
    tab.follow(rows.first.get_by_role("link"))
    expect(tab.page.get_by_role("region", name="Message 1", exact=True)).to_be_visible()
    tab.go(f"find?queue={queue}&until=2020-01-31T00:00")
    expect(tab.page.get_by_text("No event matches.")).to_be_visible()
    tab.check()


def test_events_are_found_by_a_member_of_meta(hostile, queue, open_tab):
    with hostile.client("all") as client:
        draft = {"job": JOB, "data": {}, "meta": {"ext": {"tenant": HOSTILE}}}
        sought = client.post(f"queues/{queue}/messages", json=draft).raise_for_status().json()["id"]
        eventually_found(client, sought, "accepted")
    tab = open_tab(hostile).go("find").sign_in("all")
    tab.page.get_by_text("By job, queue, event or time").click()
    form = tab.page.get_by_role("search", name="By job, queue, event or time")
    form.get_by_label("Queue").fill(queue)
    form.get_by_label("Member of meta").select_option("ext.tenant")
    form.get_by_label("Its value").fill("other")
    tab.follow(form.get_by_role("button", name="Find"))
    expect(tab.page.get_by_text("No event matches.")).to_be_visible()
    form.get_by_label("Its value").fill(HOSTILE)
    tab.follow(form.get_by_role("button", name="Find"))
    row = tab.page.get_by_role("region", name="Events", exact=True).locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text(f"ext.tenant: {HOSTILE}")
    tab.follow(row.get_by_role("link"))
    expect(tab.page.get_by_role("heading", name=f"Message {sought}")).to_be_visible()
    assert (tab.axe(), tab.page.locator("main img, main script").count()) == ([], 0)
    tab.check()


def test_an_unknown_id_says_what_was_searched(hostile, open_tab):
    tab = open_tab(hostile).go("find").sign_in("all")
    find(tab, "nothing")
    missing = tab.page.locator(".notice.warn")
    expect(missing).to_contain_text("Searched: the journals of gw (from ")
    expect(missing).to_contain_text("No answer from 127.0.0.1:")
    expect(missing).to_contain_text("babelgate pipeline message nothing --lake LAKE")
    tab.go("find?queue=shop")
    expect(tab.page.get_by_text(re.compile(r"127\.0\.0\.1:\d+ did not answer\."))).to_be_visible()
    tab.check()


def test_without_a_journal_it_says_how_to_configure_one(free, open_tab):
    tab = open_tab(free).go("find")
    expect(tab.page.get_by_text("This gateway keeps no journal")).to_be_visible()
    expect(tab.page.get_by_role("region", name="Configuration")).to_contain_text("landing: /var/lib/babelgate/journal")
    assert (tab.axe(), tab.overflow()) == ([], 0)
    tab.check()


def test_a_user_sees_the_events_of_own_queues(hostile, open_tab):
    tab = open_tab(hostile).go("find").sign_in("reader")
    find(tab, HOSTILE)
    expect(tab.page.get_by_role("region", name="Message 1", exact=True)).to_contain_text("shop")
    expect(tab.page.get_by_role("region", name="Message 2", exact=True)).to_have_count(0)
    expect(tab.page.locator("main")).not_to_contain_text("other")
    tab.go("find?queue=other")
    expect(
        tab.page.get_by_text("This needs the right 'listen', 'manage' or 'observe' on the queue 'other'.")
    ).to_be_visible()
    sender = open_tab(hostile).go("find?queue=shop").sign_in("sender")
    expect(sender.page.get_by_text("This needs the right 'listen', 'manage' or 'observe'").first).to_be_visible()
    tab.check()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_pages_are_accessible_and_show_markup_as_text(hostile, open_tab, dark, width):
    with hostile.client("all") as client:
        letter = dead(client, "shop")[0]
    tab = open_tab(hostile, dark=dark, width=width).go("find").sign_in("all")
    tab.page.wait_for_url(re.compile("/console/find$"))
    address = f"queues/shop/dead-letters/{letter['letter_id']}"
    for page in ("find", f"find?id={letter['id']}", "find?queue=shop", "find?id=none", address):
        tab.go(page)
        assert (page, tab.axe(), tab.overflow()) == (page, [], 0)
        assert tab.page.locator("main script, main img").count() == 0
    find(tab.go("find"), HOSTILE)
    expect(tab.page.get_by_role("region", name="Message 2", exact=True)).to_contain_text(HOSTILE)
    assert (tab.axe(), tab.overflow()) == ([], 0)
    tab.check()


def test_with_the_keyboard_alone(hostile, open_tab):
    with hostile.client("all") as client:
        sought = dead(client, "shop")[0]["id"]
    tab = open_tab(hostile).go("find").sign_in("all")
    tab.page.wait_for_url(re.compile("/console/find$"))
    keyboard = tab.page.keyboard
    for _ in range(30):
        keyboard.press("Tab")
        if tab.page.evaluate("document.activeElement.id") == "id":
            break
    keyboard.type(sought)
    keyboard.press("Enter")
    expect(tab.page.get_by_role("region", name="Message 1", exact=True)).to_be_visible()
    tab.check()
