"""The pages of dead letters in a real browser, on real brokers: groups, lists, one letter, and what is done to them."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.brokers import registry
from tests.harness import console
from tests.harness.console import WIDTHS
from tests.harness.letters import JOB, bury, bury_many, dead, inject, ready

pytestmark = pytest.mark.browser

BROKERS = [registry.HARNESSES[kind][0] for kind in ("sqlite", "redis", "rabbitmq")]


@pytest.fixture(scope="module", params=registry.params(BROKERS))
def server(request, servers, tmp_path_factory):
    """A console that anyone may use, over one of the brokers."""
    directory = tmp_path_factory.mktemp("letters")
    broker = servers.broker(request.param, directory)
    brokers = {"main": {"url": broker.url, "timeout_seconds": 30}}
    with console.console(directory, brokers=brokers, default=broker.route()) as served:
        yield served


@pytest.fixture
def client(server):
    with server.client() as opened:
        yield opened


def button(tab, name):
    return tab.page.get_by_role("button", name=name, exact=True)


def link(tab, name):
    return tab.page.get_by_role("link", name=name)


def notice(tab):
    return tab.page.locator("p.notice[role=status]:not(#trouble)")


def test_letters_are_grouped_and_listed(server, client, queue, open_tab):
    bury(client, queue, "no such mailbox", "time-out", "no such mailbox")
    tab = open_tab(server).go("dead-letters")
    tab.page.get_by_label("Queue", exact=True).fill(queue)
    button(tab, "Open").click()
    expect(tab.page.get_by_role("heading", level=1)).to_have_text(f"Dead letters of {queue}")
    expect(tab.page.get_by_text("Looked at all 3 dead letters.")).to_be_visible()
    rows = tab.page.locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text(re.compile(f"^\\s*2\\s*failed\\s*{JOB}\\s*no such mailbox"))
    tab.follow(link(tab, "List group 1"))
    expect(rows).to_have_count(2)
    expect(tab.page.get_by_label("Error, exactly")).to_have_value("no such mailbox")
    tab.follow(link(tab, "Show all"))
    expect(rows).to_have_count(3)
    tab.go("dead-letters")
    expect(link(tab, queue)).to_be_visible()
    tab.go(f"queues/{queue}").page.get_by_label("This queue").get_by_role("link", name="Dead letters").click()
    link(tab, f"Queue {queue}").click()
    expect(tab.page.get_by_role("heading", level=1)).to_have_text(queue)
    tab.check()


def test_one_letter_is_shown_and_sent_back(server, client, queue, open_tab):
    bury(client, queue, "no such mailbox", data={"n": 1.5})
    tab = open_tab(server).go(f"queues/{queue}/dead-letters/list")
    tab.page.locator("tbody th a").click()
    facts = tab.page.locator("dl.facts").first
    for text in ("failed", "no such mailbox", "LookupError", JOB):
        expect(facts).to_contain_text(text)
    expect(tab.page.get_by_role("region", name="Body")).to_contain_text('"n": 1.5')
    button(tab, "Redrive").click()
    expect(notice(tab)).to_contain_text(f"The dead letter was sent to {queue} as the message ")
    assert dead(client, queue) == []
    assert [each["data"] for each in ready(client, queue, 1)] == [{"n": 1.5}]
    tab.check()


def test_one_letter_is_edited_once_it_is_valid(server, client, queue, open_tab):
    bury(client, queue, "bad address", data={"to": "nobody"})
    (letter,) = dead(client, queue)
    tab = open_tab(server).go(f"queues/{queue}/dead-letters/{letter['letter_id']}")
    tab.follow(link(tab, "Edit and redrive…"))
    editor = tab.page.get_by_label("Envelope, or job and data alone")
    expect(editor).to_have_value(re.compile('"to": "nobody"'))
    before = editor.input_value()
    # What is typed is checked at once.
    editor.fill('{"job": " ", "data": {}}')
    checked = tab.page.locator("#checked")
    expect(checked.locator(".notice.bad")).to_be_visible()
    tab.follow(button(tab, "Redrive it like this"))
    expect(checked.locator(".notice.bad")).to_be_visible()
    expect(editor).to_have_value('{"job": " ", "data": {}}')
    assert len(dead(client, queue)) == 1
    editor.fill(before.replace("nobody", "ada"))
    expect(checked).to_contain_text("It is valid.")
    expect(checked).to_contain_text('"to": "ada"')
    button(tab, "Redrive it like this").click()
    expect(notice(tab)).to_contain_text("The dead letter was sent")
    (sent,) = ready(client, queue, 1)
    assert (sent["data"], sent["meta"]["id"]) == ({"to": "ada"}, letter["id"])
    assert dead(client, queue) == []
    tab.check()


def test_one_letter_is_deleted(server, client, queue, open_tab):
    bury(client, queue, "x", "y")
    letter = dead(client, queue)[0]
    tab = open_tab(server).go(f"queues/{queue}/dead-letters/{letter['letter_id']}")
    tab.page.get_by_text("Delete…").click()
    button(tab, "Delete this letter").click()
    expect(notice(tab)).to_have_text("The dead letter was deleted.")
    assert [each["error"] for each in dead(client, queue)] == ["y"]
    tab.check()


def test_a_letter_that_is_gone_is_an_error_in_words(server, queue, open_tab):
    tab = open_tab(server).go(f"queues/{queue}/dead-letters/{'0' * 32}")
    expect(tab.page.get_by_text("It may have been redriven or removed.")).to_be_visible()
    tab.check()


def test_many_are_sent_back_after_a_dry_run(server, client, queue, open_tab):
    bury(client, queue, "a", "b", "a")
    tab = open_tab(server).go(f"queues/{queue}/dead-letters")
    tab.follow(link(tab, "Redrive… group 1"))
    expect(tab.page.get_by_role("heading", name="Dry run: nothing was sent yet")).to_be_visible()
    facts = tab.page.locator("dl.facts")
    expect(facts).to_contain_text(re.compile(r"Looked at\s*3 dead letters\s*Match\s*2\s*Can be sent\s*2"))
    assert len(dead(client, queue)) == 3
    button(tab, "Redrive").click()
    expect(tab.page.get_by_text("It has ended.")).to_be_visible()
    expect(facts).to_contain_text(re.compile(r"Sent\s*2\s*Failed\s*0"))
    assert [each["error"] for each in dead(client, queue)] == ["b"]
    assert len(ready(client, queue, 2)) == 2
    tab.go(f"queues/{queue}/dead-letters")
    expect(tab.page.get_by_role("region", name="Redrives")).to_contain_text("completed")
    tab.check()


def test_a_redrive_is_watched_stopped_and_resumed(server, client, queue, open_tab):
    bury(client, queue, *["x"] * 100)
    tab = open_tab(server).go(f"queues/{queue}/dead-letters/redrive")
    tab.page.get_by_label("Letters a second, at most").fill("1")
    button(tab, "Redrive").click()
    expect(tab.page.get_by_text("It sends page after page.")).to_be_visible()
    # The figures move without a reload.
    expect(tab.page.locator("dl.facts")).to_contain_text(re.compile(r"Sent\s*[2-9]"))
    button(tab, "Stop").click()
    expect(tab.page.get_by_text("It was stopped.")).to_be_visible()
    button(tab, "Resume").click()
    expect(tab.page.get_by_text("It sends page after page.")).to_be_visible()
    button(tab, "Stop").click()
    expect(button(tab, "Resume")).to_be_visible()
    left = len(dead(client, queue))
    assert 0 < left < 100
    tab.check()


def test_selected_letters_are_sent_back_or_deleted(server, client, queue, open_tab):
    bury(client, queue, "a", "b", "c")
    tab = open_tab(server).go(f"queues/{queue}/dead-letters/list")
    button(tab, "Delete the selected…").click()
    expect(notice(tab)).to_have_text("Select at least one dead letter.")
    tab.page.get_by_label("Select the letter 1", exact=True).check()
    tab.page.get_by_label("Select the letter 3", exact=True).check()
    button(tab, "Delete the selected…").click()
    expect(tab.page.get_by_text("This deletes 2 selected dead letters.")).to_be_visible()
    assert len(dead(client, queue)) == 3
    button(tab, "Delete").click()
    expect(notice(tab)).to_have_text("Deleted: 2 dead letters.")
    assert [each["error"] for each in dead(client, queue)] == ["b"]
    tab.page.get_by_label("Select the letter 1", exact=True).check()
    button(tab, "Redrive the selected…").click()
    expect(tab.page.locator("dl.facts")).to_contain_text(re.compile(r"Chosen\s*1\s*Can be sent\s*1"))
    button(tab, "Redrive").click()
    expect(tab.page.get_by_text("It has ended.")).to_be_visible()
    assert dead(client, queue) == [] and len(ready(client, queue, 1)) == 1
    tab.check()


def test_a_purge_needs_the_name_of_the_queue(server, client, queue, open_tab):
    bury(client, queue, "a", "b")
    tab = open_tab(server).go(f"queues/{queue}/dead-letters")
    link(tab, "Purge…").click()
    expect(tab.page.get_by_text("all dead letters of the queue: 2 now")).to_be_visible()
    typed = tab.page.get_by_label(f"Type {queue} to confirm")
    typed.fill("another")
    button(tab, "Purge the dead letters").click()
    expect(tab.page.get_by_role("alert")).to_contain_text("Nothing was removed.")
    assert len(dead(client, queue)) == 2
    typed.fill(queue)
    button(tab, "Purge the dead letters").click()
    expect(notice(tab)).to_have_text(f"Purged: 2 dead letters of {queue} were removed.")
    expect(tab.page.get_by_text("This queue has no dead letters.")).to_be_visible()
    tab.check()


def test_with_the_keyboard_alone(server, client, queue, open_tab):
    bury(client, queue, "a")
    tab = open_tab(server).go(f"queues/{queue}/dead-letters/list")
    keyboard = tab.page.keyboard

    tab.reach("input[type=checkbox]")
    keyboard.press("Space")
    tab.reach("button[value=redrive]")
    keyboard.press("Enter")
    tab.page.wait_for_url(re.compile("/selected$"))
    tab.reach("button.primary")
    keyboard.press("Enter")
    expect(tab.page.get_by_text("It has ended.")).to_be_visible()
    assert dead(client, queue) == []
    tab.check()


HOSTILE = "<script>dialog</script><img src=x onerror=alert(1)>\"'`{{7*7}}${7*7}</textarea></pre>&amp;\u202e"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A console over SQLite, with letters whose every text is markup; and their queue."""
    with console.console(tmp_path_factory.mktemp("hostile")) as served, served.client() as client:
        bury(client, "shop", HOSTILE, exception=HOSTILE, job=HOSTILE, data={HOSTILE: HOSTILE}, trace_id=HOSTILE)
        yield served


