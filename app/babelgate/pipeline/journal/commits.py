"""Commits of ingested batches, and the state they add up to.

A commit is a small JSON file, written atomically after all rows of its batch are written. Folders that no commit names
are leftovers of killed attempts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from babelgate import __version__
from babelgate.observe.journal.record import Segment, parse_segment
from babelgate.pipeline.journal.ranges import Range, Ranges

Owner = tuple[str, str]
"""A gateway process: node and epoch."""


class LostRecords(NamedTuple):
    """A gap record with the number ``seq``: ``records`` records before it were lost. Times are Unix ms."""

    node: str
    epoch: str
    seq: int
    records: int
    first_lost_at: int
    last_lost_at: int


class DamagedFile(msgspec.Struct, frozen=True):
    """A file that ``code_version`` of this program could not read completely. It may change later."""

    url: str
    size: int
    modified_at: int
    reason: str
    code_version: str


class ProcessRecords(msgspec.Struct, frozen=True):
    """The ingested records of a process, and the numbers of the segments that were read completely."""

    node: str
    epoch: str
    seqs: list[Range]
    segments: list[Range]


class TopicPosition(msgspec.Struct, frozen=True):
    """Up to where a topic was read: the offset of the next message in each partition.

    ``topic_id``: a topic that was deleted and created again has another one.
    """

    cluster_id: str
    topic: str
    topic_id: str
    offsets: list[int]


class CommitContent(msgspec.Struct, frozen=True, kw_only=True):
    """What one or more batches add. ``files``: completely read files whose names are not those of segments.

    ``mended``: damaged files of earlier batches that were now read completely. ``topics``: where the next batch begins.
    """

    processes: list[ProcessRecords] = []
    files: list[str] = []
    damaged: list[DamagedFile] = []
    mended: list[str] = []
    lost: list[LostRecords] = []
    topics: list[TopicPosition] = []


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """A batch. ``folder`` and ``corrupt_folder``: the names of its folders, None without rows; ``dates``: records per
    ISO date; ``committed_at``: Unix ms."""

    batch: str
    committed_at: int
    folder: str | None
    corrupt_folder: str | None
    dates: dict[str, int]
    content: CommitContent


class IngestedState:
    """Everything ingested so far."""

    def __init__(self) -> None:
        self.seqs: dict[Owner, Ranges] = {}
        self.files: set[str] = set()
        self.damaged: dict[str, DamagedFile] = {}
        self.lost: list[LostRecords] = []
        self.topics: dict[tuple[str, str], TopicPosition] = {}
        """By the id of the cluster and the name of the topic."""
        self._segments: dict[Owner, Ranges] = {}

    def add(self, content: CommitContent) -> None:
        """Add the content of a batch."""
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
        self.topics |= {(each.cluster_id, each.topic): each for each in content.topics}

    def content(self) -> CommitContent:
        """The state in its stored form."""
        owners = sorted(self.seqs.keys() | self._segments.keys())
        nothing = Ranges()
        processes = [
            ProcessRecords(*owner, list(self.seqs.get(owner, nothing)), list(self._segments.get(owner, nothing)))
            for owner in owners
        ]
        damaged = [self.damaged[url] for url in sorted(self.damaged)]
        topics = [self.topics[each] for each in sorted(self.topics)]
        return CommitContent(
            processes=processes, files=sorted(self.files), damaged=damaged, lost=self.lost, topics=topics
        )

    def has(self, url: str) -> bool:
        """Whether the file, or another copy of its segment, has been read completely."""
        segment = segment_of(url)
        if segment is None:
            return url in self.files
        ranges = self._segments.get((segment.node, segment.epoch))
        return ranges is not None and segment.number in ranges

    def is_changed(self, url: str, size: int, modified_at: int) -> bool:
        """Whether the file was damaged when it was read, and it or this program has changed since.

        ``size`` in bytes and ``modified_at``, Unix ms: as they are now.
        """
        before = self.damaged.get(url)
        if before is None:
            return False
        now = size, modified_at, __version__
        return before.reason == "missing_file" or (before.size, before.modified_at, before.code_version) != now

    @property
    def records(self) -> int:
        """The number of ingested records."""
        return sum(map(len, self.seqs.values()))


def segment_of(url: str) -> Segment | None:
    """The segment that the file name denotes; None if it is not a segment name."""
    return parse_segment(url.rpartition("/")[2])


def read_whole(urls: Iterable[str], seqs: Mapping[Owner, Ranges]) -> tuple[list[ProcessRecords], list[str]]:
    """The processes of a batch with the records ``seqs`` and the completely read files ``urls``; and the ``urls`` that
    are not named like segments."""
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
