"""Which tests run for which change."""

from __future__ import annotations

import re
from collections import Counter
from types import SimpleNamespace
from typing import cast

import pytest

from tests.architecture.sources import ROOT, tracked
from tests.brokers import registry
from tests.harness import groups
from tests.harness.essential import BEYOND, ESSENTIAL
from tests.harness.groups import AFFECTED, BROKERS, GROUPS, TESTS, Selection, affected, longest

FILES = [path.relative_to(ROOT).as_posix() for path in tracked()]


def test_each_file_of_tests_belongs_to_a_group():
    assert [each for each in FILES if re.match(r"tests/.*/test_\w+\.py", each) and longest(TESTS, each) is None] == []


@pytest.mark.parametrize("table", [TESTS, AFFECTED], ids=["tests", "affected"])
def test_each_line_of_a_table_is_about_files_that_exist(table):
    assert [each for each in table if not any(path.startswith(each) for path in FILES)] == []


@pytest.mark.parametrize("names", [ESSENTIAL, BEYOND], ids=["essential", "beyond"])
def test_what_is_named_exists(names):
    def defines(name: str) -> bool:
        path, _, test = name.partition("::")
        found = [each for each in FILES if each.startswith(path)]
        return bool(found) and (not test or f"def {test}(" in (ROOT / found[0]).read_text("utf-8"))

    assert [each for each in names if not defines(each)] == []


def test_each_folder_of_the_product_leads_to_a_group():
    folders = {each.rpartition("/")[0] + "/" for each in FILES if each.startswith(("app/", "clients/", "helm/"))}
    assert [each for each in folders if not affected(each)] == []


def test_each_group_has_tests_and_a_cause():
    assert Counter({*TESTS.values()}) == Counter(GROUPS)
    assert {group for path in FILES for group in affected(path) if affected(path) != {*GROUPS}} >= {*GROUPS} - {"units"}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("app/babelgate/brokers/kafka/consumer.py", {"kafka"}),
        ("app/babelgate/brokers/kafka/url.py", {"kafka", "pipeline"}),
        (
            "app/babelgate/gateway/gateway.py",
            {*GROUPS} - {"units", "document", "chart", "image", "keycloak", "newer", "site"},
        ),
        ("app/babelgate/http/direct.py", {*GROUPS}),
        ("app/babelgate/http/openapi/parts/publish.yaml", {"document", "clients", "http", "image", "processes"}),
        ("app/babelgate/console/routes.py", {"console", "image"}),
        ("app/babelgate/brokers/binding.py", {*GROUPS}),
        ("clients/go/client.go", {"clients", "document"}),
        ("helm/babelgate/values.yaml", {"chart", "image", "processes"}),
        ("docs/api.md", {"processes", "site"}),
        ("tests/brokers/kafka/server.py", {"kafka", "pipeline"}),
        ("tests/brokers/kafka/test_retry.py", {"kafka"}),
        ("tests/brokers/test_versions.py", {*BROKERS, "processes"}),
        ("tests/brokers/test_lost_replies.py", {*BROKERS, "processes"}),
        ("tests/e2e/test_replicas.py", {*BROKERS, "processes"}),
        ("tests/e2e/test_readme.py", {"processes"}),
        ("tests/e2e/test_openapi_tools.py", {"document"}),
        ("tests/e2e/conftest.py", {*BROKERS, "processes", "document"}),
        ("tests/http/test_problems.py", {"http"}),
        ("tests/http/test_stalls.py", {*BROKERS, "http"}),
        ("tests/suites/life.py", {*BROKERS}),
        ("tests/harness/groups.py", {*GROUPS}),
        ("a new file", {*GROUPS}),
        (".ci/green", set()),
    ],
)
def test_what_a_change_affects(path, found):
    assert affected(path) == found


def test_the_pages_that_tests_of_the_pipeline_read_affect_it():
    pages = {each for each in FILES if each.startswith("docs/pipeline/")}
    texts = [(ROOT / each).read_text("utf-8") for each in FILES if re.match(r"tests/pipeline/.*\.py", each)]
    read = {f"docs/pipeline/{name}" for text in texts for name in re.findall(r'"([\w-]+\.(?:md|ipynb))"', text)} & pages
    assert {each for each in pages if "pipeline" in affected(each)} == read


def _names_of_harness(path: str) -> set[str]:
    """The parts of the harness that a file imports."""
    text = (ROOT / path).read_text("utf-8")
    several = re.findall(r"from tests\.harness import \(?([\w\s,]+)", text)
    names = {*re.findall(r"tests\.harness\.(\w+)", text), *re.findall(r"\w+", " ".join(several))}
    return {f"tests/harness/{name}.py" for name in names} & {*FILES} - {path}


