"""The frame of the console in a real browser: signing in and out, navigation, accessibility."""

from __future__ import annotations

import re

import pytest

from tests.harness.console import WIDTHS

pytestmark = pytest.mark.browser

PAGES = ["", "queues", "nothing-is-here"]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_pages_are_accessible(guarded, open_tab, dark, width):
    tab = open_tab(guarded, dark=dark, width=width).go()
    assert tab.axe() == []
    tab.sign_in("all")
    for page in PAGES:
        tab.go(page)
        assert (page, tab.axe(), tab.overflow()) == (page, [], 0)
    tab.check()


def test_axe_finds_what_it_looks_for(guarded, open_tab):
    tab = open_tab(guarded).go()
    tab.page.evaluate("document.querySelector('label').remove()")
    assert [each.partition(":")[0] for each in tab.axe()] == ["label"]


def test_a_violation_and_a_request_elsewhere_are_seen(guarded, open_tab):
    tab = open_tab(guarded).go()
    tab.page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<p style=\"color: red\"><img src=//x.invalid/y>')"
    )
    for directive in ("style-src", "img-src"):
        tab.until(lambda start=directive: any(each.startswith(start) for each in tab.violations))
    with pytest.raises(AssertionError):
        tab.check()


def test_a_user_signs_in_and_out(guarded, open_tab):
    tab = open_tab(guarded).go("queues?after=a")
    assert "/console/sign-in?to=" in tab.page.url
    tab.sign_in("all")
    tab.page.wait_for_url(re.compile(r"/console/queues\?after=a$"))
    assert tab.page.get_by_text("all", exact=True).is_visible()
    tab.follow(tab.page.get_by_role("button", name="Sign out"))
    tab.page.wait_for_url(re.compile("/console/sign-in$"))
    assert tab.page.get_by_role("status").inner_text() == "You have signed out."
    tab.page.reload()
    assert tab.page.get_by_text("You have signed out.").count() == 0
    tab.go()
    assert "/console/sign-in" in tab.page.url
    tab.check()


def test_a_wrong_token_is_refused_in_words(guarded, open_tab):
    tab = open_tab(guarded).go("queues").sign_in("wrong")
    assert tab.page.get_by_role("alert").inner_text() == "This token is not one of this gateway."
    assert tab.axe() == []
    tab.sign_in("all")
    tab.page.wait_for_url(re.compile("/console/queues$"))
    tab.check()


def test_without_credentials_there_is_no_sign_in(free, open_tab):
    tab = open_tab(free).go()
    assert tab.page.get_by_role("heading", level=1).inner_text() == "Overview"
    assert tab.page.get_by_role("button", name="Sign out").count() == 0
    tab.go("sign-in")
    assert tab.page.url == f"{free.url}/console/"
    tab.check()


def test_it_works_without_scripts(guarded, open_tab):
    tab = open_tab(guarded, scripts=False).go("queues").sign_in("all")
    assert tab.page.get_by_role("heading", level=1).inner_text() == "Queues"
    assert not tab.page.get_by_role("button", name="Live").is_visible()
