"""The extras of this distribution: optional parts, each with libraries that are imported only when it is used."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec


def how_to_install(extra: str) -> str:
    """What to do about a library of ``extra`` that is missing, without a full stop."""
    return f"install the extra {extra} with pip install '.[{extra}]' in the folder of babelgate's source"


def missing(modules: Sequence[str]) -> str:
    """Those of ``modules`` that are not installed, as a list in words; empty if all are."""
    return ", ".join(name for name in modules if find_spec(name) is None)