def pages_of(served):
    """Each page of dead letters of the queue ``shop``."""
    with served.client() as client:
        letter = dead(client, "shop")[0]["letter_id"]
        jobs = client.get("queues/shop/redrives").json()["redrives"]
    base = "queues/shop/dead-letters"
    pages = ["dead-letters", base, f"{base}/list", f"{base}/list?error=x", f"{base}/redrive", f"{base}/purge"]
    return [*pages, f"{base}/{letter}", f"{base}/{letter}/edit", *(f"{base}/redrives/{job['id']}" for job in jobs[:1])]


@pytest.fixture(scope="module")
def every_page(hostile):
    with hostile.client() as client:
        order = {"background": True, "filter": {"job": "none"}}
        client.post("queues/shop/dead-letters:redrive", json=order).raise_for_status()
    found = pages_of(hostile)
    assert len(found) == 9
    return found


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_pages_are_accessible_and_show_markup_as_text(hostile, every_page, open_tab, dark, width):
    tab = open_tab(hostile, dark=dark, width=width)
    for page in every_page:
        tab.go(page)
        assert (page, tab.axe(), tab.overflow()) == (page, [], 0)
        assert tab.page.locator("main script, main img").count() == 0
        tab.check()
    expect(tab.go(every_page[6]).page.locator("dl.facts").first).to_contain_text(HOSTILE)


