"""Who may do what to dead letters by the console, without a browser."""

from __future__ import annotations

import re
import time
from contextlib import contextmanager

import pytest

from tests.harness import console
from tests.harness.browser import PATIENCE_MS
from tests.harness.letters import bury, dead

QUEUE = "orders.paid"
BASE = f"console/queues/{QUEUE}/dead-letters"
BODY = '{"job": "urn:babel:test:other", "data": {}}'


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server over SQLite with dead letters in QUEUE; each token is called after the rights that it has there."""
    rights = {"listen": ["listen"], "send": ["send"], "manage": ["manage"], "both": ["listen", "manage"]}
    auth = console.tokens(
        all={"*": list(console.RIGHTS)},
        foreign={"other": list(console.RIGHTS)},
        **{name: {QUEUE: given} for name, given in rights.items()},
    )
    with console.console(tmp_path_factory.mktemp("letters"), auth=auth) as served, served.client("all") as client:
        bury(client, QUEUE, *"abcdef")
        client.post(
            f"queues/{QUEUE}/dead-letters:redrive", json={"background": True, "filter": {"job": "none"}}
        ).raise_for_status()
        deadline = time.monotonic() + PATIENCE_MS / 1_000
        # Tests compare the states of jobs before and after.
        while state(served)[1][0][1] == "running":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield served


@contextmanager
def user(server, token):
    """A browser of this user, and the CSRF token of its session."""
    with server.client() as client:
        form = client.get("console/sign-in")
        csrf = re.search(r'name="csrf" value="([^"]+)"', form.text)
        assert csrf is not None
        assert client.post("console/sign-in", data={"csrf": csrf[1], "token": token}).status_code == 303
        page = client.get("console/queues").text
        found = re.search(r'name="csrf" value="([^"]+)"', page)
        assert found is not None
        yield client, found[1]


def actions(server):
    """Each POST that changes something, by name: its path below BASE, and its form."""
    with server.client("all") as client:
        letter = dead(client, QUEUE)[0]["letter_id"]
        job = client.get(f"queues/{QUEUE}/redrives").json()["redrives"][0]["id"]
    return {
        "redrive one": (f"{letter}/redrive", {"to_queue": "elsewhere"}),
        "edit one": (f"{letter}/edit", {"body": BODY}),
        "delete one": (f"{letter}/delete", {}),
        "redrive many": ("redrive", {"limit": "1"}),
        "delete many": ("delete", {f"letter.{letter}": "1"}),
        "purge": ("purge", {"typed": QUEUE}),
        "cancel": (f"redrives/{job}/cancel", {}),
        "resume": (f"redrives/{job}/resume", {}),
    }


def state(server):
    with server.client("all") as client:
        jobs = client.get(f"queues/{QUEUE}/redrives").json()["redrives"]
        return [each["letter_id"] for each in dead(client, QUEUE)], [(job["id"], job["state"]) for job in jobs]


@pytest.mark.parametrize("token", ["listen", "send", "foreign"])
def test_each_action_needs_the_right_to_manage(server, token):
    before = state(server)
    with user(server, token) as (client, csrf):
        for name, (path, form) in actions(server).items():
            answer = client.post(f"{BASE}/{path}", data={"csrf": csrf, **form})
            assert (name, answer.status_code) == (name, 403), answer.text
            assert "the right &#39;manage&#39;" in answer.text or "the right &#39;send&#39;" in answer.text
    assert state(server) == before


def test_an_edit_and_another_queue_need_the_right_to_send_too(server):
    before = state(server)
    with user(server, "both") as (client, csrf):
        for name in ("redrive one", "edit one"):
            path, form = actions(server)[name]
            assert client.post(f"{BASE}/{path}", data={"csrf": csrf, **form}).status_code == 403
        check = client.post(f"{BASE}/{path.replace('edit', 'check')}", data={"csrf": csrf, "body": BODY})
        assert check.status_code == 403
    assert state(server) == before


@pytest.mark.parametrize("csrf", [None, "", "forged", "other"])
def test_each_action_needs_the_secret_of_its_session(server, csrf):
    before = state(server)
    with user(server, "all") as (client, _), user(server, "all") as (_, other):
        given = {} if csrf is None else {"csrf": other if csrf == "other" else csrf}
        for name, (path, form) in {**actions(server), "selected": ("selected", {"do": "delete"})}.items():
            answer = client.post(f"{BASE}/{path}", data={**given, **form})
            assert (name, answer.status_code) == (name, 403)
            assert "not one of this session" in answer.text
    assert state(server) == before


def test_each_action_is_refused_from_another_site(server):
    before = state(server)
    with user(server, "all") as (client, csrf):
        for path, form in actions(server).values():
            for fields in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
                answer = client.post(f"{BASE}/{path}", data={"csrf": csrf, **form}, headers=fields)
                assert answer.status_code == 403
    assert state(server) == before


@pytest.mark.parametrize(
    ("token", "pages", "status"),
    [
        ("listen", ["", "/list", "/{letter}"], 200),
        ("listen", ["/redrive", "/purge"], 403),
        ("manage", ["", "/list", "/{letter}"], 403),
        ("send", ["", "/list", "/{letter}"], 403),
        ("foreign", ["", "/list", "/{letter}", "/redrive", "/purge"], 403),
        ("both", ["", "/list", "/{letter}", "/redrive", "/purge"], 200),
    ],
)
def test_pages_need_rights(server, token, pages, status):
    letter = state(server)[0][0]
    with user(server, token) as (client, _):
        for page in pages:
            answer = client.get(BASE + page.format(letter=letter))
            assert (page, answer.status_code) == (page, status)
            if status == 403:
                assert letter not in answer.text


def test_only_what_is_possible_is_shown(server):
    letter = state(server)[0][0]
    for token, shown in (("listen", False), ("all", True)):
        with user(server, token) as (client, _):
            for page in ("", "/list", f"/{letter}"):
                text = client.get(BASE + page).text
                assert (token, page, "edrive" in text.partition("<main")[2].partition("Redrives</h2>")[0]) == (
                    token,
                    page,
                    shown,
                )
                assert ("Purge" in text, "Delete" in text) == (shown and page == "", shown and page != "")
    with user(server, "both") as (client, _):
        assert "Edit and redrive" not in client.get(f"{BASE}/{letter}").text
    with user(server, "foreign") as (client, _):
        assert QUEUE not in client.get("console/dead-letters").text
    with user(server, "listen") as (client, _):
        assert QUEUE in client.get("console/dead-letters").text


def test_read_only_shows_and_refuses_all(tmp_path):
    with console.console(tmp_path, console={"read_only": True}) as served, served.client() as client:
        bury(client, QUEUE, "a")
        letter = dead(client, QUEUE)[0]["letter_id"]
        page = client.get(f"{BASE}/{letter}")
        assert page.status_code == 200 and "<button class" not in page.text
        csrf = served_csrf(served, client)
        for path, form in (
            (f"{letter}/redrive", {}),
            (f"{letter}/edit", {"body": BODY}),
            (f"{letter}/delete", {}),
            ("redrive", {}),
            ("delete", {f"letter.{letter}": "1"}),
            ("purge", {"typed": QUEUE}),
        ):
            answer = client.post(f"{BASE}/{path}", data={"csrf": csrf, **form})
            assert answer.status_code == 403 and "read-only" in answer.text
        assert len(dead(client, QUEUE)) == 1


def served_csrf(served, client):
    """The CSRF token of the session in the cookie of ``client``."""
    from babelgate.clock import now_ms
    from babelgate.config.token_keys import token_keys
    from babelgate.console.sessions import SESSION_COOKIE, Sessions

    session = Sessions(token_keys(served.settings), now_ms).open(client.cookies[SESSION_COOKIE])
    assert session is not None
    return session.csrf


@pytest.mark.parametrize(
    ("path", "form", "words"),
    [
        ("redrive", {"limit": "0"}, "limit"),
        ("redrive", {"per_second": "x"}, "per_second"),
        ("redrive", {"after": "yesterday"}, "after"),
        ("redrive", {"before": "0001-01-01T00:00"}, "before"),
        ("redrive", {"to_queue": "a b"}, "to_queue"),
    ],
)
def test_a_bad_value_is_refused_in_words(server, path, form, words):
    before = state(server)
    with user(server, "all") as (client, csrf):
        answer = client.post(f"{BASE}/{path}", data={"csrf": csrf, **form})
        assert answer.status_code == 400 and words in answer.text
    assert state(server) == before


def test_a_large_letter_is_shown_in_part_and_edited_whole(server):
    text = '"<&' * 250_000
    with server.client("all") as api:
        bury(api, "large", "x", data={"text": text})
        letter = dead(api, "large")[0]["letter_id"]
        with user(server, "all") as (client, csrf):
            base = f"console/queues/large/dead-letters/{letter}"
            page = client.get(base)
            assert "The first 20,000 characters. " in page.text and len(page.content) < 6 * 50_000
            body = '{"job": "urn:babel:test:other", "data": {"text": "' + "é" * 400_000 + '"}}'
            answer = client.post(f"{base}/edit", data={"csrf": csrf, "body": body})
            assert answer.status_code == 303, answer.text[:2_000]
        assert dead(api, "large") == []
