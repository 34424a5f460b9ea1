"""The documentation site: complete, whole in its folder, and without a request to another host."""

from __future__ import annotations

import json
import re
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import yaml
from playwright.sync_api import Browser, expect

from babelgate.config import settings
from babelgate.gateway.ack_tokens import TokenSealer
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.routing import Router
from babelgate.http.api import create_api
from babelgate.http.auth import Auth
from babelgate.http.body import RequestLimits
from babelgate.server.application import App
from babelgate.server.overload import Pacer, Shedder
from babelgate.server.server import uvicorn_config
from tests.harness.browser import PATIENCE_MS, browser
from tests.harness.sockets import serving
from tests.harness.world import KEYS
from tools import api_reference, docs_site

pytestmark = pytest.mark.browser
_LOADED = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=\"?([^\" >]+)")
_VIOLATION = """
addEventListener("securitypolicyviolation", (event) =>
  console.error(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));
"""
_NARROW = ("attempts", "at-least-once", "batches", "durable", "lease", "life", "replicas")
"""Drawings that are made for 400 pixels."""
_READ = ("index.html", "docs/tutorial/1-first-message.html", "docs/api.html")


@pytest.fixture(scope="module")
def site() -> Path:
    docs_site.build()
    return docs_site.SITE


@pytest.fixture(scope="module")
def served(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a gateway that serves the site behind a prefix; it ends with the prefix."""
    folder = tmp_path_factory.mktemp("served")
    archive = folder / "site.zip"
    docs_site.pack(archive)

    def build() -> App:
        gateway = Gateway({}, Router([], None), TokenSealer(KEYS))
        api = create_api(gateway, auth=Auth(), limits=RequestLimits(), prefix="/mq", archive=archive)
        return App(api, gateway, Shedder(Pacer(time.thread_time), gateway.has_backlog))

    loaded = settings.load(None, {"BABELGATE_STATE_DIR": str(folder)})
    with serving(uvicorn_config(build, loaded)) as (host, port):
        yield f"http://{host}:{port}/mq"


@pytest.fixture(scope="module")
def opened() -> Iterator[Browser]:
    with browser() as started:
        yield started


def _pages_of(entry: Any) -> Iterator[str]:
    """The pages that an entry of the navigation names."""
    if isinstance(entry, str):
        yield entry
    for inner in entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ():
        yield from _pages_of(inner)


def test_each_page_is_in_the_navigation_or_behind_one_that_is() -> None:
    project = tomllib.loads((docs_site.ROOT / docs_site.CONFIG).read_text("utf-8"))["project"]
    waiting = list(_pages_of(project["nav"]))
    assert len(waiting) == len(set(waiting))
    found: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path.endswith(".md") and path not in found and path != api_reference.OPERATIONS:
            found.add(path)
            waiting += docs_site.page(path)[1]
    pages = {str(path.relative_to(docs_site.ROOT)) for path in (docs_site.ROOT / "docs").rglob("*.md")}
    assert pages - found == set()


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 80
    for each in pages:
        loaded = _LOADED.findall(each.read_text("utf-8"))
        assert loaded, each
        foreign = [url for url in loaded if url.startswith(("http:", "https:", "//"))]
        assert [url for url in foreign if url != "https://zensical.org/"] == [], each


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360], ids=["wide", "narrow"])
def test_pages_are_read_from_the_folder(site: Path, opened: Browser, dark: bool, width: int) -> None:
    scheme: Any = "dark" if dark else "light"
    with opened.new_context(color_scheme=scheme, viewport={"width": width, "height": 900}) as context:
        page = context.new_page()
        requests: list[str] = []
        errors: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        for path in _READ:
            page.goto((site / path).as_uri())
            expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate" if dark else "default")
            assert page.locator("h1").first.is_visible()
            # A wide table or line of code scrolls by itself.
            assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), path
        assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
        assert errors == []


@pytest.mark.parametrize("name", _NARROW)
def test_a_drawing_can_be_read_on_a_telephone(name: str) -> None:
    text = (docs_site.ROOT / f"docs/images/{name}.svg").read_text("utf-8")
    width, *_ = re.findall(r'viewBox="0 0 (\d+) ', text)
    sizes = re.findall(r'font-size="(\d+)"', text)
    assert min(map(int, sizes)) * 400 / int(width) >= 12
    assert '<rect width="440"' in text, "it has no background of its own, for dark pages"


@pytest.mark.parametrize("name", ["overview", "quick-start", *_NARROW])
def test_a_drawing_has_words_for_who_cannot_see_it_and_no_text_leaves_it(opened: Browser, name: str) -> None:
    with opened.new_context(viewport={"width": 880, "height": 400}) as context:
        page = context.new_page()
        page.goto((docs_site.ROOT / f"docs/images/{name}.svg").as_uri())
        assert page.evaluate("document.documentElement.getAttribute('aria-labelledby')") == "title"
        assert len(page.evaluate("document.getElementById('title').textContent")) > 40
        outside = page.evaluate("""() => {
            const [, , width, height] = document.documentElement.getAttribute("viewBox").split(" ").map(Number);
            return [...document.querySelectorAll("svg text")].filter(text => {
                const box = text.getBBox();
                return box.x < 0 || box.y < 0 || box.x + box.width > width || box.y + box.height > height;
            }).map(text => text.textContent);
        }""")
        assert outside == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360], ids=["wide", "narrow"])
def test_the_reference_of_the_api_is_read_from_the_folder(site: Path, opened: Browser, dark: bool, width: int) -> None:
    scheme: Any = "dark" if dark else "light"
    with opened.new_context(color_scheme=scheme, viewport={"width": width, "height": 900}) as context:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        requests: list[str] = []
        errors: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto((site / "docs/operations.html").as_uri())
        page.get_by_role("link", name="GET /queues/{queue}/dead-letters", exact=True).click()
        opblock = page.locator(".opblock.is-open")
        expect(opblock.locator(".parameter__name", has_text="before")).to_be_visible()
        expect(page.locator("html")).to_have_class("dark-mode" if dark else "")
        # The words of this answer are behind a reference.
        expect(opblock.locator('.response[data-code="400"]')).to_contain_text(re.compile("problem", re.IGNORECASE))
        assert page.locator(".errors-wrapper").all_inner_texts() == []
        # A wide table scrolls by itself.
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        page.get_by_placeholder("Filter by tag or path").fill("tokens/{id}:rotate")
        expect(page.locator(".opblock")).to_have_count(1)
        assert page.get_by_text("Try it out").count() == 0
        assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
        assert errors == []


def test_each_operation_has_its_words_and_a_link_to_the_reference(site: Path) -> None:
    document = yaml.safe_load((docs_site.ROOT / "openapi/openapi.yaml").read_bytes())
    text = (docs_site.PAGES / api_reference.OPERATIONS).read_text("utf-8")
    for path, methods in document["paths"].items():
        for method in methods.keys() & {"get", "put", "post", "delete"}:
            assert text.count(f"\n[`{method.upper()} {path}`](reference/api.html#/") == 1
            assert methods[method].get("description", "") in text
    assert len(re.findall(r"^- `queue` \(path\): .", text, re.MULTILINE)) > 20


def test_the_tabs_of_all_pages_follow_the_chosen_language(site: Path, opened: Browser) -> None:
    with opened.new_context(viewport={"width": 1280, "height": 900}) as context:
        page = context.new_page()
        page.goto((site / "docs/tutorial/1-first-message.html").as_uri())
        groups = page.locator(".tabbed-set")
        expect(groups).to_have_count(2)
        labels = ["curl", "Python", "TypeScript", "Go", "Java", "C#", "PHP"]
        for group in groups.all():
            expect(group.locator(".tabbed-labels label")).to_have_text(labels)
            expect(group.get_by_text("curl -s").first).to_be_visible()
        groups.first.locator(".tabbed-labels label", has_text="Java").click()
        for group in groups.all():
            expect(group.get_by_text("System.out.println").first).to_be_visible()
            expect(group.get_by_text("curl -s").first).to_be_hidden()
        page.goto((site / "docs/tutorial/3-dead-letter.html").as_uri())
        expect(page.locator(".tabbed-set").first.get_by_text("RejectException").first).to_be_visible()
        assert page.locator("details summary", has_text="Python").count() == 0


def test_the_search_works_from_the_folder(site: Path, opened: Browser) -> None:
    with opened.new_context(viewport={"width": 1280, "height": 900}) as context:
        page = context.new_page()
        page.goto((site / "docs/api.html").as_uri())
        page.locator("button", has_text="Search").first.click()
        page.get_by_placeholder("Search").press_sequentially("Idempotency-Key")
        expect(page.get_by_text(re.compile(r"^\d+ results$"))).to_be_visible()
        expect(page.get_by_role("option", name=re.compile("idempotency", re.IGNORECASE)).first).to_be_visible()
        expect(page.get_by_placeholder("Search")).to_have_value("Idempotency-Key")


def test_a_gateway_serves_it_within_its_policy(served: str, opened: Browser) -> None:
    with opened.new_context(viewport={"width": 1280, "height": 900}) as context:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.add_init_script(_VIOLATION)
        requests: list[str] = []
        errors: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.goto(f"{served}/docs")
        page.get_by_role("link", name="Documentation").click()
        expect(page).to_have_url(f"{served}/docs/site/index.html")
        for path in _READ:
            page.goto(f"{served}/docs/site/{path}")
            assert page.locator("h1").first.is_visible()
        page.goto(f"{served}/docs/site/{api_reference.REFERENCE}")
        expect(page.locator(".opblock").first).to_be_visible()
        page.go_back()
        page.locator("button", has_text="Search").first.click()
        page.get_by_placeholder("Search").press_sequentially("Idempotency-Key")
        found = page.get_by_role("option", name=re.compile("idempotency", re.IGNORECASE)).first
        with page.expect_navigation(timeout=PATIENCE_MS):
            found.click()
        assert page.url.startswith(f"{served}/docs/site/docs/")
        assert page.locator("h1").first.is_visible()
        assert [url for url in requests if not url.startswith((f"{served}/", "data:"))] == []
        assert errors == []


def test_an_archive_is_made_of_the_site_alone(site: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "a.zip", tmp_path / "b.zip"
    docs_site.pack(first)
    docs_site.pack(second)
    assert first.read_bytes() == second.read_bytes()
    with ZipFile(first) as archive:
        assert set(archive.namelist()) == {str(path.relative_to(site)) for path in site.rglob("*") if path.is_file()}
    assert first.stat().st_size < 6_000_000


def test_a_link_that_leads_nowhere_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "README.md").write_text("[a](there.md)\n\n`[b](code.md)`\n\n```\n[c](code.md)\n```\n", "utf-8")
    monkeypatch.setattr(docs_site, "ROOT", tmp_path)
    with pytest.raises(FileNotFoundError, match=re.escape("README.md links to there.md, which does not exist")):
        docs_site.page("README.md")
    (tmp_path / "there.md").touch()
    assert docs_site.page("README.md")[1] == ["there.md"]


def test_links_to_programs_and_folders_are_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "README.md").write_text(
        "[`a.py`](a.py) in [a folder](folder), [elsewhere](https://example.com)", "utf-8"
    )
    monkeypatch.setattr(docs_site, "ROOT", tmp_path)
    assert docs_site.page("README.md") == ("`a.py` in a folder, [elsewhere](https://example.com)", [])


def test_blocks_in_several_languages_become_tabs() -> None:
    block = "<details{}><summary>{}</summary>\n\n```{}\na\n\n  b\n```\n\n</details>\n"
    text = f"x\n\n{block.format(' open', 'curl', 'sh')}{block.format('', 'C#', 'csharp')}\ny\n"
    tab = '=== "{}"\n\n    ```{}\n    a\n\n      b\n    ```\n\n'
    assert docs_site.tabs(text) == f"x\n\n{tab.format('curl', 'sh')}{tab.format('C#', 'csharp')}\ny\n"
    assert docs_site.tabs("<details><summary>a</summary>\n\ntext\n\n</details>\n").startswith("<details>")


def test_the_index_of_the_search_has_all_pages(site: Path) -> None:
    index = json.loads((site / "search.json").read_text("utf-8"))
    found = {item["location"].partition("#")[0] for item in index["items"]}
    pages = {str(path.relative_to(site)) for path in (site / "docs").rglob("*.html")}
    assert found >= pages - {api_reference.REFERENCE}