def test_markup_is_text_after_each_action(hostile, open_tab):
    with hostile.client() as client:
        bury(client, "other", HOSTILE, job=HOSTILE, data={HOSTILE: HOSTILE})
    tab = open_tab(hostile).go("queues/other/dead-letters")
    tab.follow(link(tab, "List group 1"))
    expect(tab.page.get_by_label("Error, exactly")).to_have_value(HOSTILE)
    tab.follow(tab.page.locator("tbody th a"))
    tab.follow(link(tab, "Edit and redrive…"))
    tab.follow(button(tab, "Check"))
    expect(tab.page.locator("#checked")).to_contain_text("It is valid.")
    tab.page.get_by_label("Envelope, or job and data alone").fill(HOSTILE)
    expect(tab.page.locator("#checked .notice.bad")).to_be_visible()
    assert tab.axe() == []
    tab.go("queues/other/dead-letters/redrive?error=" + "%3Cimg%20src=x%20onerror=alert(1)%3E")
    expect(tab.page.get_by_text("There is nothing to send.")).to_be_visible()
    tab.check()


def test_more_letters_than_one_count_reads(tmp_path, open_tab):
    with console.console(tmp_path) as served, served.client() as client:
        bury_many(client, "many", 10_050)
        tab = open_tab(served).go("queues/many/dead-letters")
        expect(tab.page.get_by_text("Looked at the oldest 10,000 of 10,050 dead letters.")).to_be_visible()
        tab.follow(link(tab, "Look at the next ones"))
        expect(tab.page.get_by_text("Looked at 50 further dead letters.")).to_be_visible()
        tab.go("queues/many/dead-letters/list")
        tab.follow(link(tab, "Next page"))
        expect(tab.page.locator("tbody tr")).to_have_count(50)
        tab.follow(tab.page.locator("tbody th a").last)
        expect(tab.page.get_by_role("region", name="Body")).to_contain_text('"n": 99')
        tab.go("queues/many/dead-letters/redrive")
        expect(tab.page.get_by_text(re.compile("^10,0.. or more: the dry run ends there"))).to_be_visible()
        tab.check()


