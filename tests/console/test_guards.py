"""Who gets to a page, and which requests of a browser are refused, without a browser."""

from __future__ import annotations

import hashlib
import re
from functools import partial

import pytest

from babelgate.clock import now_ms
from babelgate.config.token_keys import token_keys
from babelgate.console.sessions import SESSION_COOKIE, SESSION_SECONDS, Sessions
from babelgate.console.site import POLICY
from tests.harness import console
from tests.harness.console import tokens

SAME = {"sec-fetch-site": "same-origin"}


def csrf_of(page):
    found = re.search(r'name="csrf" value="([^"]+)"', page.text)
    assert found is not None
    return found[1]


def sign_in(client, token="all", to="", **headers):
    """The answer to the form of ``client``, which keeps its cookies."""
    csrf = csrf_of(client.get("console/sign-in"))
    return client.post("console/sign-in", data={"csrf": csrf, "token": token, "to": to}, headers=headers)


@pytest.fixture
def client(guarded):
    with guarded.client() as opened:
        yield opened


@pytest.fixture
def user(client):
    assert sign_in(client).status_code == 303
    return client


def cookie(answer, name=SESSION_COOKIE):
    (found,) = [each for each in answer.headers.get_list("set-cookie") if each.startswith(f"{name}=")]
    return found


def test_each_page_needs_a_session(client):
    for page in ("", "queues", "queues?after=x"):
        answer = client.get(f"console/{page}")
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("./sign-in")
    assert client.get("console").headers["location"] == "console/"
    fragment = client.get("console/queues", headers={"hx-request": "true"})
    assert fragment.status_code == 401 and "session has ended" in fragment.text
    assert client.get("console/queues", headers={"authorization": "Bearer all"}).status_code == 303


def test_all_answers_have_the_policy(user):
    for page in ("", "sign-in", "queues", "nothing", "queues?after=%00"):
        answer = user.get(f"console/{page}")
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-frame-options"] == "DENY" and answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert "unsafe" not in POLICY and "frame-ancestors 'none'" in POLICY


def test_the_cookie_is_kept_from_scripts_and_other_sites(client):
    found = cookie(sign_in(client))
    assert re.fullmatch(
        rf"{SESSION_COOKIE}=[\w-]+; Path=/console; Max-Age={SESSION_SECONDS}; HttpOnly; SameSite=Strict", found
    )
    # The token is not in it, and neither is its hash in a form that anyone can read.
    assert "all" not in found.partition(";")[0]


def test_behind_tls_the_cookie_is_secure(client):
    answer = sign_in(client, origin="https://mq.example.org", host="mq.example.org")
    assert answer.status_code == 303 and cookie(answer).endswith("; Secure")


@pytest.mark.parametrize("token", ["wrong", "", "ALL", "é" * 1000])
def test_a_wrong_token_opens_nothing(client, token):
    answer = sign_in(client, token)
    assert answer.status_code == 401 and not answer.headers.get_list("set-cookie")
    assert client.get("console/queues").status_code == 303


@pytest.mark.parametrize("value", ["", "x", "AAAA", "é", "A" * 5000, None])
def test_a_forged_cookie_is_none(user, value):
    known = user.cookies[SESSION_COOKIE]
    changed = known[:-1] + ("A" if known[-1] != "A" else "Q") if value is None else value
    for forged in (changed, known[:20] + ("A" if known[20] != "A" else "B") + known[21:]):
        fields = {"cookie": f"{SESSION_COOKIE}={forged}".encode()}
        user.cookies.clear()
        assert user.get("console/queues", headers=fields).status_code == 303


def test_a_session_ends(guarded, client):
    keys = token_keys(guarded.settings)
    credential = hashlib.sha256(b"all").hexdigest()
    for age, status in ((SESSION_SECONDS - 60, 200), (SESSION_SECONDS, 303)):
        began = now_ms() - age * 1_000
        sessions = Sessions(keys, partial(int, began))
        value = sessions.seal(sessions.begin(credential))
        client.cookies.clear()
        answer = client.get("console/queues", headers={"cookie": f"{SESSION_COOKIE}={value}"})
        assert answer.status_code == status


def test_a_session_of_a_token_that_was_removed_is_none(guarded, client):
    sessions = Sessions(token_keys(guarded.settings), now_ms)
    value = sessions.seal(sessions.begin("0" * 64))
    assert client.get("console/queues", headers={"cookie": f"{SESSION_COOKIE}={value}"}).status_code == 303


def test_the_sign_out_ends_the_session(user):
    csrf = csrf_of(user.get("console/queues"))
    answer = user.post("console/sign-out", data={"csrf": csrf})
    assert answer.status_code == 303
    assert "Max-Age=0" in cookie(answer)
    assert user.get("console/queues").status_code == 303


@pytest.mark.parametrize("given", [None, "", "x" * 32, "é", "other"])
def test_a_form_without_the_token_of_the_session_does_nothing(guarded, user, given):
    if given == "other":
        with guarded.client() as other:
            given = csrf_of(other.get("console/sign-in"))
    answer = user.post("console/sign-out", data={} if given is None else {"csrf": given})
    assert (answer.status_code, "not one of this session" in answer.text) == (403, True)
    assert user.get("console/queues").status_code == 200


