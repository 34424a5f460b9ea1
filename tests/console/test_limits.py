"""The limits on the page of a queue: what is allowed, and what is in use now."""

from __future__ import annotations

import re

import pytest

from tests.console.test_guards import sign_in
from tests.harness import console

RATES = {"requests_per_second": 0.001, "messages_per_second": 0.001, "burst_seconds": 20_000}
OWN = {"max_leases": 3, "max_receives": 2, "max_streams": 1, "max_message_bytes": 5_000}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    auth = console.tokens(operator={"*": ["manage", "listen"]}, shop={"*": ["send", "listen"]}, look={"*": ["observe"]})
    route = {"broker": "local", "limits": {**RATES, "max_depth": 2, "per_identity": OWN}}
    queues = {"limited": route, "free": {"broker": "local"}}
    with console.console(tmp_path_factory.mktemp("limits"), auth=auth, queues=queues) as opened:
        with opened.client("shop") as client:
            for _ in range(2):
                made = {"job": "a:b", "data": {}}
                assert client.post("queues/limited/messages", json=made).status_code == 201
            answer = client.post("queues/limited/messages:receive", json={"lease_seconds": 3600})
            assert len(answer.json()["messages"]) == 1
        yield opened


def rows(server, token, queue="limited"):
    """The cells of the table of limits."""
    with server.client() as client:
        sign_in(client, token)
        page = client.get(f"console/queues/{queue}", headers={"hx-request": "true"}).text
    _, _, table = page.partition('aria-label="Limits"')
    found = re.findall(r'<tr>\s*<th scope="row">(.*?)</th><td>(.*?)</td>\s*<td>(.*?)</td>\s*<td.*?>(.*?)</td>', table)
    return {(what, whose): (allowed, now) for what, whose, allowed, now in found}


def test_a_caller_sees_his_own_limits(server):
    own = "you, on this queue"
    assert rows(server, "shop") == {
        ("Receives", own): ("2 at a time", "0"),
        ("Streams", own): ("1 at a time", "0"),
        ("Messages handed out, not settled", own): ("3 at a time", "1"),
        ("Bytes of a message", own): ("5,000", "–"),
    }
    assert rows(server, "shop", "free") == {}


@pytest.mark.parametrize("token", ["operator", "look"])
def test_operators_see_those_of_the_queue(server, token):
    found, whose = rows(server, token), "all callers, on this queue"
    assert found["Messages handed out, not settled", "you, on this queue"] == ("3 at a time", "0")
    # Two publishes and a receive were requests.
    assert found["Requests", whose] == ("0.001 a second, 20 at once", "17 may come")
    assert found["Messages published", whose] == ("0.001 a second, 20 at once", "18 may come")
    assert found["Messages ready and delayed", whose] == ("2", "1")


@pytest.mark.browser
def test_the_table_fits_its_page(server, open_tab):
    tab = open_tab(server).go("queues/limited").sign_in("operator")
    tab.page.get_by_role("region", name="Limits").wait_for()
    assert (tab.axe(), tab.overflow()) == ([], 0)
    tab.check()
