"""The report of the pipeline in the console: for whom, with which policy, and what becomes of a missing file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from babelgate.console.pages.report import MAX_BYTES
from tests.harness import console
from tests.harness.console import ConsoleServer

PAGE = "<!doctype html><title>é</title><style>p {color: red}</style><p>7 messages</p>"
RIGHTS = {
    "all": {"*": ["manage"]},
    "looks": {"*": ["observe"]},
    "one": {"shop": ["manage", "observe"]},
    "sends": {"*": ["send", "listen"]},
}


@contextmanager
def user(server: ConsoleServer, token: str) -> Iterator[httpx.Client]:
    """A browser in which ``token`` is signed in."""
    with server.client() as client:
        found = re.search('name="csrf" value="([^"]+)"', client.get("/console/sign-in").text)
        assert found is not None
        assert client.post("/console/sign-in", data={"csrf": found[1], "token": token}).status_code == 303
        yield client


def test_it_is_for_those_who_may_look_at_every_queue(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    report.write_text(PAGE, "utf-8")
    with console.console(tmp_path, console={"report": str(report)}, auth=console.tokens(**RIGHTS)) as server:
        with server.client() as nobody:
            answer = nobody.get("/console/report")
            assert (answer.status_code, answer.headers["location"]) == (303, "./sign-in?to=report")
        for name in RIGHTS:
            with user(server, name) as client:
                may = name in ("all", "looks")
                answer = client.get("/console/report")
                assert answer.status_code == (200 if may else 403)
                assert (answer.text == PAGE) is may
                assert ('href="report"' in client.get("/console/").text) is may
                assert may or "&#39;observe&#39; or &#39;manage&#39;" in answer.text


def test_its_styles_are_allowed_and_no_script(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    report.write_text(PAGE, "utf-8")
    with console.console(tmp_path, console={"report": str(report)}) as server, server.client() as client:
        headers = client.get("/console/report").headers
        (policy,) = headers.get_list("content-security-policy")
        assert policy.startswith("default-src 'none'; style-src 'unsafe-inline';") and "script" not in policy
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"


def test_a_report_that_is_not_there_yet_is_404_in_words_and_a_new_one_is_shown(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    with console.console(tmp_path, console={"report": str(report)}) as server, server.client() as client:
        answer = client.get("/console/report")
        assert answer.status_code == 404
        assert "There is no report yet" in answer.text and "babelgate pipeline report" in answer.text
        for text in (PAGE, "another"):
            report.write_text(text, "utf-8")
            assert client.get("/console/report").text == text
        with report.open("wb") as file:
            file.truncate(MAX_BYTES + 1)
        assert client.get("/console/report").status_code == 404


def test_without_the_setting_there_is_no_such_page(tmp_path: Path) -> None:
    with console.console(tmp_path) as server, server.client() as client:
        answer = client.get("/console/report")
        assert answer.status_code == 404 and "console.report" in answer.text
        assert 'href="report"' not in client.get("/console/").text
