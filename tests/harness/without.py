"""Runs babelgate as if some modules were not installed: ``python -m tests.harness.without FOLDER MODULES ARGUMENTS``.

The program of :class:`tests.harness.program.Fork`. ``FOLDER`` is the working folder, ``MODULES`` are names between
commas.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


class Remaining:
    """A PathFinder that does not find the modules ``gone`` and what is in them."""

    def __init__(self, gone: Sequence[str]) -> None:
        self._gone = gone

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return None if is_in(name, self._gone) else PathFinder.find_spec(name, path, target)


def is_in(name: str, modules: Sequence[str]) -> bool:
    """Whether a module is one of these, or a part of one."""
    return any(name == each or name.startswith(f"{each}.") for each in modules)


def main(folder: str, modules: str, *arguments: str) -> None:
    """Run babelgate. A module that is loaded already is an AssertionError: the program needs it without the extra."""
    gone = modules.split(",")
    assert [name for name in sys.modules if is_in(name, gone)] == []
    os.chdir(folder)
    sys.meta_path[:] = [Remaining(gone) if each is PathFinder else each for each in sys.meta_path]
    sys.argv[1:] = arguments
    runpy.run_module("babelgate", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
