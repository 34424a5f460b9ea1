"""The pages of a queue in a real browser: each action on three brokers, rights, markup in messages, accessibility."""

from __future__ import annotations

import json
import re

import pytest

from babelgate.clock import now_ms
from tests.brokers import registry
from tests.harness import console
from tests.harness.browser import PATIENCE_MS

pytestmark = pytest.mark.browser

THREE = [registry.HARNESSES[kind][0] for kind in ("sqlite", "redis", "rabbitmq")]
MARKUP = "<img src=x onerror=alert(1)>'\"><script>alert(2)</script>{{7*7}}</pre></textarea>"
JOB = "urn:babel:orders:placed"


@pytest.fixture(scope="module", params=registry.params(THREE))
def broker(request):
    return request.param


@pytest.fixture
def server(broker, servers, tmp_path):
    running = servers.broker(broker, tmp_path)
    brokers = {"main": {"url": running.url, "timeout_seconds": 30}}
    with console.console(tmp_path, brokers=brokers, default={**running.route("main"), "max_attempts": 2}) as opened:
        yield opened


@pytest.fixture
def tab(server, open_tab):
    opened = open_tab(server)
    yield opened
    opened.check()


def publish(server, queue, job=JOB, data=None, token=None, **entry):
    body = {"envelope": {"job": job, "data": data or {}}, **entry}
    with server.client(token) as client:
        answer = client.post(f"queues/{queue}/messages", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


def stats(server, queue):
    with server.client() as client:
        return client.get(f"queues/{queue}").json()["stats"]


def peeks(server, queue):
    """Whether the broker shows messages without reserving them."""
    with server.client() as client:
        return client.get(f"queues/{queue}/messages:peek").status_code == 200


def until(server, queue, **counts):
    """Wait until the broker reports these counts, which it may do late."""
    deadline = now_ms() + PATIENCE_MS
    while not counts.items() <= (found := stats(server, queue)).items():
        assert now_ms() < deadline, found


def test_messages_are_listed_and_shown(server, tab, queue):
    body = f'{{"job":"{JOB}","data":{{"total":1.10,"id":12345678901234567890}}}}'
    with server.client() as client:
        made = client.post(
            f"queues/{queue}/messages", content=body, headers={"content-type": "application/json"}
        ).json()
    tab.go(f"queues/{queue}")
    assert tab.page.get_by_role("heading", level=1).inner_text() == queue
    if not peeks(server, queue):
        tab.page.get_by_text("cannot show messages without leasing them").wait_for()
        return
    tab.follow(tab.page.get_by_role("link", name=JOB))
    tab.page.get_by_role("region", name="Envelope").wait_for()
    assert '"total": 1.10' in tab.page.get_by_role("region", name="Envelope").inner_text()
    assert "12345678901234567890" in tab.page.get_by_role("region", name="Bytes").inner_text()
    assert made["id"] in tab.page.get_by_role("region", name="Bytes").inner_text()
    assert tab.page.get_by_role("region", name=re.compile("^Write 1: ")).count() >= 1
    assert stats(server, queue)["depth"] == 1


def test_publish_with_the_check_and_all_options(server, tab, queue, broker):
    tab.go(f"queues/{queue}/publish")
    tab.page.get_by_text("The gateway would accept it").wait_for()
    tab.page.get_by_label("Message").fill('{"job": "", "data": []}')
    wrong = tab.page.locator("#check .bad")
    wrong.wait_for()
    assert "/data" in wrong.inner_text() or "/job" in wrong.inner_text()
    tab.page.get_by_label("Message").fill(json.dumps({"job": JOB, "data": {"a": 1}}))
    tab.page.get_by_text("The gateway would accept it").wait_for()
    tab.page.get_by_label("Delay in seconds").fill("many")
    tab.page.locator("#check .bad").get_by_text("delay_seconds").wait_for()
    tab.page.get_by_label("Delay in seconds").fill("0")
    has_keys = broker.keeps_keys
    if has_keys:
        tab.page.get_by_label("Idempotency key").fill("once")
    for times in (1, 2) if has_keys else (1,):
        tab.follow(tab.page.get_by_role("button", name="Publish"))
        notice = tab.page.get_by_text("Published the message" if times == 1 else "Nothing was published")
        notice.wait_for()
        tab.page.get_by_label("Message").fill(json.dumps({"job": JOB, "data": {"a": 1}}))
        if has_keys:
            tab.page.get_by_label("Idempotency key").fill("once")
    until(server, queue, depth=1)
    tab.page.get_by_label("Message").fill("{")
    tab.follow(tab.page.get_by_role("button", name="Publish"))
    tab.page.get_by_role("alert").wait_for()
    assert tab.page.get_by_label("Message").input_value() == "{"
    until(server, queue, depth=1)
    if not peeks(server, queue):
        return
    # Both pages offer the job as a template.
    tab.follow(tab.page.get_by_role("link", name="Publish", exact=True))
    tab.follow(tab.page.get_by_role("link", name=JOB))
    tab.page.wait_for_url(re.compile("job="))
    assert json.loads(tab.page.get_by_label("Message").input_value()) == {"job": JOB, "data": {"a": 1}}


def receive(tab, queue, lease="600"):
    tab.go(f"queues/{queue}/receive")
    tab.page.get_by_label("Lease in seconds").fill(lease)
    tab.page.get_by_role("button", name="Receive").click()
    # The lease is in the storage of the tab, too, once htmx is done with it.
    tab.page.locator(".lease:not(.htmx-added)").wait_for()
    return tab.page.locator(".lease")


def test_a_lease_survives_a_reload_and_is_acked(server, tab, queue):
    message = publish(server, queue)
    lease = receive(tab, queue, "300")
    assert message in lease.inner_text()
    assert re.search(r"leased for [345] min", lease.locator(".clock").inner_text())
    tab.page.reload()
    lease.wait_for()
    assert message in lease.inner_text()
    lease.get_by_label("Lease from now, in seconds").fill("660")
    lease.get_by_role("button", name="Extend").click()
    lease.locator(".clock").get_by_text(re.compile("leased for 1[01] min")).wait_for()
    lease.get_by_role("button", name="Ack", exact=True).click()
    tab.settled(f"Acked. Message {message}.")
    tab.page.locator("[role=status]:focus").wait_for()
    tab.page.reload()
    tab.page.get_by_role("button", name="Receive").wait_for()
    assert tab.page.locator(".lease").count() == 0
    until(server, queue, depth=0)


def test_a_nack_returns_and_the_last_one_dead_letters(server, tab, queue):
    publish(server, queue)
    lease = receive(tab, queue)
    lease.get_by_label("Reason of a nack or reject").fill(MARKUP)
    lease.get_by_label("Delay of a nack in seconds").fill("0")
    lease.get_by_role("button", name="Nack").click()
    tab.settled("Returned to the queue.")
    lease = receive(tab, queue)
    lease.get_by_role("button", name="Nack").click()
    tab.page.get_by_text("Dead-lettered: this was its last attempt.").wait_for()
    until(server, queue, dead=1, depth=0)


def test_a_reject_dead_letters_with_its_reason(server, tab, queue):
    publish(server, queue)
    lease = receive(tab, queue)
    lease.get_by_label("Reason of a nack or reject").fill("not ours")
    lease.get_by_role("button", name="Reject").click()
    tab.page.get_by_text("Dead-lettered. Message").wait_for()
    with server.client() as client:
        (letter,) = client.get(f"queues/{queue}/dead-letters").json()["dead_letters"]
    assert letter["error"] == "not ours"


def test_a_settle_without_a_lease_is_refused_in_words(server, tab, queue):
    publish(server, queue)
    lease = receive(tab, queue)
    lease.locator("input[name=ack_token]").nth(1).evaluate("each => { each.value = 'forged'; }")
    lease.get_by_role("button", name="Ack", exact=True).click()
    tab.page.locator("#trouble").get_by_text("The ack token").wait_for()
    assert lease.count() == 1
    tab.until(lambda: tab.errors)
    assert ["400" in each for each in tab.errors] == [True], "htmx reports the refusal, too"
    tab.errors.clear()


def test_nothing_is_ready(server, tab, queue):
    publish(server, queue)
    receive(tab, queue).get_by_role("button", name="Ack", exact=True).click()
    tab.settled("Acked.")
    tab.page.get_by_role("button", name="Receive").click()
    tab.page.get_by_text("No message is ready.").wait_for()
    if peeks(server, queue):
        tab.go(f"queues/{queue}")
        tab.page.get_by_text("No message is ready.").wait_for()


def test_a_purge_needs_the_name(server, tab, queue):
    publish(server, queue)
    publish(server, queue)
    tab.go(f"queues/{queue}")
    tab.follow(tab.page.get_by_role("link", name="Purge"))
    typed = tab.page.get_by_label(f"Type {queue} to confirm")
    typed.fill(f"{queue}x")
    tab.follow(tab.page.get_by_role("button", name="Purge the messages"))
    tab.page.get_by_role("alert").get_by_text("Nothing was removed.").wait_for()
    until(server, queue, depth=2)
    typed.fill(f" {queue} ")
    tab.follow(tab.page.get_by_role("button", name="Purge the messages"))
    tab.page.get_by_text(f"Purged: 2 messages of {queue} were removed.").wait_for()
    until(server, queue, depth=0)


def test_markup_stays_text(server, tab, queue):
    """In jobs, data and headers, on each page that shows them. The policy has nothing to report."""
    capable = {"headers": {"x-note": MARKUP}} if queue_has_headers(server, queue) else {}
    publish(server, queue, job=f"urn:{MARKUP}", data={MARKUP: MARKUP}, **capable)
    if peeks(server, queue):
        look_at_markup(tab, queue)
    lease = receive(tab, queue)
    assert MARKUP in lease.get_by_role("heading").inner_text()
    tab.page.reload()
    lease.wait_for()
    assert MARKUP in lease.get_by_role("heading").inner_text()
    assert tab.page.locator("main img, main script").count() == 0
    lease.get_by_role("button", name="Ack", exact=True).click()
    tab.page.get_by_text("Acked.").wait_for()
    tab.check()


def queue_has_headers(server, queue):
    with server.client() as client:
        return client.get(f"queues/{queue}").json()["capabilities"]["headers"]


def look_at_markup(tab, queue):
    tab.go(f"queues/{queue}")
    tab.follow(tab.page.get_by_role("link", name=f"urn:{MARKUP}"))
    tab.page.get_by_role("region", name="Envelope").wait_for()
    for summary in tab.page.locator("summary").all():
        summary.click()
    assert tab.page.locator("main img, main script").count() == 0
    assert MARKUP in tab.page.get_by_role("region", name="Go").inner_text().replace('\\"', '"')
    tab.follow(tab.page.get_by_role("link", name="Edit and publish"))
    tab.page.get_by_text("The gateway would accept it").wait_for()
    assert json.loads(tab.page.get_by_label("Message").input_value())["data"] == {MARKUP: MARKUP}
    assert tab.page.locator("main img, main script").count() == 0
