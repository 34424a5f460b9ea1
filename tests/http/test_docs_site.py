"""The documentation site below /docs/site: whole, open to everybody, and nothing but the site."""

from __future__ import annotations

from importlib.resources.abc import Traversable
from pathlib import Path
from zipfile import ZipFile

import httpx
import pytest

from babelgate.gateway.gateway import Gateway
from babelgate.http.api import create_api
from babelgate.http.auth import Auth
from babelgate.http.body import RequestLimits
from tests.harness.asgi import Call
from tests.harness.problems import problem

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
FILES = {
    "index.html": "<h1>Home</h1>",
    "docs/a.html": "<h1>A</h1>" * 1_000,
    "assets/a.css": "a {}",
    "assets/a.js": "1",
    "search.json": "{}",
    "LICENSE": "free",
    "a.unknown": "?",
}
TYPES = {
    "index.html": "text/html; charset=utf-8",
    "assets/a.css": "text/css; charset=utf-8",
    "assets/a.js": "text/javascript; charset=utf-8",
    "search.json": "application/json",
    "LICENSE": "text/plain; charset=utf-8",
    "a.unknown": "application/octet-stream",
}
SCRIPTS = "'sha256-abc' 'sha256-def'"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "site.zip"
    (tmp_path / "secret.html").write_text("secret")
    with ZipFile(path, "w") as writer:
        writer.comment = SCRIPTS.encode()
        for name, text in FILES.items():
            writer.writestr(name, text)
    return path


@pytest.fixture
def api(app):
    """A function of an archive that gives an API with it, whose callers need a token."""

    def made(archive: Traversable, **options):
        gateway: Gateway = app.gateway
        return create_api(gateway, auth=Auth({}), limits=RequestLimits(), archive=archive, **options)

    return made


@pytest.fixture
async def site(api, archive, connect) -> httpx.AsyncClient:
    client: httpx.AsyncClient = await connect(api(archive))
    return client


@pytest.mark.parametrize("name", TYPES)
async def test_a_file_has_its_type_and_a_policy(site, name):
    answer = await site.get(f"/docs/site/{name}")
    assert (answer.status_code, answer.text, answer.headers["content-type"]) == (200, FILES[name], TYPES[name])
    policy = dict(each.split(" ", 1) for each in answer.headers["content-security-policy"].split("; "))
    assert policy["script-src"] == f"'self' {SCRIPTS}"
    assert policy["default-src"] == "'self'"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-cache"


async def test_who_has_a_file_is_told_so(site):
    packed = await site.get("/docs/site/docs/a.html")
    plain = await site.get("/docs/site/docs/a.html", headers={"accept-encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip" and packed.content == plain.content
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"]) / 10
    for answer in (packed, plain):
        encoding = {"accept-encoding": answer.headers.get("content-encoding", "identity")}
        known = {"if-none-match": answer.headers["etag"]}
        again = await site.get("/docs/site/docs/a.html", headers=known | encoding)
        assert (again.status_code, again.content) == (304, b"")
    head = await site.head("/docs/site/docs/a.html")
    assert (head.status_code, head.headers["etag"]) == (200, packed.headers["etag"])


@pytest.mark.parametrize("prefix", ["", "/mq"])
async def test_it_works_behind_a_prefix(api, archive, connect, prefix):
    client = await connect(api(archive, prefix="/mq"), follow_redirects=True)
    for path in ("/docs/site", "/docs/site/"):
        answer = await client.get(prefix + path)
        assert (answer.text, answer.url.path) == (FILES["index.html"], f"{prefix}/docs/site/index.html")
    assert 'href="docs/site"' in (await client.get(f"{prefix}/docs")).text


@pytest.mark.parametrize(
    "path",
    [
        "../secret.html",
        "..%2fsecret.html",
        "%2e%2e/secret.html",
        "docs/../../secret.html",
        "docs/../index.html",
        "/index.html",
        "docs",
        "docs/",
        "index.html/",
        "index.html%00",
        "C:%5csecret.html",
        "%c3%a9.html",
    ],
)
async def test_what_is_not_in_it_is_not_found(api, archive, path):
    for name in (path, path.replace("../secret.html", str(archive.parent / "secret.html"))):
        call = await Call("GET", f"/docs/site/{name}").run(api(archive))
        assert (call.status, call.json()["code"]) == (404, "not_found")
        assert "begins at /docs/site/index.html" in call.json()["detail"]


async def test_a_browser_gets_a_page_that_leads_home(site):
    for path, home in (("x.html", "index.html"), ("docs/x/y.html", "../../index.html"), ("<b>", "index.html")):
        answer = await site.get(f"/docs/site/{path}", headers=BROWSER)
        assert answer.status_code == 404 and answer.headers["content-type"] == "text/html; charset=utf-8"
        assert f'<a href="{home}">' in answer.text and "<b>" not in answer.text
        assert "script" not in answer.headers["content-security-policy"]


@pytest.mark.parametrize("path", ["", "/", "/index.html", "/docs/a.html"])
async def test_a_gateway_without_it_says_how_to_get_it(api, connect, tmp_path, path):
    client = await connect(api(tmp_path / "site.zip"))
    answer = await client.get(f"/docs/site{path}")
    assert "Run `make docs-site`" in problem(answer, 404, "not_found")["detail"]
    page = await client.get(f"/docs/site{path}", headers=BROWSER)
    assert page.status_code == 404 and "Run `make docs-site`" in page.text
    target = page.text.partition('<a href="')[2].partition('"')[0]
    assert (await client.get(str(page.url.join(target)))).url.path == "/docs"
    assert "docs/site" not in (await client.get("/docs")).text


async def test_it_is_as_open_as_the_page_of_the_api_and_nothing_else_is(site):
    for path in ("/docs", "/docs/site/index.html"):
        for headers in ({}, {"authorization": "Bearer wrong"}, {"host": "evil.example"}):
            assert (await site.get(path, headers=headers)).status_code == 200
    for path in ("/docs/sites", "/docs/sitemap/index.html", "/queues/docs"):
        problem(await site.get(path), 401, "unauthenticated")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_it_is_only_read(site, method):
    answer = await site.request(method, "/docs/site/index.html")
    problem(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, HEAD"


async def test_a_running_gateway_keeps_the_site_that_it_began_with(site, archive):
    assert (await site.get("/docs/site/index.html")).status_code == 200
    new = archive.with_name("new.zip")
    with ZipFile(new, "w") as writer:
        writer.writestr("other.html", "other")
    new.replace(archive)
    assert (await site.get("/docs/site/docs/a.html")).text == FILES["docs/a.html"]
