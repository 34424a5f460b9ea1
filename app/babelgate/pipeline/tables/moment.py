"""One moment of all tables: the file ``_tables.json`` in the lake names a version of each, to be joined."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec

from babelgate.pipeline.errors import JobFailed
from babelgate.pipeline.storage.arrow_files import ArrowFiles
from babelgate.pipeline.storage.input_files import native_url

if TYPE_CHECKING:
    from deltalake import DeltaTable

_FILE = "_tables.json"


class TableVersion(msgspec.Struct, frozen=True):
    """A version of a table. ``path``: relative to the lake."""

    name: str
    path: str
    version: int


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """A version of each table, by name, that belong together. ``made_at``: Unix ms."""

    made_at: int
    tables: Mapping[str, TableVersion] = {}


def read_moment(files: ArrowFiles) -> Moment | None:
    """The moment of the lake at the root of ``files``; None before the first table."""
    content = files.read(f"{files.root}/{_FILE}")
    return None if content is None else msgspec.json.decode(content, type=Moment)


def save_moment(files: ArrowFiles, versions: Sequence[TableVersion]) -> None:
    """Replace the versions of these tables in the moment, in one step. The other tables stay as they are."""
    former = read_moment(files)
    tables = dict(former.tables) if former is not None else {}
    made = tables | {each.name: each for each in versions}
    if made != tables:
        now = time.time_ns() // 1_000_000
        content = msgspec.json.format(msgspec.json.encode(Moment(made_at=now, tables=made)), indent=2)
        files.write(f"{files.root}/{_FILE}", content + b"\n")


def open_tables(root: str) -> dict[str, DeltaTable]:
    """The tables of the lake at ``root``, by name, all of one moment. Raises JobFailed if it has none."""
    from deltalake import DeltaTable

    files = ArrowFiles(root)
    moment = read_moment(files)
    if moment is None:
        raise JobFailed(f"{root} has no tables: run `babelgate pipeline tables` first")
    home = delta_url(files)
    return {name: DeltaTable(f"{home}/{each.path}", version=each.version) for name, each in moment.tables.items()}


def delta_url(files: ArrowFiles) -> str:
    """The root of ``files`` as the libraries of Delta Lake take it. Raises JobFailed for a folder that they mistake.

    They decode the path of a local folder once more, and so would look for ``a%20b`` in ``a b``.
    """
    if files.is_local and unquote(files.root) != files.root:
        raise JobFailed(
            f"{files.root}: Delta Lake takes {_ESCAPE.findall(files.root)[0]} for an escape: rename the folder"
        )
    return native_url(files.root)


_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")
