"""Each page of docs says in its first lines for whom it is, and what one has at its end."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
GENERATED = {"licences.md"}
PAGES = [
    str(path.relative_to(DOCS))
    for path in sorted(DOCS.rglob("*.md"))
    if path.parts[len(DOCS.parts)] != "adr" and path.name not in GENERATED
]
BEGINNING = re.compile(r"# [^\n]+\n\n\*\*For( you if)?\*\* [^*]+[.?] \*\*In the end\*\* [^*]+\.(?= |\n)")
"""The title, and two sentences: For whom. What is there in the end."""


def test_the_pages_are_found() -> None:
    assert len(PAGES) > 70
    assert {"api.md", "how-to/delayed.md", "pipeline/sql.md", "tutorial/README.md"} <= set(PAGES)


def test_a_page_says_for_whom_it_is_and_what_it_gives() -> None:
    for page in PAGES:
        text = (DOCS / page).read_text("utf-8")
        beginning = " ".join(text.split("\n\n")[1].split("\n"))
        title = text.split("\n", 1)[0]
        found = BEGINNING.match(f"{title}\n\n{beginning}\n")
        assert found, f"{page} does not begin with **For** … **In the end** …: {beginning}"
        assert len(found[0]) < 400, page