def test_what_is_no_envelope_is_sent_elsewhere_as_it_is(tmp_path, servers, open_tab):
    broker = servers.broker(BROKERS[0], tmp_path)
    brokers = {"local": {"url": broker.url, "timeout_seconds": 30}}
    with console.console(tmp_path, brokers=brokers) as served, served.client() as client:
        inject(broker, "odd", b"no envelope")
        client.post("queues/odd/messages:receive").raise_for_status()
        tab = open_tab(served).go("queues/odd/dead-letters/redrive")
        expect(tab.page.locator("dl.facts")).to_contain_text(re.compile(r"Can be sent\s*0\s*Cannot be sent\s*1"))
        letter = dead(client, "odd")[0]["letter_id"]
        # Both pages have a button of this name.
        tab.follow(tab.page.get_by_role("listitem").get_by_role("link", name=letter))
        tab.follow(button(tab, "Redrive"))
        expect(tab.page.get_by_text("not_redrivable")).to_be_visible()
        tab.page.go_back()
        tab.page.get_by_label("as the bytes that it is").check()
        tab.page.get_by_label("Send it to the queue").fill("other")
        button(tab, "Redrive").click()
        expect(notice(tab)).to_have_text("The dead letter was sent to other.")
        assert client.get("queues/other").json()["stats"]["depth"] == 1
        tab.check()


def test_it_works_without_scripts(hostile, open_tab):
    with hostile.client() as client:
        bury(client, "plain", "x")
        letter = dead(client, "plain")[0]["letter_id"]
        tab = open_tab(hostile, scripts=False).go(f"queues/plain/dead-letters/{letter}/edit")
        editor = tab.page.get_by_label("Envelope, or job and data alone")
        editor.fill("{")
        tab.follow(button(tab, "Check"))
        expect(tab.page.locator("#checked .notice.bad")).to_be_visible()
        expect(editor).to_have_value("{")
        editor.fill('{"job": "urn:babel:test:other", "data": {}}')
        button(tab, "Redrive it like this").click()
        expect(notice(tab)).to_contain_text("The dead letter was sent")
        assert dead(client, "plain") == []
