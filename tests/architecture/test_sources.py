"""Rules of the source files: their length and language, the names of classes, and what the tree must not mention."""

from __future__ import annotations

import ast
import gc
import re
import tomllib
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from babelgate.brokers import registry
from tests.architecture.sources import ROOT, modules, parsed, tracked

MAX_LINES = 400

# Hosts are spelled with a class around the dot, so that this file does not name what it looks for.
REGISTRIES = re.compile(
    r"pypi[.]org|pythonhosted[.]org|registry[.]npmjs|repo1?[.]maven|proxy[.]golang|deb[.]debian[.]org"
)
PRIVATE_PATHS = re.compile(r"(?<![\w.~*$}-])/(?:home|root|Users|work|mnt|opt/wheels)/\w")
UNFINISHED = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
SQL = re.compile(
    r"\b(?:SELECT\s.+\sFROM|INSERT\s+INTO|DELETE\s+FROM|UPDATE\s+\w+\s+SET|CREATE\s+(?:TABLE|INDEX))\b", re.S
)
# ``nobody`` in such marks is the name of a caller.
HABITS = re.compile(r"(?<!`)\b(?:nobody|anew|so many|as it were|by and by)\b", re.IGNORECASE)
COMMENT = re.compile(r"^\s*#(.*)$", re.MULTILINE)
LUA = re.compile(r"\bredis\.(?:p?call|status_reply|error_reply)\b")

SOURCES = [path for path in tracked() if path.suffix in {".py", ".sql", ".lua"}]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def sentences(text: str) -> str:
    """The docstrings, explained constants and comments of a module, without the breaks between their lines."""
    found = COMMENT.findall(text)
    for node in ast.walk(parsed(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found.append(node.value.value)
    return " ".join(" ".join(found).split())


@cache
def classes_and_texts() -> tuple[Sequence[tuple[str, str]], Sequence[tuple[str, str]]]:
    """The module and the name of each class; the place and the value of each constant text."""
    classes, texts = [], []
    for module, path in modules().items():
        for node in ast.walk(parsed(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                classes.append((module, node.name))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append((f"{relative(path)}:{node.lineno}", node.value))
    return classes, texts


def test_source_files_are_short() -> None:
    """A longer file has more than one reason to change."""
    ours = [path for path in SOURCES if path.is_relative_to(ROOT / "app")]
    lengths = {relative(path): len(path.read_text("utf-8").splitlines()) for path in ours}
    assert {name: lines for name, lines in lengths.items() if lines > MAX_LINES} == {}


def test_class_names_mean_one_thing() -> None:
    places = defaultdict(set)
    for module, name in classes_and_texts()[0]:
        places[name].add(module)
    assert {name: sorted(found) for name, found in places.items() if len(found) > 1} == {}


def test_sentences_have_a_subject_and_a_number() -> None:
    """Vale looks for more of these words, in the pages: ``tools/prose/babelgate/Habits.yml``."""
    found = {name: HABITS.findall(sentences(path.read_text("utf-8"))) for name, path in modules().items()}
    assert len(found) > 500
    assert {name: words for name, words in found.items() if words} == {}


def test_every_package_says_what_lives_there() -> None:
    packages = [path for path in modules().values() if path.name == "__init__.py"]
    assert [relative(path) for path in packages if not ast.get_docstring(parsed(path.read_text("utf-8")))] == []


def test_every_broker_has_its_tests_in_a_folder_of_its_name() -> None:
    tested = {path.parent.name for path in (ROOT / "tests" / "brokers").glob("*/test_contract.py")}
    packages = {path.parent.name for path in (ROOT / "app" / "babelgate" / "brokers").glob("*/__init__.py")}
    assert tested == packages == {driver.kind for driver in registry.SCHEMES.values()}


def test_no_sql_and_no_lua_in_python() -> None:
    found = [
        f"{place}: {match.group()!r}"
        for place, text in classes_and_texts()[1]
        if (match := SQL.search(text) or LUA.search(text))
    ]
    assert found == []


@pytest.mark.parametrize("pattern", [REGISTRIES, PRIVATE_PATHS], ids=["registry host", "machine path"])
def test_the_tree_names_nobodys_machine(pattern: re.Pattern[str]) -> None:
    texts = {relative(path): path.read_text("utf-8", errors="replace") for path in tracked()}
    assert {name: found.group() for name, text in texts.items() if (found := pattern.search(text))} == {}


def test_pytest_collects_every_test_file() -> None:
    """The list of folders in pyproject.toml is in order of duration, and complete."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["pytest"]
    folders = [ROOT / folder for folder in options["testpaths"]]
    files = [path for path in tracked() if path.name.startswith("test_") and path.suffix == ".py"]
    assert [relative(path) for path in files if not any(path.is_relative_to(folder) for folder in folders)] == []


def test_a_logger_has_the_name_of_its_module() -> None:
    """A line of the log leads to the code that wrote it. The access log has one name, which its readers know."""
    given = [
        (name, ast.unparse(node.args[0]))
        for name, path in modules().items()
        if "get_logger" in (text := path.read_text("utf-8"))
        for node in ast.walk(parsed(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "get_logger"
    ]
    assert len(given) > 40
    assert [each for each in given if each[1] != "__name__"] == [("babelgate.http.observers", "NAME")]


def test_nothing_is_left_unfinished() -> None:
    assert [relative(path) for path in SOURCES if UNFINISHED.search(path.read_text("utf-8"))] == []


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (REGISTRIES, "https://pypi" + ".org/simple"),
        (PRIVATE_PATHS, "see /home/" + "somebody/x"),
        (UNFINISHED, "# TO" + "DO: later"),
        (SQL, "SELECT id\nFROM messages"),
        (LUA, "return redis.call('GET', KEYS[1])"),
        (HABITS, sentences('LIMIT = 3\n"""So\nmany are kept."""\n')),
        (HABITS, sentences("def f():\n    # So\n    # many wait.\n    return 1\n")),
    ],
)
def test_the_patterns_find_what_they_look_for(pattern: re.Pattern[str], text: str) -> None:
    assert pattern.search(text)


def test_readers_find_each_folder_and_each_target() -> None:
    """CONTRIBUTING says of each folder whether it is product or workshop; ``make help`` has a line for each target."""
    tables = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("## The tree")[2]
    paths = [relative(path) for path in tracked()]
    folders = {path.split("/")[0] for path in paths if "/" in path} - {"app"}
    packages = {path.split("/")[2] for path in paths if path.startswith("app/babelgate/") and path.count("/") > 2}
    assert [each for each in sorted({*folders, *packages}) if f"`{each}/`" not in tables] == []
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    helped = re.findall(r"^([a-z-]+):.* ## \S.*$", makefile, re.MULTILINE)
    targets = re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE)
    assert sorted(helped) == sorted(phony.split()) == sorted(targets)


def test_what_is_parsed_by_a_collection_does_no_harm() -> None:
    def collected(phase: str, _: object) -> None:
        ast.parse("(" * 20 + "1" + ")" * 20 + "+" + "-" * 50 + "1")

    text = "".join(f"def f{n}(a):\n    return [a, (a, {{a: [a]}})]\n" for n in range(300))
    before = gc.get_threshold()
    gc.callbacks.append(collected)
    gc.set_threshold(10)
    try:
        for _ in range(20):
            assert len(parsed(text).body) == 300
        assert gc.isenabled()
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(collected)
