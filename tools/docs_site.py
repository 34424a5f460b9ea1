"""Builds the documentation site: ``make docs-site`` writes it to build/site, where it works from the folder, too.

The pages stay where they are. Those that the home page leads to, and the files that they link to, are copied to
build/pages with their paths, so that every link holds. Then Zensical makes pages of them, and fails for a link or an
anchor that leads nowhere. A link to a folder or to a program becomes text: the site has neither. Blocks in several
languages, which a forge shows as parts that open, become tabs.

The site is also packed for the gateway, which serves it at /docs/site.

No page of the site loads anything from another host.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from tools import api_reference

ROOT = Path(__file__).resolve().parents[1]
CONFIG = "zensical.toml"
HOME = "README.md"
PAGES = ROOT / "build" / "pages"
SITE = ROOT / "build" / "site"
ARCHIVE = ROOT / "app" / "babelgate" / "http" / "site.zip"
WORKER = Path(__file__).with_name("docs_site_worker.js")
_CODE_OR_LINK = re.compile(
    r"^(```|~~~).*?^\1|(?<!\[)`[^`\n]+`(?!\])|\[(?P<text>(?:[^][]|!?\[[^][]*\][^][]*)*)\]\((?P<target>[^)\s]+)\)",
    re.S | re.M,
)
_TAB = re.compile(
    r"<details(?: open)?><summary>(?P<label>[^<]+)</summary>\n\n(?P<block>```.*?^```\n)\n</details>\n", re.S | re.M
)
_FOREIGN_WORKER = "https://unpkg.com/iframe-worker/shim"
"""What Zensical lets the search of a site in a folder load from another host. WORKER does the same."""
_SCRIPT = re.compile(r"<script(?P<head>[^>]*)>(?P<text>.*?)</script>", re.S)
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|#")


def page(path: str) -> tuple[str, list[str]]:
    """The text of a page for the site, and the paths that it links to. Raises FileNotFoundError naming a link that
    leads nowhere."""
    found = []

    def kept(match: re.Match[str]) -> str:
        text, target = match["text"], match["target"]
        if text is None or _ELSEWHERE.match(target):
            return match[0]
        place = Path(os.path.normpath(ROOT / path / ".." / target.partition("#")[0]))
        if not place.exists():
            raise FileNotFoundError(f"{path} links to {target}, which does not exist")
        if not place.is_file() or place.suffix == ".py":
            return text
        found.append(str(place.relative_to(ROOT)))
        return match[0]

    return _CODE_OR_LINK.sub(kept, (ROOT / path).read_text("utf-8")), found


def tabs(text: str) -> str:
    """A page with a tab instead of each ``<details>`` that has one block of code; those that follow one another are
    one group."""

    def tab(match: re.Match[str]) -> str:
        lines = (f"    {line}".rstrip() for line in match["block"].splitlines())
        return f'=== "{match["label"]}"\n\n' + "\n".join(lines) + "\n\n"

    return _TAB.sub(tab, text)


def copy() -> None:
    """Copy what the home page leads to, and all pages below docs. Raises what :func:`page` raises."""
    shutil.rmtree(PAGES, ignore_errors=True)
    waiting = [HOME, *(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
    while waiting:
        path = waiting.pop()
        copied = PAGES / path
        if copied.exists():
            continue
        copied.parent.mkdir(parents=True, exist_ok=True)
        if path.endswith(".md"):
            text, found = page(path)
            copied.write_text(tabs(text), "utf-8")
            waiting += found
        else:
            shutil.copyfile(ROOT / path, copied)


def own_worker() -> None:
    """Let all pages load WORKER from the site."""
    own = SITE / "assets" / WORKER.name
    shutil.copyfile(WORKER, own)
    for html in SITE.rglob("*.html"):
        path = os.path.relpath(own, html.parent)
        html.write_text(html.read_text("utf-8").replace(_FOREIGN_WORKER, path), "utf-8")


def build() -> None:
    """Write the site. Raises CalledProcessError for links that lead nowhere, and what :func:`copy` raises."""
    copy()
    api_reference.write(PAGES)
    program = str(Path(sys.executable).with_name("zensical"))
    command = [program, "build", "--strict", "--clean", "--config-file", CONFIG]
    subprocess.run(command, cwd=ROOT, check=True)
    own_worker()


def inline_scripts() -> set[str]:
    """The inline scripts of all pages, as sources of a content security policy."""
    found = set()
    for html in SITE.rglob("*.html"):
        for head, text in _SCRIPT.findall(html.read_text("utf-8")):
            if "src=" not in head and "json" not in head:
                found.add(f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'")
    return found


def pack(archive: Path = ARCHIVE) -> None:
    """Write the site to ``archive``, whose comment has the inline scripts. Equal sites give equal archives."""
    new = archive.with_suffix(".new")
    with ZipFile(new, "w") as writer:
        writer.comment = " ".join(sorted(inline_scripts())).encode()
        for path in sorted(SITE.rglob("*")):
            if path.is_file():
                info = ZipInfo(path.relative_to(SITE).as_posix())
                writer.writestr(info, path.read_bytes(), ZIP_DEFLATED, 9)
    # A gateway that serves the earlier one goes on with it.
    new.replace(archive)


if __name__ == "__main__":
    build()
    pack()
