"""Each action on a queue with each right, without a browser: what is refused, and changes nothing."""

from __future__ import annotations

import json

import pytest

from tests.console.test_guards import csrf_of, sign_in
from tests.harness import console
from tests.harness.console import RIGHTS, tokens
from tests.harness.webhooks import SECRET

BODY = json.dumps({"job": "a:b", "data": {}})
ACTIONS = {
    "publish": ("send", {"body": BODY}),
    "publish/check": ("send", {"body": BODY}),
    "receive": ("listen", {}),
    "settle": ("listen", {"action": "ack", "ack_token": "x"}),
    "purge": ("manage", {"typed": "{queue}"}),
    "pause": ("manage", {"publishes": "refuse"}),
    "resume": ("manage", {}),
    "push": ("manage", {"url": "https://shop.example/", "secrets": SECRET}),
    "push/remove": ("manage", {}),
    "push/pause": ("manage", {}),
    "push/resume": ("manage", {}),
    "push/test": ("manage", {}),
}
PAGES = {
    "publish": "send",
    "purge": "manage",
    "pause": "manage",
    "push": "manage",
    "receive": "listen",
    "messages/0": "listen",
    "messages/0/body": "listen",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    auth = tokens(all={"*": list(RIGHTS)}, **{right: {"own.*": [right]} for right in RIGHTS})
    with console.console(tmp_path_factory.mktemp("rights"), auth=auth) as opened, opened.client("all") as client:
        for queue in ("own.a", "foreign"):
            assert client.post(f"queues/{queue}/messages", json=json.loads(BODY)).status_code == 201
        yield opened


def depth(server, queue):
    with server.client("all") as client:
        stats = client.get(f"queues/{queue}").json()["stats"]
        pause = client.get(f"queues/{queue}").json()["pause"]
    return stats["depth"], stats["in_flight"], pause


def form_of(action, queue):
    return {
        name: value.format(queue=queue) if value == "{queue}" else value for name, value in ACTIONS[action][1].items()
    }


@pytest.mark.parametrize("right", RIGHTS)
@pytest.mark.parametrize("queue", ["own.a", "foreign"])
def test_an_action_needs_its_right(server, right, queue):
    before = depth(server, queue)
    with server.client() as client:
        sign_in(client, right)
        csrf = csrf_of(client.get("console/queues"))
        for action, (needed, _) in ACTIONS.items():
            if queue == "foreign" or needed != right:
                form = {"csrf": csrf, **form_of(action, queue)}
                answer = client.post(f"console/queues/{queue}/{action}", data=form)
                assert (answer.status_code, "This needs the right" in answer.text) == (403, True), action
                assert depth(server, queue) == before, action


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("csrf", [None, "forged"])
def test_an_action_needs_a_form_of_the_session(server, action, csrf):
    before = depth(server, "own.a")
    with server.client() as client:
        sign_in(client, "all")
        form = form_of(action, "own.a") | ({} if csrf is None else {"csrf": csrf})
        assert client.post(f"console/queues/own.a/{action}", data=form).status_code == 403
        own = csrf_of(client.get("console/queues"))
        foreign = {"origin": "https://evil.example"}
        answer = client.post(f"console/queues/own.a/{action}", data=form | {"csrf": own}, headers=foreign)
        assert answer.status_code == 403
    assert depth(server, "own.a") == before


@pytest.mark.parametrize("right", RIGHTS)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_needs_its_right(server, right, page):
    with server.client() as client:
        sign_in(client, right)
        answer = client.get(f"console/queues/own.a/{page}")
        allowed = 404 if page.startswith("messages") else 200
        assert answer.status_code == (allowed if PAGES[page] == right else 403)
        assert client.get(f"console/queues/foreign/{page}").status_code == 403
        assert client.get("console/queues/own.a").status_code == 200
        assert client.get("console/queues/foreign").status_code == 403


@pytest.mark.parametrize("action", ACTIONS)
def test_read_only_refuses_all_but_the_check(tmp_path, action):
    with console.console(tmp_path, console={"read_only": True}) as server, server.client() as client:
        csrf = csrf_of(client.get("console/queues/orders/publish"))
        answer = client.post(f"console/queues/orders/{action}", data={"csrf": csrf, **form_of(action, "orders")})
        assert answer.status_code == (200 if action == "publish/check" else 403)
        assert client.get("queues/orders").json()["stats"]["depth"] == 0


@pytest.mark.parametrize(
    ("action", "form", "words"),
    [
        ("publish", {"body": BODY, "delay_seconds": "-1"}, "delay_seconds"),
        ("publish", {"body": BODY, "idempotency_key": "é"}, "printable ASCII"),
        ("publish", {"body": BODY, "broker_properties": "["}, "JSON object"),
        ("publish", {"body": BODY, "broker_properties": '{"TimeToLive": "x"}'}, "TimeToLive"),
        ("receive", {"max_messages": "11"}, "1 to 10"),
        ("receive", {"lease_seconds": "0"}, "lease_seconds"),
        ("settle", {"action": "explode", "ack_token": "x"}, "action"),
        ("settle", {"action": "nack", "ack_token": "x", "delay_seconds": "nan"}, "delay_seconds"),
        ("settle", {"action": "extend", "ack_token": "x", "lease_seconds": "1e9"}, "lease_seconds"),
        ("settle", {"action": "ack", "ack_token": ""}, "acks"),
        ("settle", {"action": "ack", "ack_token": "x"}, "ack token"),
        ("purge", {"typed": ""}, "Nothing was removed"),
        ("pause", {"publishes": "drop"}, "accept or refuse"),
        ("pause", {"reason": "x" * 501}, "500 characters"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_form_that_is_wrong_is_refused_in_words(server, action, form, words):
    before = depth(server, "own.a")
    with server.client() as client:
        sign_in(client, "all")
        csrf = csrf_of(client.get("console/queues"))
        answer = client.post(f"console/queues/own.a/{action}", data={"csrf": csrf, **form})
        assert (answer.status_code in (400, 422), words in answer.text) == (True, True), answer.text
    assert depth(server, "own.a") == before
