"""The page of tokens: made, shown once, rotated, revoked; who sees it, and which forms are refused."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.console.test_guards import csrf_of, sign_in
from tests.harness import console
from tests.harness.console import RIGHTS, WIDTHS, tokens

SECRET = re.compile(r"bg_[0-9A-Za-z]{36}")
DRAFT = {"job": "urn:babel:test:made", "data": {}}
BOSS = {"shop.*": ["manage", "send"]}


@pytest.fixture(scope="module")
def trail(tmp_path_factory):
    """The directory of the audit trail."""
    return tmp_path_factory.mktemp("audit")


@pytest.fixture(scope="module")
def server(tmp_path_factory, trail):
    """``all`` may do everything, ``boss`` manages ``shop.*``, ``reader`` may only listen."""
    auth = tokens(all={"*": list(RIGHTS)}, boss=BOSS, reader={"*": ["listen"]})
    with console.console(tmp_path_factory.mktemp("made"), auth=auth, audit={"directory": str(trail)}) as served:
        yield served


def form(name, **fields):
    return {"name": name, "rights": "shop.* send", "days": "1", **fields}


def post(user, path, **fields):
    return user.post(f"console/{path}", data={"csrf": csrf_of(user.get("console/tokens")), **fields})


def status(server, secret, **headers):
    with server.client(secret, headers=headers) as client:
        return client.post("queues/shop.a/messages", json=DRAFT).status_code


def listed(server):
    with server.client("all") as client:
        return {each["name"]: each for each in client.get("tokens").json()["tokens"]}


def test_a_token_from_its_first_to_its_last_day(server, trail):
    with server.client() as user:
        sign_in(user, "boss")
        made = post(user, "tokens", **form("daily"))
        assert made.status_code == 200 and made.headers["cache-control"] == "no-store"
        (secret,) = SECRET.findall(made.text)
        assert status(server, secret) == 201
        assert not SECRET.search(user.get("console/tokens").text), "it is shown once"
        token = listed(server)["daily"]
        assert token["created_by"] == "boss" and token["rights"] == {"shop.*": ["send"]}
        rotated = post(user, f"tokens/{token['id']}/rotate", overlap_minutes="0")
        (new,) = SECRET.findall(rotated.text)
        assert [status(server, each) for each in (secret, new)] == [401, 201]
        again = user.get(f"console/tokens/{token['id']}/rotate")
        assert again.status_code == 200 and not SECRET.search(again.text)
        revoked = post(user, f"tokens/{token['id']}/revoke")
        assert revoked.status_code == 303
        assert "is revoked" in user.get("console/tokens").text
        assert status(server, new) == 401 and "daily" not in listed(server)
        assert (
            "no token"
            in user.post(
                f"console/tokens/{token['id']}/revoke", data={"csrf": csrf_of(user.get("console/tokens"))}
            ).text.lower()
        )
    lines = "".join(path.read_text() for path in trail.rglob("*") if path.is_file())
    assert token["id"] in lines and secret not in lines and new not in lines


def test_a_token_of_a_page(server):
    with server.client() as user:
        sign_in(user, "all")
        page = form("clicks", origins="https://shop.example\nhttps://other.example", per_minute="1")
        (secret,) = SECRET.findall(post(user, "tokens", **page).text)
        assert listed(server)["clicks"]["page"] == {
            "origins": ["https://shop.example", "https://other.example"],
            "per_minute": 1,
            "max_message_bytes": 16_384,
        }
        assert status(server, secret) == 403
        answers = [status(server, secret, origin="https://shop.example") for _ in range(2)]
        assert answers == [201, 429]
        shown = user.get("console/tokens").text
        assert "web page" in shown and "https://other.example" in shown


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": "a b"}, "name"),
        ({"name": "all"}, "name"),
        ({"rights": ""}, "rights"),
        ({"rights": "shop.* own"}, "rights"),
        ({"rights": "shop.*"}, "rights"),
        ({"rights": "shop.* send\n=send"}, "rights"),
        ({"days": ""}, "days"),
        ({"days": "-1"}, "days"),
        ({"days": "1e9"}, "days"),
        ({"days": "nan"}, "days"),
        ({"days": "9" * 400}, "days"),
        ({"days": "1_0"}, "days"),
        ({"days": "\u0661"}, "days"),
        ({"origins": "shop.example"}, "origins"),
        ({"per_minute": "5"}, "origins"),
        ({"origins": "https://a.example", "per_minute": "0"}, "per_minute"),
        ({"origins": "https://a.example", "max_message_bytes": "1.5"}, "max_message_bytes"),
        ({"origins": "https://a.example", "rights": "shop.* send listen"}, "rights"),
    ],
)
def test_a_fault_is_at_its_field(server, fields, field):
    with server.client() as user:
        sign_in(user, "all")
        answer = post(user, "tokens", **form("faulty") | fields)
        assert answer.status_code in (400, 409)
        assert re.search(rf'id="{field}-fault">[^<]+<', answer.text), answer.text
        assert not SECRET.search(answer.text) and "faulty" not in listed(server)
        # What was typed is still there.
        assert 'value="faulty"' in answer.text or "name" in fields


def test_nobody_grants_what_he_does_not_have(server):
    with server.client() as user:
        sign_in(user, "boss")
        for rights in ("shop.* listen", "* send", "other send"):
            answer = post(user, "tokens", **form("more", rights=rights))
            assert answer.status_code == 403 and "which you do not have" in answer.text
        with server.client("all") as client:
            order = {"name": "foreign", "rights": {"other": ["send"]}, "ttl_seconds": 60}
            foreign = client.post("tokens", json=order).json()["token"]["id"]
        assert "foreign" not in user.get("console/tokens").text
        for verb in ("revoke", "rotate"):
            assert post(user, f"tokens/{foreign}/{verb}", overlap_minutes="1").status_code == 404
    assert "foreign" in listed(server) and "more" not in listed(server)


def test_only_who_manages_is_led_there(server, free):
    for token, expected in (("all", True), ("boss", True), ("reader", False)):
        with server.client() as user:
            sign_in(user, token)
            assert (">Tokens</a>" in user.get("console/").text) is expected
            assert user.get("console/tokens").status_code == (200 if expected else 403)
    with free.client() as anyone:
        assert ">Tokens</a>" not in anyone.get("console/").text
        assert anyone.get("console/tokens").status_code == 404


def test_forms_of_others_are_refused(server):
    with server.client() as user:
        sign_in(user, "all")
        for csrf in ("", "x"):
            answer = user.post("console/tokens", data=form("forged") | {"csrf": csrf})
            assert answer.status_code == 403
        foreign = user.post(
            "console/tokens",
            data=form("forged") | {"csrf": csrf_of(user.get("console/tokens"))},
            headers={"sec-fetch-site": "cross-site", "origin": "https://evil.example"},
        )
        assert foreign.status_code == 403
    assert "forged" not in listed(server)


def test_a_console_that_is_read_only_shows_them(tmp_path):
    auth = tokens(all={"*": list(RIGHTS)})
    with (
        console.console(tmp_path, auth=auth, console={"read_only": True}) as served,
        served.client() as user,
    ):
        sign_in(user)
        page = user.get("console/tokens")
        assert page.status_code == 200 and "Make the token" not in page.text
        answer = user.post("console/tokens", data=form("x") | {"csrf": csrf_of(page)})
        assert answer.status_code == 403 and listed(served) == {}


@pytest.mark.browser
@pytest.mark.parametrize(("dark", "width"), [(False, WIDTHS["wide"]), (True, WIDTHS["narrow"])])
def test_in_a_browser(server, open_tab, dark, width):
    tab = open_tab(server, dark=dark, width=width).go("tokens").sign_in("all")
    page, name = tab.page, f"browser.{width}"
    page.get_by_label("Name of the holder").fill(name)
    page.get_by_label("Rights").fill("shop.* send")
    tab.follow(page.get_by_role("button", name="Make the token"))
    expect(page.get_by_text("It is not shown again.")).to_be_visible()
    expect(page.locator("#code-secret")).to_have_text(SECRET)
    assert (tab.axe(), tab.overflow()) == ([], 0)
    page.get_by_role("row").filter(has_text=name).get_by_text("Change").click()
    assert (tab.axe(), tab.overflow()) == ([], 0)
    tab.follow(page.get_by_role("row").filter(has_text=name).get_by_role("button", name="Revoke"))
    expect(page.get_by_text(f"The token {name} is revoked.")).to_be_visible()
    tab.check()
