"""What has been ingested: a commit for every batch, and what all of them come to.

A commit is a small JSON file, written in one step when all rows of its batch are where it says. What no commit names is
nobody's: the leftovers of attempts that were killed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from app.observe.journal.record import Segment, parse_segment
from app.pipeline.journal.ranges import Range, Ranges

Owner = tuple[str, str]
"""Node and epoch."""


class LostRecords(NamedTuple):
    """A gap record: so many ``records`` were lost, before the record ``seq`` that tells of it."""

    node: str
    epoch: str
    seq: int
    records: int
    first_lost_at: int
    last_lost_at: int


class DamagedFile(msgspec.Struct, frozen=True):
    """A file that could not be read whole, by this version of the program, as it was then: it may change."""

    url: str
    size: int
    modified_at: int
    reason: str
    code_version: str


class ProcessRecords(msgspec.Struct, frozen=True):
    """Of a process, the records that are there, and the numbers of the segments that were read whole."""

    node: str
    epoch: str
    seqs: list[Range]
    segments: list[Range]


class CommitContent(msgspec.Struct, frozen=True, kw_only=True):
    """What one batch adds, or many together. ``files``: those read whole whose name is no segment's.

    ``mended``: damaged files of earlier batches of which this has read all.
    """

    processes: list[ProcessRecords] = []
    files: list[str] = []
    damaged: list[DamagedFile] = []
    mended: list[str] = []
    lost: list[LostRecords] = []


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """A batch. ``folder`` and ``corrupt_folder``: the names of its folders, None where it has no rows; ``dates``: how
    many records of each date."""

    batch: str
    committed_at: int
    folder: str | None
    corrupt_folder: str | None
    dates: dict[str, int]
    content: CommitContent


class IngestedState:
    """All that has been ingested."""

    def __init__(self) -> None:
        self.seqs: dict[Owner, Ranges] = {}
        self.files: set[str] = set()
        self.damaged: dict[str, DamagedFile] = {}
        self.lost: list[LostRecords] = []
        self._segments: dict[Owner, Ranges] = {}

    def add(self, content: CommitContent) -> None:
        """Add what a batch brought."""
        for process in content.processes:
            owner = process.node, process.epoch
            for kept, more in ((self.seqs, process.seqs), (self._segments, process.segments)):
                if more:
                    ranges = kept.setdefault(owner, Ranges())
                    for each in more:
                        ranges.add_range(each)
        self.files.update(content.files)
        for url in content.mended:
            self.damaged.pop(url, None)
        self.damaged |= {each.url: each for each in content.damaged}
        self.lost.extend(content.lost)

    def content(self) -> CommitContent:
        """The same, as it is stored."""
        owners = sorted(self.seqs.keys() | self._segments.keys())
        nothing = Ranges()
        processes = [
            ProcessRecords(*owner, list(self.seqs.get(owner, nothing)), list(self._segments.get(owner, nothing)))
            for owner in owners
        ]
        damaged = [self.damaged[url] for url in sorted(self.damaged)]
        return CommitContent(processes=processes, files=sorted(self.files), damaged=damaged, lost=self.lost)

    def has(self, url: str) -> bool:
        """Whether the file has been read whole, perhaps elsewhere, under its segment's name."""
        segment = segment_of(url)
        if segment is None:
            return url in self.files
        ranges = self._segments.get((segment.node, segment.epoch))
        return ranges is not None and segment.number in ranges

    @property
    def records(self) -> int:
        """How many records are there."""
        return sum(map(len, self.seqs.values()))


def segment_of(url: str) -> Segment | None:
    """The segment that a file is by its name; None: it is not called like one."""
    return parse_segment(url.rpartition("/")[2])


def read_whole(urls: Iterable[str], seqs: Mapping[Owner, Ranges]) -> tuple[list[ProcessRecords], list[str]]:
    """The processes of a batch, of which ``seqs`` are the records and ``urls`` the files read whole; and those files
    that are called like no segment."""
    segments: dict[Owner, Ranges] = {}
    files = []
    for url in urls:
        segment = segment_of(url)
        if segment is None:
            files.append(url)
        else:
            segments.setdefault((segment.node, segment.epoch), Ranges()).add(segment.number, 0)
    nothing = Ranges()
    processes = [
        ProcessRecords(*owner, list(seqs.get(owner, nothing)), list(segments.get(owner, nothing)))
        for owner in sorted(seqs.keys() | segments.keys())
    ]
    return processes, sorted(files)