def test_a_part_of_the_harness_affects_the_groups_of_all_that_import_it():
    """But for what `make test` runs whole, whatever has changed."""
    found = {path: affected(path) for path in FILES if path.startswith("tests/harness/")}
    files = [each for each in FILES if each.endswith(".py") and not groups.is_essential_file(each)]
    imported = {path: _names_of_harness(path) for path in files}
    missing = {
        (part, path, group)
        for path in files
        for part in imported[path]
        for group in affected(path) - affected(part) - {"units"}
    }
    assert missing == set()
    assert {*found["tests/harness/world.py"]} == {*GROUPS}


@pytest.mark.parametrize("only", ["", "kafak", "essential,kafka", "0/8", "9/8", "1/4"])
def test_a_selection_of_nothing_that_exists_is_refused(only):
    with pytest.raises(ValueError, match="is not essential"):
        Selection(only)


def test_what_a_group_depends_on_decides():
    assert groups.digest("kafka") == groups.digest("kafka") != groups.digest("redis")


def test_a_file_is_read_for_the_groups_of_its_tests_alone():
    reads = Selection("kafka").reads
    assert [each for each in FILES if each.startswith("tests/e2e/test_") and reads(each)] == [
        each for each in FILES if each.startswith("tests/e2e/test_") and affected(each) > {*BROKERS}
    ]
    assert reads("tests/brokers/kafka/test_retry.py") and reads("tests/http/test_stalls.py")
    assert not reads("tests/e2e/test_readme.py") and not reads("tests/http/test_problems.py")


@pytest.mark.parametrize(
    ("path", "group"),
    [
        ("tests/helm/test_rolling_upgrade.py", "chart"),
        ("tests/brokers/redis/test_contract.py", "redis"),
        ("tests/e2e/test_kill.py", "redis"),
    ],
)
def test_what_a_test_needs_beside_a_broker_decides(path, group):
    """The tests of the chart are read with its group only."""
    (redis,) = (each for each in registry.ORDINARY if each.name == "redis")
    item = SimpleNamespace(nodeid=f"{path}::test_it", callspec=SimpleNamespace(params={"a": redis}))
    assert groups.group_of(cast(pytest.Item, item)) == group
    assert Selection(group).reads(path)


def test_variants_that_a_file_does_not_show_are_refused():
    """A test that takes a variant in a file whose group knows of none."""
    item = SimpleNamespace(
        nodeid="tests/e2e/test_readme.py::test_it", callspec=SimpleNamespace(params={"a": registry.ORDINARY[0]})
    )
    with pytest.raises(KeyError, match=r"tests/e2e/test_readme\.py takes variants"):
        groups.group_of(cast(pytest.Item, item))


@pytest.mark.parametrize("path", ["tests/http/test_problems.py", "tests/unit/test_groups.py"])
def test_a_file_that_make_test_runs_whole_is_read_for_it_alone(path):
    assert Selection("essential").reads(path)
    assert not Selection(",".join(GROUPS)).reads(path) and not Selection("1/8").reads(path)


@pytest.mark.parametrize("path", ["tests/brokers/test_lost_replies.py", "tests/newer/test_suites.py"])
def test_files_of_repeated_tests_are_read_for_the_test_of_their_rows(path):
    assert Selection("essential").reads(path)


def test_what_is_dear_is_left_to_its_group():
    """The whole of a file, and one test of a file whose others are essential."""
    whole, one = "tests/unit/test_sharing.py", "tests/http/test_upload.py"
    essential, group = Selection("essential"), Selection("http,units")
    assert not essential.reads(whole) and group.reads(whole)
    assert essential.reads(one) and group.reads(one)
    for test, is_essential in (("test_100_megabytes_do_not_grow_the_process", False), ("test_it", True)):
        item = cast(pytest.Item, SimpleNamespace(nodeid=f"{one}::{test}", get_closest_marker=lambda name: None))
        assert (essential.takes(item), group.takes(item)) == (is_essential, not is_essential)


def test_what_make_test_leaves_out_of_a_folder_is_of_that_folder():
    assert [each for each in BEYOND if not each.startswith(ESSENTIAL)] == []


def test_a_mark_that_a_file_does_not_show_is_refused():
    """No selection would have the test."""
    item = SimpleNamespace(
        nodeid="tests/http/test_problems.py::test_it", get_closest_marker=lambda name: name == "slow" or None
    )
    with pytest.raises(KeyError, match=r"tests/http/test_problems\.py::test_it is left out of `make test`"):
        Selection("essential").takes(cast(pytest.Item, item))
    assert not groups.is_essential_file("tests/http/test_stalls.py")
    assert not groups.is_essential_file("tests/brokers/redis/test_contract.py")
