"""One moment of all tables: the file ``_tables.json`` in the lake names a version of each, to be joined."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from babelgate.pipeline.errors import JobFailed
from babelgate.pipeline.storage.arrow_files import ArrowFiles

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

    moment = read_moment(ArrowFiles(root))
    if moment is None:
        raise JobFailed(f"{root} has no tables: run `babelgate pipeline tables` first")
    home = root.rstrip("/").replace("s3a://", "s3://", 1).replace("s3n://", "s3://", 1)
    return {name: DeltaTable(f"{home}/{each.path}", version=each.version) for name, each in moment.tables.items()}
