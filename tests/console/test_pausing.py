"""Pausing a queue in a browser: the forms, what is shown where, markup in a reason, accessibility."""

from __future__ import annotations

import pytest

from tests.console.test_queue import MARKUP, publish
from tests.harness.console import WIDTHS

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(("dark", "width"), [(False, WIDTHS["wide"]), (True, WIDTHS["narrow"])])
def test_a_queue_is_paused_and_resumed(free, open_tab, dark, width, queue):
    publish(free, queue)
    tab = open_tab(free, dark=dark, width=width).go(f"queues/{queue}")
    page = tab.page
    tab.follow(page.get_by_role("link", name="Pause…"))
    assert (tab.axe(), tab.overflow()) == ([], 0)
    page.get_by_label("Reason").fill(MARKUP)
    page.get_by_label("Refuse publishes").check()
    tab.follow(page.get_by_role("button", name="Pause", exact=True))
    page.get_by_text("Paused. It is kept in state_dir").wait_for()
    page.get_by_text(f"by anyone. Publishes are refused. Reason: {MARKUP}").wait_for()
    assert (tab.axe(), tab.overflow()) == ([], 0)
    with free.client() as client:
        pause = client.get(f"queues/{queue}").json()["pause"]
    assert (pause["reason"], pause["publishes"]) == (MARKUP, "refuse")
    tab.go(f"queues?q={queue}&state=paused")
    assert page.get_by_role("row", name=queue).get_by_text("paused").is_visible()
    assert (tab.axe(), tab.overflow()) == ([], 0)
    tab.go("")
    page.locator(".concerns li", has_text=f"The queue '{queue}' has been paused since").wait_for()
    tab.go(f"queues/{queue}/receive")
    page.get_by_role("button", name="Receive").click()
    tab.settled("The queue is paused: it hands nothing out.")
    assert (tab.axe(), tab.overflow()) == ([], 0)
    tab.go(f"queues/{queue}")
    tab.follow(page.get_by_role("link", name="Change the pause…"))
    assert page.get_by_label("Reason").input_value() == MARKUP
    page.get_by_label("Refuse publishes").uncheck()
    tab.follow(page.get_by_role("button", name="Change the pause"))
    assert page.get_by_text("Publishes are refused").count() == 0
    tab.follow(page.get_by_role("button", name="Resume"))
    page.get_by_text("Resumed. It is kept in state_dir").wait_for()
    assert page.get_by_role("link", name="Pause…").is_visible()
    tab.go(f"queues?q={queue}&state=paused")
    page.get_by_text("No queue that matches is paused.").wait_for()
    tab.check()
