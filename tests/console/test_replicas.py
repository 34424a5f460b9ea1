"""The replicas and workers on the overview: by name, silent ones too, with markup in names, and for whom."""

from __future__ import annotations

import pytest

from babelgate.gateway.replicas import Identity, Replicas
from tests.console.test_queue import MARKUP
from tests.harness.console import WIDTHS

pytestmark = pytest.mark.browser

SILENT = ["10.0.0.12:7180", MARKUP]


class Peers:
    """Two workers of one gateway, one of an older version, and silent ones."""

    async def ask(self):
        workers = [Identity(f"{n}" * 16, MARKUP, "g", n, "1.2.3", 1_790_000_000_000) for n in (1, 2)]
        return [*workers, Identity("f" * 16)], SILENT


def cells(tab):
    table = tab.page.get_by_role("region", name="Replicas and workers")
    return [
        [" ".join(cell.split()) for cell in row.locator("th, td").all_inner_texts()]
        for row in table.locator("tbody tr").all()
    ]


@pytest.mark.parametrize(("dark", "width"), [(False, WIDTHS["wide"]), (True, WIDTHS["narrow"])])
def test_replicas_have_names(free, open_tab, dark, width):
    overview = free.application.gateway.overview
    before = overview.replicas
    overview.replicas = Replicas(before.own, Peers())
    try:
        tab = open_tab(free, dark=dark, width=width).go()
        rows = cells(tab)
        assert (tab.axe(), tab.overflow()) == ([], 0)
    finally:
        overview.replicas = before
    by_name = {row[0]: row for row in rows}
    assert by_name.keys() == {
        before.own.node,
        f"{MARKUP}, worker 1 of 2",
        f"{MARKUP}, worker 2 of 2",
        "of an older version",
        *SILENT,
    }
    assert by_name[before.own.node][1] == "up this one"
    assert by_name[f"{MARKUP}, worker 2 of 2"][2:5] == ["2", "2" * 16, "1.2.3"]
    assert all(by_name[name][1] == "no answer" for name in SILENT)
    tab.check()


def test_a_process_without_a_port_says_so(free, open_tab):
    tab = open_tab(free).go()
    assert len(cells(tab)) == 1
    assert tab.page.get_by_text("This process has no private port").is_visible()
    tab.check()


def test_who_manages_nothing_sees_none(guarded, open_tab):
    tab = open_tab(guarded).go().sign_in("reader")
    assert tab.page.get_by_role("heading", name="Replicas and workers").count() == 0
    with guarded.client("reader") as client:
        assert client.get("replicas").status_code == 403
    with guarded.client("all") as client:
        found = client.get("replicas").json()
    assert [each["incarnation"] for each in found["processes"]] == [found["own"]]
    tab.check()