def test_the_token_of_the_session_may_come_in_a_header(user):
    csrf = csrf_of(user.get("console/queues"))
    answer = user.post("console/sign-out", data={"x": "y"}, headers={"x-csrf-token": csrf})
    assert answer.status_code == 303


def test_the_form_of_the_sign_in_is_one_of_a_session(guarded):
    with guarded.client() as client:
        assert client.post("console/sign-in", data={"token": "all"}).status_code == 403
        csrf = csrf_of(client.get("console/sign-in"))
        client.cookies.clear()
        assert client.post("console/sign-in", data={"token": "all", "csrf": csrf}).status_code == 403


@pytest.mark.parametrize(
    "foreign",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": ""},
    ],
    ids=str,
)
def test_a_post_of_another_origin_is_refused(guarded, free, user, foreign):
    csrf = csrf_of(user.get("console/queues"))
    assert user.post("console/sign-out", data={"csrf": csrf}, headers=foreign).status_code == 403
    assert user.get("console/queues").status_code == 200
    with free.client() as anyone:
        anyone.get("console/")
        assert anyone.post("console/sign-out", data={"csrf": "x"}, headers=foreign).status_code == 403


@pytest.mark.parametrize("own", [SAME, {"origin": "http://localhost:1"}, {"origin": "{own}"}, {}], ids=str)
def test_a_post_of_the_same_origin_is_served(guarded, user, own):
    csrf = csrf_of(user.get("console/queues"))
    fields = {name: value.format(own=guarded.url) for name, value in own.items()}
    assert user.post("console/sign-out", data={"csrf": csrf}, headers=fields).status_code == 303


def test_a_link_from_elsewhere_opens_the_page_again(guarded, user):
    """The browser keeps the cookie back, because it is SameSite=Strict, and sends it when the page opens itself."""
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    with guarded.client() as without:
        answer = without.get("console/queues", headers=link)
    assert answer.status_code == 200 and 'http-equiv="refresh"' in answer.text and "csrf" not in answer.text
    assert not answer.headers.get_list("set-cookie")
    for dest in ("iframe", "empty", "image"):
        assert user.get("console/queues", headers=link | {"sec-fetch-dest": dest}).status_code == 403


def test_without_credentials_a_foreign_host_is_refused(free):
    with free.client() as anyone:
        for fields in ({"host": "evil.example"}, {"sec-fetch-site": "cross-site"}):
            answer = anyone.get("console/queues", headers=fields)
            assert (answer.status_code, "name of this service" in answer.text or "other sites" in answer.text) == (
                403,
                True,
            )


@pytest.mark.parametrize(
    ("to", "location"),
    [
        ("queues", "./queues"),
        ("queues/a.b?after=x&q=%C3%A9", "./queues/a.b?after=x&q=%C3%A9"),
        ("javascript:alert(1)", "./"),
        ("javascript:alert", "./javascript:alert"),
        ("//evil.example", "./"),
        ("/evil", "./"),
        ("..//evil", "./"),
        ("../../queues", "./"),
        ("https://evil.example", "./"),
        ("\\\\evil", "./"),
        ("a\r\nset-cookie: x=y", "./"),
    ],
)
def test_the_sign_in_leads_to_no_other_place(client, to, location):
    answer = sign_in(client, to=to)
    assert (answer.status_code, answer.headers["location"]) == (303, location)
    assert client.get("console/sign-in", params={"to": to}).headers["location"] == location


def test_what_is_no_form_is_refused(user):
    csrf = csrf_of(user.get("console/queues"))
    fields = {"x-csrf-token": csrf}
    for body, status in ((b"{}", 415), (b"a=%ff", 400), (b"x" * 70_000, 413)):
        kind = "application/json" if body == b"{}" else "application/x-www-form-urlencoded"
        answer = user.post("console/sign-out", content=body, headers=fields | {"content-type": kind})
        assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert user.request("GET", "console/queues", content=b"x").status_code == 413


def test_unknown_paths_and_methods(user):
    assert user.get("console/nothing").status_code == 404
    assert user.get("consoles").status_code == 401
    answer = user.delete("console/queues")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")
    head = user.head("console/queues")
    assert (head.status_code, head.content) == (200, b"")


def test_the_document_of_the_api_has_no_page(user):
    assert not [path for path in user.get("openapi.json").json()["paths"] if "console" in path]


def test_behind_a_prefix(tmp_path):
    auth = tokens(all={"*": list(console.RIGHTS)})
    with console.console(tmp_path, auth=auth, prefix="/mq/v1") as server, server.client() as client:
        answer = sign_in(client, to="queues")
        assert "; Path=/mq/v1/console;" in cookie(answer)
        assert client.get("console/queues").status_code == 200


@pytest.mark.parametrize(
    ("config", "status"),
    [
        ({}, 200),
        ({"auth": "none"}, 200),
        ({"auth": "none", "host": "0.0.0.0"}, 404),
        ({"auth": "none", "host": "0.0.0.0", "console": {"enabled": True}}, 200),
        ({"auth": tokens(all={"*": ["send"]}), "host": "0.0.0.0"}, 303),
        ({"auth": tokens(all={"*": ["send"]}), "console": {"enabled": False}}, 401),
        ({"console": {"enabled": False}}, 404),
    ],
    ids=str,
)
def test_where_it_is_served(tmp_path, config, status):
    with console.console(tmp_path, **config) as server, server.client() as client:
        assert client.get("console/queues").status_code == status
