"""Small files; SQL and Lua in files of their own; a tree that names nobody's machine."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, modules, tracked

MAX_LINES = 350

# Hosts are spelled with a class around the dot, so that this file does not name what it looks for.
REGISTRIES = re.compile(
    r"pypi[.]org|pythonhosted[.]org|registry[.]npmjs|repo1?[.]maven|proxy[.]golang|deb[.]debian[.]org"
)
PRIVATE_PATHS = re.compile(r"(?<![\w.~*$}-])/(?:home|root|Users|work|mnt|opt/wheels)/\w")
UNFINISHED = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
SQL = re.compile(
    r"\b(?:SELECT\s.+\sFROM|INSERT\s+INTO|DELETE\s+FROM|UPDATE\s+\w+\s+SET|CREATE\s+(?:TABLE|INDEX))\b", re.S
)
LUA = re.compile(r"\bredis\.(?:p?call|status_reply|error_reply)\b")

SOURCES = [path for path in tracked() if path.suffix in {".py", ".sql", ".lua"}]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", [p for p in SOURCES if p.is_relative_to(ROOT / "app")], ids=relative)
def test_a_source_file_is_short(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= MAX_LINES, "split it by reason to change"


@pytest.mark.parametrize("path", modules().values(), ids=relative)
def test_no_sql_and_no_lua_in_python(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = SQL.search(node.value) or LUA.search(node.value)
            assert found is None, f"line {node.lineno}: {found and found.group()!r} belongs in a file of its own"


@pytest.mark.parametrize("pattern", [REGISTRIES, PRIVATE_PATHS], ids=["registry host", "machine path"])
def test_the_tree_names_nobodys_machine(pattern: re.Pattern[str]) -> None:
    for path in tracked():
        found = pattern.search(path.read_text("utf-8", errors="replace"))
        assert found is None, f"{relative(path)} names {found and found.group()!r}"


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_nothing_is_left_unfinished(path: Path) -> None:
    found = UNFINISHED.search(path.read_text("utf-8"))
    assert found is None, f"{found and found.group()}"


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (REGISTRIES, "https://pypi" + ".org/simple"),
        (PRIVATE_PATHS, "see /home/" + "somebody/x"),
        (UNFINISHED, "# TO" + "DO: later"),
        (SQL, "SELECT id\nFROM messages"),
        (LUA, "return redis.call('GET', KEYS[1])"),
    ],
)
def test_the_patterns_find_what_they_look_for(pattern: re.Pattern[str], text: str) -> None:
    assert pattern.search(text)
