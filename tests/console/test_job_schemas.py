"""Schemas of jobs in the form of a publish, in a real browser: violations at their lines, and examples."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from tests.harness import console
from tests.harness.console import WIDTHS

pytestmark = pytest.mark.browser

JOB = "urn:babel:shop:order.placed"
SCHEMA = {
    "$id": JOB,
    "type": "object",
    "required": ["order_id", "lines"],
    "properties": {
        "order_id": {"type": "string", "examples": ["A-4711"]},
        "lines": {"type": "array", "minItems": 1, "items": {"properties": {"amount": {"type": "integer"}}}},
    },
}
BODY = """{
  "job": "urn:babel:shop:order.placed",
  "data": {
    "lines": [
      {"amount": 1},
      {"amount": "<b>"}
    ]
  }
}"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shop")
    (folder / "schemas").mkdir()
    (folder / "schemas" / "order.json").write_text(json.dumps(SCHEMA))
    queues = {name: {"broker": "local", "schema": name} for name in ("enforce", "warn")}
    with console.console(folder, schemas={"directory": str(folder / "schemas")}, queues=queues) as server:
        yield server


def selected(page):
    return page.evaluate(
        "() => { const t = document.getElementById('body'); return t.value.slice(t.selectionStart, t.selectionEnd); }"
    )


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_violations_are_said_at_their_lines(shop, open_tab, width):
    tab = open_tab(shop, width=width).go("queues/enforce/publish")
    page = tab.page
    page.get_by_label("Message").fill(BODY)
    check = page.locator("#check")
    expect(check.get_by_role("listitem")).to_have_text(
        [
            "Line 3 /data/order_id: data.order_id is required.",
            'Line 6 /data/lines/1/amount: data.lines.1.amount is not of type "integer".',
        ]
    )
    check.get_by_role("link", name="Line 6").click()
    assert selected(page) == '      {"amount": "<b>"}'
    expect(page.get_by_label("Message")).to_be_focused()
    check.get_by_role("link", name="Line 3").click()
    assert selected(page) == '  "data": {'
    assert (tab.axe(), tab.overflow()) == ([], 0)

    tab.follow(page.get_by_role("button", name="Publish"))
    expect(page.get_by_role("alert").get_by_role("link", name="Line 6")).to_be_visible()
    page.get_by_role("alert").get_by_role("link", name="Line 6").click()
    assert selected(page) == '      {"amount": "<b>"}'
    with shop.client() as client:
        assert client.get("queues/enforce").json()["stats"]["depth"] == 0
    tab.check()


def test_where_schemas_only_warn_the_lines_are_said_too(shop, open_tab):
    tab = open_tab(shop).go("queues/warn/publish")
    tab.page.get_by_label("Message").fill(BODY)
    check = tab.page.locator("#check")
    expect(check).to_contain_text("The gateway would accept it")
    expect(check).to_contain_text("Line 6 /data/lines/1/amount")
    check.get_by_role("link", name="Line 6").click()
    assert selected(tab.page) == '      {"amount": "<b>"}'
    tab.check()


def test_an_example_is_filled_in_by_the_schema_of_a_job(shop, open_tab):
    tab = open_tab(shop).go("queues/enforce/publish")
    page = tab.page
    assert page.locator("#jobs option").evaluate_all("each => each.map((one) => one.value)") == [JOB]
    page.get_by_label("Example by the schema of a job").fill(JOB)
    tab.follow(page.get_by_role("button", name="Fill in"))
    made = json.loads(page.get_by_label("Message").input_value())
    assert made == {"job": JOB, "data": {"order_id": "A-4711", "lines": [{}]}}
    expect(page.locator("#check")).to_contain_text("The gateway would accept it")
    assert (tab.axe(), tab.overflow()) == ([], 0)

    page.get_by_label("Example by the schema of a job").fill("urn:<b>")
    tab.follow(page.get_by_role("button", name="Fill in"))
    expect(page.get_by_text("There is no schema of the job 'urn:<b>'")).to_be_visible()
    tab.check()


def test_without_schemas_no_example_is_offered(free, open_tab, queue):
    tab = open_tab(free).go(f"queues/{queue}/publish")
    expect(tab.page.get_by_label("Example by the schema of a job")).to_have_count(0)
    tab.check()


def test_the_overview_says_that_schemas_are_not_read(tmp_path, open_tab):
    auth = console.tokens(operator={"*": ["manage"]}, reader={"*": ["listen"]})
    with console.console(tmp_path, auth=auth) as server:
        checks = server.application.gateway.schema_checks
        tab = open_tab(server).go("").sign_in("operator")
        expect(tab.page.get_by_text("Nothing needs attention.")).to_be_visible()
        checks.refresh_failure = "the status is 503"
        tab.go("")
        expect(tab.page.locator(".concerns")).to_contain_text(
            "older schemas than those at their URL: the status is 503."
        )
        assert (tab.axe(), tab.overflow()) == ([], 0)
        reader = open_tab(server).go("").sign_in("reader")
        expect(reader.page.get_by_text("Nothing needs attention.")).to_be_visible()
        checks.refresh_failure = None
        tab.go("")
        expect(tab.page.get_by_text("Nothing needs attention.")).to_be_visible()
