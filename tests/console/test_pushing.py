"""The push of a queue in a real browser: set, watched, tested, paused, changed, removed; whom it is shown to."""

from __future__ import annotations

import http.server
import re
import threading
from contextlib import contextmanager

import pytest
from playwright.sync_api import expect

from tests.console.test_guards import csrf_of, sign_in
from tests.console.test_queue import MARKUP, publish
from tests.harness import console
from tests.harness.console import RIGHTS, WIDTHS
from tests.harness.local import free_port
from tests.harness.webhooks import SECRET

pytestmark = pytest.mark.browser

ANYWHERE = {"allow_http": True, "allow_private": True}
OTHER_SECRET = "whsec_" + "B" * 43 + "="


class Hook(http.server.ThreadingHTTPServer):
    """A receiver that answers ``status`` and MARKUP. ``posts``: the headers of each post."""

    def __init__(self):
        self.status = 204
        self.posts: list[dict[str, str]] = []
        hook = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["content-length"]))
                hook.posts.append(dict(self.headers))
                body = MARKUP.encode() if hook.status != 204 else b""
                self.send_response(hook.status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                """Nothing."""

        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/hook?key=sesame"


@contextmanager
def opened():
    with Hook() as hook:
        thread = threading.Thread(target=hook.serve_forever)
        thread.start()
        try:
            yield hook
        finally:
            hook.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with console.console(tmp_path_factory.mktemp("pushing"), push=ANYWHERE) as served:
        yield served


def button(tab, name):
    return tab.page.get_by_role("button", name=name, exact=True)


def push_of(server, queue):
    with server.client() as client:
        answer = client.get(f"queues/{queue}/push")
    return answer.json() if answer.status_code == 200 else None


@pytest.mark.parametrize(("dark", "width"), [(False, WIDTHS["wide"]), (True, WIDTHS["narrow"])])
def test_a_push_from_its_first_to_its_last_day(server, open_tab, queue, dark, width):
    with opened() as hook:
        tab = open_tab(server, dark=dark, width=width).go(f"queues/{queue}")
        page = tab.page
        tab.follow(page.get_by_role("link", name="Push", exact=True))
        expect(page.get_by_text("posted to no webhook")).to_be_visible()
        assert (tab.axe(), tab.overflow()) == ([], 0)
        page.get_by_label("Address").fill(hook.url)
        page.get_by_label("Secrets").fill(f"{SECRET}\n{OTHER_SECRET}")
        page.get_by_label("More headers").fill("X-Token: sesame\nauthorization: Bearer a:b")
        page.get_by_label("Posts at a time").fill("2")
        tab.follow(button(tab, "Set the push"))
        expect(page.get_by_text("The push was set.")).to_be_visible()
        publish(server, queue)
        now = page.locator("#push-now")
        # It comes without a reload.
        expect(now).to_contain_text(re.compile(r"Acked\s*1"))
        expect(now).to_contain_text("running")
        assert (hook.posts[0]["x-token"], hook.posts[0]["authorization"]) == ("sesame", "Bearer a:b")
        assert hook.posts[0]["webhook-signature"].count("v1,") == 2
        for secret in ("sesame", SECRET, OTHER_SECRET, "Bearer"):
            assert secret not in page.content().replace("Bearer …", "")
        hook.status = 410
        publish(server, queue)
        expect(now.get_by_role("region", name="Latest failures")).to_contain_text(f"HTTP 410: {MARKUP}")
        assert (tab.axe(), tab.overflow(), page.locator("main img, main script").count()) == ([], 0, 0)
        tab.follow(button(tab, "Test"))
        expect(page.get_by_text("The target answered the test with 410")).to_be_visible()
        expect(page.locator(".notice.bad[role=status]:not(#trouble)")).to_contain_text(MARKUP)
        assert (tab.axe(), page.locator("main img, main script").count()) == ([], 0)
        # The figures under the answer of the test move, too.
        hook.status = 204
        publish(server, queue)
        expect(now).to_contain_text(re.compile(r"Acked\s*2"))
        tab.follow(button(tab, "Test"))
        expect(page.get_by_text("The target answered the test with 204")).to_be_visible()
        assert hook.posts[-1]["webhook-id"].startswith("test_")
        tab.follow(button(tab, "Pause the push"))
        expect(page.get_by_text("The push was paused.")).to_be_visible()
        expect(now).to_contain_text("Nothing is pushed until somebody resumes it.")
        assert push_of(server, queue)["paused"] is True
        tab.follow(button(tab, "Resume the push"))
        expect(page.get_by_text("The push was resumed.")).to_be_visible()
        page.get_by_text("Remove…").click()
        tab.follow(button(tab, "Remove the push"))
        expect(page.get_by_text("The push was removed.")).to_be_visible()
        assert push_of(server, queue) is None
        tab.check()


def test_secrets_are_kept_for_the_same_address_only(server, open_tab, queue):
    with opened() as first, opened() as second:
        tab = open_tab(server).go(f"queues/{queue}/push")
        page = tab.page
        page.get_by_label("Address").fill(first.url)
        page.get_by_label("Secrets").fill(SECRET)
        page.get_by_label("More headers").fill("x-token: sesame")
        tab.follow(button(tab, "Set the push"))
        page.get_by_label("Posts a second").fill("1234.567")
        tab.follow(button(tab, "Change the push"))
        expect(page.get_by_text("The push was set.")).to_be_visible()
        page.get_by_label("Address").fill(first.url)
        page.get_by_label("Secrets").fill(f"{SECRET}\n{OTHER_SECRET}")
        tab.follow(button(tab, "Change the push"))
        expect(page.get_by_text("The push was set.")).to_be_visible()
        target = push_of(server, queue)["target"]
        assert (target["per_second"], target["headers"], target["secrets"]) == (1234.567, ["x-token"], 2)
        page.get_by_label("Address").fill(second.url)
        tab.follow(button(tab, "Change the push"))
        expect(page.locator("#secrets-fault")).to_contain_text("is required")
        page.get_by_label("Secrets").fill(SECRET)
        tab.follow(button(tab, "Change the push"))
        expect(page.get_by_text("The push was set.")).to_be_visible()
        assert push_of(server, queue)["target"]["headers"] == []
        tab.follow(button(tab, "Test"))
        expect(page.get_by_text("The target answered the test with 204")).to_be_visible()
        assert "x-token" not in second.posts[0]
        assert first.posts == []
        tab.check()


def test_headers_are_removed(server, open_tab, queue):
    tab = open_tab(server).go(f"queues/{queue}/push")
    tab.page.get_by_label("Address").fill(f"http://127.0.0.1:{free_port()}/")
    tab.page.get_by_label("Secrets").fill(SECRET)
    tab.page.get_by_label("More headers").fill("x-token: sesame")
    tab.follow(button(tab, "Set the push"))
    tab.page.get_by_label("Send the present headers no more").check()
    tab.follow(button(tab, "Change the push"))
    expect(tab.page.get_by_text("The push was set.")).to_be_visible()
    assert push_of(server, queue)["target"]["headers"] == []
    tab.check()


def test_what_is_wrong_is_said_at_its_field_and_secrets_are_not_shown_again(server, open_tab, queue):
    tab = open_tab(server).go(f"queues/{queue}/push")
    page = tab.page
    page.get_by_label("Address").fill("https://user@shop.example/")
    page.get_by_label("Secrets").fill("whsec_short")
    page.get_by_label("More headers").fill("host: elsewhere")
    page.get_by_label("Posts at a time").fill("many")
    page.get_by_label("Dead letter at").fill("410, 200")
    tab.follow(button(tab, "Set the push"))
    expect(page.get_by_role("alert")).to_contain_text("The push was not set.")
    for name, words in (
        ("url", "must have neither a user nor a fragment"),
        ("secrets", "must be whsec_ followed by base64"),
        ("headers", "the gateway sets the header host itself"),
        ("concurrency", "must be a whole number from 1 to 1000"),
        ("reject_statuses", "must be"),
    ):
        expect(page.locator(f"#{name}-fault")).to_contain_text(words)
    expect(page.get_by_label("Address")).to_have_value("https://user@shop.example/")
    expect(page.get_by_label("Posts at a time")).to_have_value("many")
    expect(page.get_by_label("Secrets")).to_have_value("")
    assert (tab.axe(), "whsec_short" in page.content()) == ([], False)
    assert push_of(server, queue) is None
    tab.check()


def test_an_open_circuit_is_shown_where_people_look(server, open_tab, queue):
    with server.client() as client:
        target = {"url": f"http://127.0.0.1:{free_port()}/", "secrets": [SECRET]}
        client.put(f"queues/{queue}/push", json=target).raise_for_status()
    publish(server, queue)
    tab = open_tab(server).go(f"queues/{queue}/push")
    expect(tab.page.locator("#push-now")).to_contain_text(re.compile("circuit open|probing"))
    expect(tab.page.locator("#push-now")).to_contain_text(re.compile(r"Unreachable\s*[1-9]"))
    sentence = f"Messages of the queue '{queue}' are not pushed for a while: the target could not be reached."
    tab.go()
    expect(tab.page.locator(".concerns li", has_text=sentence)).to_be_visible()
    assert tab.axe() == []
    tab.go(f"queues/{queue}")
    expect(tab.page.get_by_text(sentence)).to_be_visible()
    assert tab.axe() == []
    with server.client() as client:
        client.delete(f"queues/{queue}/push").raise_for_status()
    tab.check()


def test_a_push_of_the_configuration_is_only_paused(tmp_path, open_tab):
    push = {"url": f"http://127.0.0.1:{free_port()}/", "secrets": [SECRET]}
    with console.console(tmp_path, push=ANYWHERE, queues={"orders": {"broker": "local", "push": push}}) as server:
        tab = open_tab(server).go("queues/orders/push")
        expect(tab.page.get_by_text("is in the configuration of the gateway")).to_be_visible()
        expect(tab.page.get_by_label("Address")).to_have_count(0)
        expect(tab.page.get_by_text("Remove…")).to_have_count(0)
        tab.follow(button(tab, "Pause the push"))
        expect(tab.page.get_by_text("The push was paused.")).to_be_visible()
        assert tab.axe() == []
        tab.check()


def test_with_the_keyboard_alone(server, open_tab, queue):
    with opened() as hook:
        tab = open_tab(server).go(f"queues/{queue}/push")
        keyboard = tab.page.keyboard

        for selector, text in (("#url", hook.url), ("#secrets", SECRET)):
            tab.reach(selector)
            keyboard.type(text)
        tab.reach("button.primary")
        keyboard.press("Enter")
        expect(tab.page.get_by_text("The push was set.")).to_be_visible()
        tab.reach("form[action$=test] button")
        # An update of the figures leaves the focus where it is.
        with tab.page.expect_response(lambda answer: "hx-request" in answer.request.headers):
            pass
        keyboard.press("Enter")
        expect(tab.page.get_by_text("The target answered the test with 204")).to_be_visible()
        tab.check()


def test_a_user_without_the_right_to_manage_sees_none(tmp_path, open_tab):
    auth = console.tokens(all={"*": list(RIGHTS)}, reader={"*": ["listen", "send"]})
    target = {"url": f"http://127.0.0.1:{free_port()}/hook", "secrets": [SECRET]}
    with console.console(tmp_path, auth=auth, push=ANYWHERE) as server:
        with server.client("all") as client:
            client.put("queues/orders/push", json=target).raise_for_status()
        tab = open_tab(server).go("queues/orders").sign_in("reader")
        expect(tab.page.get_by_role("heading", level=1)).to_have_text("orders")
        expect(tab.page.get_by_role("link", name="Push", exact=True)).to_have_count(0)
        tab.go("queues/orders/push")
        expect(tab.page.get_by_text("This needs the right 'manage'")).to_be_visible()
        assert "/hook" not in tab.page.content()
        assert tab.axe() == []
        tab.check()


def test_read_only_shows_and_refuses_all(tmp_path, open_tab):
    target = {"url": f"http://127.0.0.1:{free_port()}/hook", "secrets": [SECRET]}
    with console.console(tmp_path, console={"read_only": True}, push=ANYWHERE) as server:
        with server.client() as client:
            client.put("queues/orders/push", json=target).raise_for_status()
        tab = open_tab(server).go("queues/orders/push")
        expect(tab.page.get_by_text("/hook")).to_be_visible()
        expect(tab.page.locator("main form, main button")).to_have_count(0)
        assert tab.axe() == []
        tab.check()


def test_each_action_needs_the_right_to_manage(tmp_path):
    auth = console.tokens(all={"*": list(RIGHTS)}, reader={"*": ["listen", "send"]})
    target = {"url": f"http://127.0.0.1:{free_port()}/hook", "secrets": [SECRET]}
    with console.console(tmp_path, auth=auth, push=ANYWHERE) as server, server.client("all") as api:
        before = api.put("queues/orders/push", json=target).json()["target"]
        with server.client() as client:
            sign_in(client, "reader")
            csrf = csrf_of(client.get("console/queues"))
            for action in ("", "/remove", "/pause", "/resume", "/test"):
                form = {"csrf": csrf, "url": "http://127.0.0.1/", "secrets": SECRET}
                answer = client.post(f"console/queues/orders/push{action}", data=form)
                assert (answer.status_code, "This needs the right" in answer.text) == (403, True), action
        found = api.get("queues/orders/push").json()
        assert (found["target"], found["paused"]) == (before, False)
