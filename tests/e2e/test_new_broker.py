"""A new broker, added to a copy of the project by CONTRIBUTING's recipe alone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, tracked

pytestmark = pytest.mark.slow

FILES = Path(__file__).parent / "new_broker"
"""The files that the broker adds, below the places where the recipe has them."""

EDITS = {
    "app/babelgate/brokers/registry.py": (
        '    "sqlite": Driver("sqlite", embedded=True),\n',
        '    "toy": Driver("toy", "toy"),\n',
    ),
    "pyproject.toml": ("[project.optional-dependencies]\n", 'toy = ["msgspec"]\n'),
}
"""The lines that it adds to files of the project, each after another line."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with the broker added, under version control without it."""
    copy = tmp_path_factory.mktemp("project")
    for path in tracked():
        target = copy / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    git(copy, "init", "--quiet")
    git(copy, "add", "--all", "--force")
    shutil.copytree(FILES, copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name, (before, line) in EDITS.items():
        text = (copy / name).read_text("utf-8")
        assert before in text
        (copy / name).write_text(text.replace(before, before + line, 1), "utf-8")
    return copy


def git(directory: Path, *arguments: str) -> list[str]:
    """The lines that git prints."""
    return subprocess.run(["git", *arguments], cwd=directory, check=True, capture_output=True, text=True).stdout.split()


def python(directory: Path, *arguments: str) -> str:
    """What Python prints, run in ``directory``; fails the test if Python fails."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHONPATH"))}
    environ["PYTHONPATH"] = str(directory / "app")
    ran = subprocess.run([sys.executable, *arguments], cwd=directory, env=environ, capture_output=True, text=True)
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-5000:]
    return ran.stdout


def test_it_touches_the_places_that_the_recipe_names(project: Path) -> None:
    added = {f"{Path(name).parent}/" for name in git(project, "ls-files", "--others", "--exclude-standard")}
    changed = set(git(project, "diff", "--name-only"))
    recipe = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("## Adding a broker")[2].partition("\n## ")[0]
    named = set(re.findall(r"^\d\. `([^`]+)`", recipe, re.M))
    assert {place.replace("/toy/", "/<name>/") for place in added | changed} == named


def test_it_passes_the_contract(project: Path) -> None:
    printed = python(project, "-m", "pytest", "-q", "-n4", "tests/brokers/toy")
    assert int(re.findall(r"(\d+) passed", printed)[-1]) > 100, printed


def test_the_tests_over_all_brokers_find_it(project: Path) -> None:
    general = {"tests/brokers/test_idempotency.py", "tests/e2e/test_kill.py", "tests/e2e/test_replicas.py"}
    printed = python(project, "-m", "pytest", "-q", "-n0", "--collect-only", "-k", "toy", *general)
    assert set(re.findall(r"^(tests/\S+?\.py)::", printed, re.M)) == general


def test_it_passes_the_tests_of_the_tree(project: Path) -> None:
    python(project, "-m", "pytest", "-q", "-n0", "tests/architecture", "tests/unit/brokers/test_registry.py")
    python(project, "-m", "pytest", "-q", "-n0", "tests/unit/test_packaging.py", "-k", "toy or extra")


def test_it_has_its_column_in_the_table_of_capabilities(project: Path) -> None:
    written = "from tools import generated_docs; print(generated_docs.abilities())"
    assert " | Toy |" in python(project, "-c", written).splitlines()[0]
