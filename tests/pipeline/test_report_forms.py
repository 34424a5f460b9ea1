"""The forms of a report: equal numbers in all, equal bytes for equal figures, and names are escaped."""

from __future__ import annotations

import csv
import io
import re
from datetime import date, timedelta
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from babelgate.clock import duration
from babelgate.pipeline import formatting
from babelgate.pipeline.cli.main import pipeline
from babelgate.pipeline.report.figures import CheckedBodies, Figures, Violations, as_csv, as_json
from babelgate.pipeline.report.page import as_html
from babelgate.pipeline.report.targets import LatencyTarget, check_targets, parse_target
from tests.harness import browser
from tests.pipeline.sample_report import EMPTY, FIGURES, FORMULA, HOSTILE, INCOMPLETE, group

GOLDEN = Path(__file__).parent / "golden"
VOID = {"meta", "br"}


class Elements(HTMLParser):
    """Tags, attributes and text of a page; fails where tags are not closed in order."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(page.decode())
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@pytest.mark.parametrize(("write", "name"), [(as_json, "report.json"), (as_csv, "report.csv")])
def test_json_and_csv_are_as_they_were(write, name):
    """Programs read them. A change on purpose: write what `write(FIGURES)` gives to the file."""
    assert write(FIGURES) == (GOLDEN / name).read_bytes()


def test_json_is_read_back():
    assert msgspec.json.decode(as_json(FIGURES), type=Figures) == msgspec.convert(msgspec.to_builtins(FIGURES), Figures)


def test_csv_holds_every_number_of_json():
    rows = list(csv.DictReader(io.StringIO(as_csv(FIGURES).decode())))
    found = {(row["table"], row["of"], row["measure"]): row["value"] for row in rows}
    assert len(found) == len(rows)
    assert found["total", "", "accepted"] == "12000"
    assert found["queues", "emails", "dead_lettered"] == "100"
    assert found["trend", "2026-01-31T12", "wait_p95_ms"] == "62200.0"
    assert found["violations", "php / missing_meta", "count"] == "20"
    assert found["open", " / leased / 604800 / ", "count"] == "4"
    assert found["report", "", "first_date"] == "2026-01-31"
    assert found["jobs", f"'{FORMULA}", "accepted"] == "990", "no spreadsheet calculates it"


def test_the_page_is_the_same_for_the_same_figures():
    assert as_html(FIGURES) == as_html(FIGURES)


@pytest.mark.parametrize("figures", [FIGURES, INCOMPLETE, EMPTY], ids=["full", "incomplete", "empty"])
def test_the_page_needs_nothing_but_itself(figures):
    page = as_html(figures)
    found = Elements(page)
    assert not {"script", "link", "img", "iframe", "object", "use", "image", "style2"} & set(found.tags)
    names = {name for name, _ in found.attributes}
    assert not {"src", "href", "xlink:href", "srcset", "style", "id"} & names
    assert not any(name.startswith("on") for name in names)
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in found.attributes
    style = page.decode().partition("<style>")[2].partition("</style>")[0]
    assert "url(" not in style and "@import" not in style
    assert len(page) < 400_000


def test_names_are_text():
    found = Elements(as_html(FIGURES, "http://127.0.0.1/console"))
    assert sum(HOSTILE in text for text in found.texts) >= 3, "in a chart, in its table, in words"
    assert any(value and HOSTILE in value for name, value in found.attributes if name == "aria-label")


@pytest.mark.parametrize("url", ["https://gateway.example/console?a=b", "https://gateway.example/console#top"])
def test_a_console_to_which_no_path_can_be_appended_is_refused(url, tmp_path):
    shown = CliRunner().invoke(pipeline, ["report", "--lake", str(tmp_path), "--console", url])
    assert (shown.exit_code, "--console" in shown.output, "no ? and no #" in shown.output) == (2, True, True)


def test_ids_lead_to_the_console():
    page = as_html(FIGURES, "https://gateway.example/console/").decode()
    links = [value for name, value in Elements(page.encode()).attributes if name == "href"]
    assert links[0] == "https://gateway.example/console/find?id=0190b6f2-5d0c-7b1e"
    assert "https://gateway.example/console/find?id=a%2Fb%20c%3F%26" in links
    assert len(links) == 4
    assert "<code>0190b6f2-5d0c-7b1e</code>" in as_html(FIGURES).decode()


def test_targets_are_told_the_missed_ones_first():
    page = as_html(FIGURES).decode()
    told = page.partition("<h2>Targets</h2>")[2].partition("</section>")[0]
    assert "1 missed." in told
    results = re.findall(r'data-head="Result" class="n">([^<]+)', told)
    assert results == ["missed", "not measured", "met"]
    assert "<h2>Targets</h2>" not in as_html(replace(FIGURES, targets=None)).decode()


def test_the_last_day_is_compared():
    page = as_html(FIGURES).decode()
    told = page.partition("<h2>Compared with the days before</h2>")[2].partition("</section>")[0]
    rows = dict(re.findall(r"<th scope=\"row\">([^<]+)</th>(.*?)</tr>", told))
    cells = {name: re.findall(r">([^<]*)</td>", row) for name, row in rows.items()}
    assert "Sat 2026-01-31" in told and "Fri 2026-01-30" in told
    assert cells["Accepted"] == ["12,000", "10,000", "+20.0 %"]
    assert cells["Dead-lettered"] == ["300", "400", "\N{MINUS SIGN}25.0 %"]
    assert cells["Dead rate"] == ["2.5 %", "4.0 %", "\N{MINUS SIGN}1.5 points"]
    assert cells["Redriven"] == ["70", "0", "–"]
    assert cells["Leases expired"] == ["14", "7", "+100.0 %"]
    assert "The last day has events until" not in told
    page = as_html(replace(FIGURES, as_of=FIGURES.as_of - 3_600_000)).decode()
    assert "The last day has events until 2026-01-31 22:59; the days before" in page
    assert "Compared with" not in as_html(replace(FIGURES, comparison=FIGURES.comparison[:1])).decode()


def test_the_site_is_in_the_title():
    page = as_html(replace(FIGURES, site="Shop <north>")).decode()
    assert "<title>Shop &lt;north&gt;: messages, 2026-01-31</title>" in page
    assert "<h1>Shop &lt;north&gt;: messages, " in page


def test_targets_are_parsed():
    assert parse_target("p99=2s") == LatencyTarget("*", "e2e_p99_ms", 2_000)
    assert parse_target("orders.*:wait_p95=0.5min") == LatencyTarget("orders.*", "wait_p95_ms", 30_000)
    for wrong in ("p99", "p98=2s", "p99=2", "p99=-2s", ":p99=2s", "p99=2s ", "a:b:p99=2s", "p99=2d"):
        with pytest.raises(ValueError, match="is not"):
            parse_target(wrong)


def test_each_queue_that_fits_is_checked():
    queues = [group("orders", 10), replace(group("orders.late", 10), e2e_p99_ms=None), group("emails", 10)]
    found = check_targets([parse_target("orders*:p99=300s"), parse_target("emails:p99=299s")], queues)
    assert [(each.queue, each.met) for each in found] == [("orders", True), ("orders.late", None), ("emails", False)]
    (unmatched,) = check_targets([parse_target("other:p99=1s")], queues)
    assert (unmatched.queue, unmatched.met, unmatched.actual_ms) == ("other", None, None)


def test_what_is_missing_is_said():
    complete, incomplete = as_html(FIGURES).decode(), as_html(INCOMPLETE).decode()
    assert "at least" not in complete
    assert incomplete.count("<small>at least</small>") == 6, "all that is counted; an ack that is missing leaves open"
    assert "according to the recorded" in incomplete and "according to the recorded" not in complete
    assert re.search(r"missing from the journal</strong>: gateways lost 17 .* 4 never arrived", incomplete)


def test_what_was_not_measured_is_not_nothing():
    page = as_html(replace(FIGURES, open=None)).decode()
    assert re.search(r"Still open</dt><dd>–</dd><dd class=\"more\">not measured as of that day", page)
    assert "Open messages by age" not in page
    assert '"open": null' in as_json(replace(FIGURES, open=None)).decode()
    assert "report,,open,\n" in as_csv(replace(FIGURES, open=None)).decode()


def test_days_of_two_years_have_names_of_their_own():
    days = [(date(2025, 1, 1) + timedelta(days)).isoformat() for days in range(400)]
    page = as_html(replace(FIGURES, unit="day", trend=[group(day, number) for number, day in enumerate(days)])).decode()
    assert "Highest: 399, 2026-02-04" in page


def test_whoever_calls_itself_unknown_is_counted_with_what_is():
    figures = replace(
        FIGURES,
        checked=[
            *(FIGURES.checked or ()),
            CheckedBodies("unknown", 900, 200),
            *(CheckedBodies(f"x{n}", 1, 0) for n in range(99)),
        ],
        violations=[Violations("unknown", "invalid_lang", 200), Violations(None, "invalid_utf8", 5)],
    )
    page = as_html(figures).decode()
    assert "Most: unknown, 205 of 905 bodies checked" in page
    assert "53 more are in the report as JSON or CSV" in page, "producers may call themselves what they like"


def test_every_chart_is_told_in_words_and_has_its_numbers():
    found = Elements(as_html(FIGURES))
    assert found.tags.count("figure") == found.tags.count("svg") == found.tags.count("details") == 8
    labels = [value for name, value in found.attributes if name == "aria-label"]
    assert "Messages accepted, by hour, UTC. Highest: 1,200, 12:00." in labels
    assert "Open messages by age, neither acked nor dead-lettered. Oldest: 10.4 d, in unknown." in labels


def test_figures_in_words():
    assert [duration(ms) for ms in (None, 0, 999, 1000, 59_970, 90_000, 3_600_000, 172_800_000)] == [
        *("–", "0 ms", "999 ms", "1 s", "1 min", "1.5 min", "1 h", "2 d")
    ]
    assert [formatting.share(value) for value in (None, 0, 0.0004, 0.025, 1)] == [
        "–",
        "0 %",
        "< 0.1 %",
        "2.5 %",
        "100.0 %",
    ]
    assert [formatting.ages(*age) for age in ((0, 60), (600, 3600), (604_800, None))] == [
        *("under 1 min", "10 min to 1 h", "over 7 d")
    ]
    assert formatting.moment(10**18) == "1000000000000000000"


@pytest.mark.browser
@pytest.mark.parametrize(("width", "dark"), [(1200, False), (400, True)], ids=["wide", "phone, dark"])
def test_a_browser_draws_the_charts(width, dark):
    page = as_html(INCOMPLETE)
    drawn = browser.measure(page, width, dark=dark)
    assert not drawn["overflows"], "nothing is wider than the window"
    assert drawn["page"] == ("rgb(17, 22, 28)" if dark else "rgb(255, 255, 255)")
    marks = {each["title"]: each["marks"] for each in drawn["figures"]}
    assert {title: len(found) for title, found in marks.items()} == {
        "Messages accepted": 24,
        "Wait, 95 % within": 24,
        "Dead-lettered": 24,
        "Slowest jobs": 4,
        "Most failing jobs": 3,
        "Dead letters by reason": 2,
        "Contract violations": 6,
        "Open messages by age": 2,
    }
    for title, found in marks.items():
        seen = [mark for mark in found if mark["height"] > 1 and mark["width"] > 1]
        assert len(seen) >= len(found) - 1, f"{title}: at most the one of midnight is nothing"
        assert all(mark["inside"] for mark in found), title
        assert not {"none", "rgb(0, 0, 0)"} & {mark["fill"] for mark in found}, f"{title}: in the page's colours"
    assert len({mark["fill"] for mark in marks["Contract violations"]}) == 6
    for figure in drawn["figures"]:
        assert all(text["inside"] and text["size"] >= 11 for text in figure["texts"]), figure
    assert min(drawn["sizes"]) >= 11, "no text is too small to be read"
    assert len(drawn["tables"]) == 15
    assert not any(table["scrolls"] for table in drawn["tables"]), "every number is seen without moving a table"
    assert all(table["inside"] for table in drawn["tables"])


@pytest.mark.browser
def test_a_browser_has_nothing_to_complain_of():
    assert browser.complaints(as_html(INCOMPLETE)) == []
    assert browser.complaints(as_html(FIGURES).replace(b"</body>", b"<script>1</script></body>")), "it would be told"
