"""What only the garbage collector frees: objects in cycles of references."""

from __future__ import annotations

import contextlib
import gc
import inspect
from collections.abc import Iterator


def set_aside() -> None:
    """The collector visits no object again that exists now, so that a collection is short. A test calls it before it
    makes what it is about: garbage that refers to such an object is found, and a cycle through one is not."""
    gc.collect()
    # They stay frozen, like those that pytest has collected.
    gc.freeze()


@contextlib.contextmanager
def without_collector() -> Iterator[list[str]]:
    """No garbage is collected during the block. At its end the list has the objects of the application, described, that
    became garbage in it: each was in a cycle."""
    found: list[str] = []
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found += sorted(filter(None, map(_description, gc.garbage)))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def _description(found: object) -> str | None:
    """The class or function of ``found``; None if it is not the application's."""
    # A generic or a proxy answers by itself for what it stands for, so the class is asked.
    of = found if inspect.isfunction(found) else type(found)
    return f"{of.__module__}.{of.__qualname__}" if (of.__module__ or "").startswith("babelgate.") else None
