"""Pages of other origins in the browser of a user who has signed in."""

from __future__ import annotations

import pytest

from tests.harness.browser import site

pytestmark = pytest.mark.browser


@pytest.fixture
def user(guarded, open_tab):
    tab = open_tab(guarded).go("queues").sign_in("all")
    tab.page.get_by_role("heading", name="Queues").wait_for()
    return tab


def is_signed_in(tab):
    tab.go("queues")
    return "/sign-in" not in tab.page.url


HOSTS = ["127.0.0.1", "localhost"]
"""Another port of the same host, whose requests have the cookie; and another host."""


@pytest.mark.parametrize("host", HOSTS)
def test_a_form_of_another_origin_does_nothing(guarded, user, host):
    with site(f"<form method=post action={guarded.url}/console/sign-out><button>Win</button></form>") as port:
        user.page.goto(f"http://{host}:{port}/")
        user.page.get_by_role("button").click()
        user.page.get_by_role("heading", name="Forbidden").wait_for()
        assert [status for url, status in user.answers if url.endswith("/sign-out")] == [403]
    assert is_signed_in(user)


@pytest.mark.parametrize("host", HOSTS)
def test_no_page_shows_the_console_in_a_frame(guarded, user, host):
    with site(f"<iframe src={guarded.url}/console/queues></iframe>") as port:
        user.page.goto(f"http://{host}:{port}/")
        user.page.wait_for_load_state("networkidle")
        texts = [frame.content() for frame in user.page.frames if frame is not user.page.main_frame]
        assert len(texts) == 1 and "Queues" not in texts[0] and "csrf" not in texts[0]


@pytest.mark.parametrize("host", HOSTS)
def test_a_script_of_another_origin_reads_nothing(guarded, user, host):
    script = f"fetch('{guarded.url}/console/queues', {{credentials: 'include'}}).then(a => a.text())"
    with site(
        f"<script>{script}.then(() => document.title = 'read', () => document.title = 'refused')</script>"
    ) as port:
        user.page.goto(f"http://{host}:{port}/")
        user.page.wait_for_function("document.title !== ''")
        assert user.page.title() == "refused"


@pytest.mark.parametrize("host", HOSTS)
def test_a_link_of_another_origin_leads_to_the_page(guarded, user, host):
    """Although the cookie is SameSite=Strict."""
    with site(f"<a href={guarded.url}/console/queues?q=x>The queue</a>") as port:
        user.page.goto(f"http://{host}:{port}/")
        user.page.get_by_role("link").click()
        user.page.get_by_role("heading", name="Queues").wait_for()
        assert user.page.url == f"{guarded.url}/console/queues?q=x"
