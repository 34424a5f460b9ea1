"""The generated parts of the pages say what the program says: ``make docs`` writes them."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from babelgate import envelope
from babelgate.brokers import registry
from tests.suites import all as suites
from tools.feature_table import FEATURES
from tools.generated_docs import PAGES, PARTS, ROOT, SAMPLES, rendered


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_current(page: str) -> None:
    assert (ROOT / page).read_text("utf-8") == rendered(page), "run `make docs`"


def test_every_part_is_on_a_page() -> None:
    found = [
        name for page in PAGES for name in re.findall(r"<!-- generated: (\w+) -->", (ROOT / page).read_text("utf-8"))
    ]
    assert sorted(found) == sorted(PARTS)


def test_every_driver_has_a_column() -> None:
    assert {variant.broker.kind for variant in SAMPLES} == {driver.kind for driver in registry.SCHEMES.values()}


def test_every_feature_names_a_suite_that_every_broker_runs() -> None:
    for feature in FEATURES:
        module, name = feature.suite
        found = getattr(importlib.import_module(f"tests.suites.{module}"), name)
        assert getattr(suites, name) is found, f"tests/suites/all.py lacks {name}"
        assert not feature.page.partition("#")[1] or _has_heading(feature.page), f"no heading {feature.page}"
    for variant in SAMPLES:
        contract = importlib.import_module(f"tests.brokers.{variant.broker.kind}.test_contract")
        assert {feature.suite[1] for feature in FEATURES} <= vars(contract).keys()


def _has_heading(target: str) -> bool:
    page, _, anchor = target.partition("#")
    headings = re.findall("^#+ (.*)$", (ROOT / "docs" / page).read_text("utf-8"), re.MULTILINE)
    return anchor in {heading.lower().replace(" ", "-") for heading in headings}


def test_the_page_about_tracing_has_the_system_of_every_driver() -> None:
    page = (ROOT / "docs" / "tracing.md").read_text("utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith("| `messaging.system` |")]
    assert {driver.system for driver in registry.SCHEMES.values()} == set(re.findall(r"`(\w+)`", row))


def test_every_code_of_the_codec_is_explained() -> None:
    codes = set(re.findall(r"``([a-z]+_[a-z_]+)``", envelope.__doc__ or ""))
    assert "missing_urn" in codes
    page = (ROOT / "docs" / "errors.md").read_text("utf-8")
    assert codes - set(re.findall(r"`([a-z_]+)`", page)) == {"dead_letter"}


def test_every_relative_link_leads_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", sorted((ROOT / "docs/adr").glob("[0-9]*.md")), ids=lambda page: page.stem)
def test_a_decision_has_the_form_of_all(page: Path) -> None:
    """Number and title; context, decision, and what was rejected; the rest where it is needed."""
    text = page.read_text("utf-8")
    number, headings = int(page.name.partition("-")[0]), re.findall("^## (.*)$", text, re.MULTILINE)
    assert text.startswith(f"# {number}. ")
    assert headings[:2] == ["Context", "Decision"] and "Rejected" in headings
    assert re.match(r"# .*\n\n## Context\n", text), "the context comes first"
