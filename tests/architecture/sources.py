"""The project's own source files, as the architecture tests look at them."""

from __future__ import annotations

import ast
import gc
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def parsed(text: str) -> ast.Module:
    """The tree of a module.

    Before Python 3.11.8 a tree is refused with a SystemError if a finalizer, or another thread, parses while it is
    made. Nothing but the garbage collector lets them: https://github.com/python/cpython/issues/106905
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(text)
    finally:
        if collects:
            gc.enable()


def module_name(path: Path) -> str:
    """The dotted name of a source file."""
    parts = path.relative_to(ROOT / "app").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    """Every module of the package ``babelgate``, by name."""
    return {module_name(path): path for path in sorted((ROOT / "app").rglob("*.py"))}


@cache
def imports(path: Path) -> Sequence[str]:
    """The dotted names a file imports anywhere in it, those inside functions and type checks included.

    ``from babelgate import errors`` is ``babelgate.errors``: a name that is a module counts as one.
    """
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(parsed(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in modules() else str(node.module)


@cache
def tracked() -> list[Path]:
    """The text files under version control, and those that are about to be."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout.decode().split("\0")
    return [path for name in listed if name and (path := ROOT / name).is_file() and b"\0" not in path.read_bytes()]


def belongs(name: str, prefix: str) -> bool:
    """Whether module ``name`` is ``prefix`` or lies below it."""
    return name == prefix or name.startswith(prefix + ".")


def binding_family(name: str) -> str | None:
    """The package of a broker's module (``babelgate.brokers.redis.url``: ``babelgate.brokers.redis``); None for the
    kit."""
    below = name.removeprefix("babelgate.brokers.").split(".")
    family = f"babelgate.brokers.{below[0]}"
    return family if name.startswith("babelgate.brokers.") and modules()[family].name == "__init__.py" else None
