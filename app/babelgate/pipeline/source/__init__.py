"""The Spark data source ``babelgate``: ``from babelgate.pipeline.source import register``. Nothing in ``app`` imports
it.

``register`` loads Spark when it is first used, so importing a module of this package alone does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from babelgate.pipeline.source.data_source import register

__all__ = ["register"]


def __getattr__(name: str) -> Any:
    """Load ``register`` on first use (PEP 562)."""
    if name in __all__:
        from babelgate.pipeline.source import data_source

        return getattr(data_source, name)
    raise AttributeError(name)
