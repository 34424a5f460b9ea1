"""The files that pages refer to: those of libraries are as released, and each has its licence beside it."""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files

import pytest

from babelgate.console.files import Assets
from babelgate.console.pages import ROUTES
from tests.architecture.sources import ROOT

CONSOLE = ROOT / "app/babelgate/console"
VENDOR = CONSOLE / "assets/vendor"

RELEASED = {
    "htmx.min.js": (
        "htmx.org",
        "2.0.11",
        "0BSD",
        "dist/htmx.min.js",
        "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717",
    ),
    "htmx.LICENSE": (
        "htmx.org",
        "2.0.11",
        "0BSD",
        "LICENSE",
        "d3d2456f76414f2456104660ebd65aff1c04cd7966b942bdabd63f3cdb316a38",
    ),
    "uPlot.iife.min.js": (
        "uplot",
        "1.6.32",
        "MIT",
        "dist/uPlot.iife.min.js",
        "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    ),
    "uPlot.min.css": (
        "uplot",
        "1.6.32",
        "MIT",
        "dist/uPlot.min.css",
        "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    ),
    "uPlot.LICENSE": (
        "uplot",
        "1.6.32",
        "MIT",
        "LICENSE",
        "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
    ),
}
"""The package of npm, its version and licence, the file in it, and its SHA-256."""


@pytest.mark.parametrize("name", RELEASED)
def test_a_library_is_as_released(name):
    assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == RELEASED[name][4]


def test_each_library_is_listed_with_its_licence():
    assert {path.name for path in VENDOR.iterdir()} == RELEASED.keys()
    page = (ROOT / "docs/console.md").read_text("utf-8")
    for package, version, licence, *_ in RELEASED.values():
        assert f"| {package} | {version} | {licence} |" in page


def test_each_address_in_a_template_leads_to_a_file():
    assets = Assets()
    texts = [path.read_text("utf-8") for path in (CONSOLE / "templates").glob("*.html")]
    named = {name for text in texts for name in re.findall(r"asset\('([^']+)'\)", text)}
    assert len(named) > 3
    for name in named:
        address = assets.address(name)
        body = assets.answer(name, address.partition("?")[2].encode(), {})
        assert body.status == 200 and (b"cache-control", b"public, max-age=31536000, immutable") in body.headers
        assert body.body == files("babelgate.console").joinpath("assets", name).read_bytes()


def test_templates_have_neither_scripts_nor_styles_of_their_own():
    """The policy would refuse them."""
    for path in (CONSOLE / "templates").glob("*.html"):
        text = path.read_text("utf-8")
        assert not re.search(
            r"<script(?! src=)|<style|\sstyle=|\son\w+=|\|\s*safe|autoescape|hx-on|javascript:", text
        ), path
        assert not re.search(r"(href|src|action)=\"(/|https?:)", text), path


def test_a_client_that_has_a_file_is_told_so():
    assets = Assets()
    packed = assets.answer("console.css", b"", {b"accept-encoding": b"gzip"})
    assert (b"content-encoding", b"gzip") in packed.headers and (b"cache-control", b"no-cache") in packed.headers
    etag = dict(packed.headers)[b"etag"]
    known = {b"accept-encoding": b"gzip", b"if-none-match": etag}
    assert (assets.answer("console.css", b"", known).status, assets.answer("console.css", b"", known).body) == (
        304,
        b"",
    )
    assert assets.answer("console.css", b"", {b"if-none-match": etag}).status == 200


def test_pages_have_one_handler_for_each_method_and_path():
    assert len({(route.method, route.path) for route in ROUTES}) == len(ROUTES)
