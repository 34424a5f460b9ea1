"""A client is made again when a file of it has changed, or when what was made is gone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.clients.languages import Language


@pytest.fixture
def language(tmp_path: Path) -> Language:
    """A client whose package and conformance program are ignored by git. Each run adds a line to ``made/log``."""
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    (tmp_path / ".gitignore").write_text("made/\n.built\n")
    (tmp_path / "generate").write_text("#!/bin/sh\nmkdir -p made\necho once >>made/log\n")
    (tmp_path / "generate").chmod(0o755)
    build = [["cp", "generate", "made/package"], ["cp", "generate", "made/program"]]
    # An absolute path is its own folder.
    return Language(str(tmp_path), programs=[], build=build, package="made/package", run=["made/program"])


def test_what_was_made_is_made_again_only_after_a_change(language: Language) -> None:
    assert language.make()
    assert not language.make()
    (language.folder / "source").write_text("one")
    assert language.make()
    (language.folder / "source").write_text("two")
    assert language.make()
    assert not language.make()
    assert (language.folder / "made/log").read_text() == "once\n" * 3


@pytest.mark.parametrize("name", ["package", "program"])
def test_what_is_gone_is_made_again(language: Language, name: str) -> None:
    assert language.make()
    (language.folder / "made" / name).unlink()
    assert language.make()


def test_what_was_not_made_to_the_end_is_made_again(language: Language) -> None:
    assert language.make()
    generate = language.folder / "generate"
    whole = generate.read_text()
    generate.write_text(f"{whole}exit 1\n")
    with pytest.raises(subprocess.CalledProcessError):
        language.make()
    generate.write_text(whole)
    assert language.make()
