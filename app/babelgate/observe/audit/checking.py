"""Checks the files of a trail: their lines, seals and heads, and what the chains say about each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from babelgate.observe.audit.lines import (
    FIRST,
    AuditKey,
    Head,
    files_of,
    hash_of,
    head_path,
    heads_of,
    is_sealed,
    members_of,
    read_head,
)

_ATTEMPTS = 3
"""Most readings of a trail whose files are begun and removed meanwhile."""
MAX_PROBLEMS = 1_000
"""More problems are counted."""


class AuditProblem(Struct, frozen=True):
    """Something that a gateway does not do to its trail. ``line``: its number in ``file``; None: the whole file.
    ``kind``: ``changed``, ``removed``, ``reordered``, ``inserted``, ``truncated``, ``unsealed``, ``head``."""

    kind: str
    file: str
    line: int | None
    detail: str


class AuditChain(Struct, frozen=True, kw_only=True):
    """A chain that was checked. ``first`` and ``last`` are its lowest and highest ``seq``, ``hash`` is the SHA-256 of
    the last line. ``interruptions``: torn ends of files that the next start has recorded. ``torn_bytes``: of the last
    line, if it has no end: a gateway writes it now, or was killed."""

    name: str
    files: int
    records: int
    first: int
    last: int
    hash: str
    interruptions: int
    torn_bytes: int


class AuditReport(Struct, frozen=True):
    """``sealed``: whether the seals were checked, too. ``omitted``: problems beyond the first 1,000."""

    chains: list[AuditChain]
    problems: list[AuditProblem]
    omitted: int
    sealed: bool


class _Torn(Struct, frozen=True):
    file: str
    bytes: int
    sha256: str


class _Missing(Struct, frozen=True):
    after: int
    through: int


class _Details(Struct, frozen=True, kw_only=True):
    """What a start, a file after a failure, and a removal say about files."""

    torn: list[_Torn] = []
    missing: _Missing | None = None
    head: str | None = None
    through: int = 0
    hash: str = ""


class _Findings:
    def __init__(self) -> None:
        self.problems: list[AuditProblem] = []
        self.omitted = 0

    def add(self, kind: str, file: str, line: int | None, detail: str) -> None:
        """Report a problem."""
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(AuditProblem(kind, file, line, detail))
        else:
            self.omitted += 1


def check(directory: Path, keys: Sequence[AuditKey], expected: Mapping[str, Head] | None = None) -> AuditReport:
    """Check the trail in ``directory``, also while gateways write it.

    ``keys``: those that its gateways have, and had; without any, no seal is checked. ``expected``: ends of chains that
    somebody has noted elsewhere. Reads all files, a line at a time. Raises OSError.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            # The heads come first: meanwhile the chains may grow.
            heads = heads_of(directory, keys)
            before = files_of(directory)
            report = _checked(directory, keys, expected or {}, heads, before)
        except FileNotFoundError:
            # Removed by its rules just now.
            if attempt == _ATTEMPTS:
                raise
            continue
        if not report.problems or before == files_of(directory):
            break
    return report


def _checked(
    directory: Path,
    keys: Sequence[AuditKey],
    expected: Mapping[str, Head],
    heads: Mapping[str, Head | None],
    files: Mapping[str, Sequence[tuple[int, Path]]],
) -> AuditReport:
    findings = _Findings()
    noted: dict[str, dict[int, str]] = {}
    # A chain may have begun, or gone on, since its head was read: another reading shows only whether it has one.
    for name in sorted(name for name in files.keys() | heads.keys() if heads.get(name) is None):
        path = head_path(directory, name)
        if not path.exists():
            findings.add("head", path.name, None, "it is gone: a gateway writes it with each record")
        elif read_head(path, keys) is None:
            why = "it is damaged, or was not written by a gateway with these keys"
            findings.add("head", path.name, None, why)
    for name, head in heads.items():
        if head is not None and head.seq:
            noted.setdefault(name, {})[head.seq] = head.hash
    for name, seq, hash in _mentions(files):
        noted.setdefault(name, {}).setdefault(seq, hash)
    for name, head in expected.items():
        noted.setdefault(name, {})[head.seq] = head.hash
    chains = [_Check(name, files[name], keys, noted.get(name, {}), findings).run() for name in sorted(files)]
    for name in sorted(noted.keys() - files.keys()):
        seq = max(noted[name])
        findings.add("removed", name, None, f"the chain is gone: it had at least {seq} records")
    return AuditReport(chains, findings.problems, findings.omitted, bool(keys))


def _mentions(files: Mapping[str, Sequence[tuple[int, Path]]]) -> Iterator[tuple[str, int, str]]:
    """What the first lines of files say about the ends of other chains."""
    for paths in files.values():
        for _, path in paths:
            with open(path, "rb") as file:
                members = members_of(file.readline().rstrip(b"\n")) or {}
            details = members.get("details")
            others = details.get("others") if isinstance(details, dict) else None
            for name, mention in others.items() if isinstance(others, dict) else ():
                match mention:
                    case [int(seq), str(hash)]:
                        yield name, seq, hash


class _Check:
    """The check of one chain. After a problem it goes on with what it found, so that each is reported once."""

    def __init__(
        self,
        name: str,
        files: Sequence[tuple[int, Path]],
        keys: Sequence[AuditKey],
        noted: Mapping[int, str],
        findings: _Findings,
    ) -> None:
        """``noted``: hashes of lines that others know, by ``seq``."""
        self._name = name
        self._files = files
        self._keys = keys
        self._noted = noted
        self._report = findings.add
        self._last: Head | None = None
        """The last record in its place."""
        self._place = "", 0
        """Its file and line."""
        self._bad: list[tuple[str, int, str]] = []
        """Lines since then that no gateway has written so, with the reason."""
        self._start: tuple[str, Head] | None = None
        """The file of the first record, and what comes before it."""
        self._removed: dict[int, str] = {}
        """What the gateway removed by its rules: the last ``seq`` of each file, and the hash of that line."""
        self._torn: dict[str, tuple[int, str]] = {}
        self._records = self._interruptions = 0
        self._unknown_keys: set[str] = set()

    def run(self) -> AuditChain:
        """Check the chain."""
        before = self._files[0][0] - 1
        for number, path in self._files:
            if number != before + 1:
                self._report("removed", path.name, None, f"the files {before + 1} to {number - 1} before it are gone")
            before = number
            self._file(path)
        for file, line, why in self._bad:
            self._report("changed", file, line, why)
        last_file = self._files[-1][1].name
        # Of the last file, a gateway may be writing this line now, or the next start will record it.
        torn_bytes, _ = self._torn.pop(last_file, (0, ""))
        for file in self._torn:
            self._report("changed", file, None, "it ends within a line, and no later start has recorded that")
        self._check_start()
        last = self._last or Head()
        if self._noted and max(self._noted) > last.seq:
            detail = f"the chain ends with record {last.seq}, and it had {max(self._noted)} records"
            self._report("truncated", last_file, None, detail)
        first = 0 if self._start is None else self._start[1].seq + 1
        return AuditChain(
            name=self._name,
            files=len(self._files),
            records=self._records,
            first=first,
            last=last.seq,
            hash=last.hash,
            interruptions=self._interruptions,
            torn_bytes=torn_bytes,
        )

    def _file(self, path: Path) -> None:
        with open(path, "rb") as file:
            for number, text in enumerate(file, 1):
                if text.endswith(b"\n"):
                    self._line(path.name, number, text[:-1])
                else:
                    self._torn[path.name] = len(text), hash_of(text)

    def _line(self, file: str, number: int, line: bytes) -> None:
        members = members_of(line)
        self._records += 1
        why = "it is not a record" if members is None else self._fault(file, number, line, members)
        if members is None or why is not None:
            self._bad.append((file, number, why or ""))
            return
        head, prev = Head(members["seq"], hash_of(line)), str(members.get("prev"))
        if self._last is None:
            before = Head(head.seq - 1 - len(self._bad), prev if not self._bad else "")
            self._start = file, before
            self._last = before
        if self._takes(file, number, head, prev, self._last):
            self._last, self._place = head, (file, number)
            self._read(file, number, members)

    def _fault(self, file: str, number: int, line: bytes, members: Mapping[str, Any]) -> str | None:
        """What is wrong with the line alone."""
        if self._keys:
            sealed = is_sealed(line, self._keys, members.get("key"))
            if sealed is False:
                return f"record {members['seq']} was changed or inserted: its seal is wrong"
            if sealed is None and (key := repr(members.get("key"))) not in self._unknown_keys:
                self._unknown_keys.add(key)
                self._report("unsealed", file, number, f"the key {key} of this and other records is not given")
        noted = self._noted.get(members["seq"])
        if noted is not None and noted != hash_of(line):
            return f"record {members['seq']} is not the one that was written"
        return None

    def _takes(self, file: str, number: int, head: Head, prev: str, last: Head) -> bool:
        """Whether the record comes after the last one, whatever is missing between them."""
        if head.seq <= last.seq:
            self._report("reordered", file, number, f"record {head.seq} comes after record {last.seq}")
            return False
        bad, self._bad = self._bad, []
        missing = head.seq - last.seq - 1
        for place, line, why in bad:
            self._report("changed" if missing else "inserted", place, line, why)
        if missing > len(bad):
            many = f"records {last.seq + 1} to {head.seq - 1} are" if missing > 1 else f"record {head.seq - 1} is"
            self._report("removed", file, number, f"{many} missing before it")
        elif not missing and prev != last.hash:
            self._report("changed", *self._place, f"record {last.seq} is not the one that record {head.seq} follows")
        return True

    def _read(self, file: str, number: int, members: Mapping[str, Any]) -> None:
        """Take note of what a record says about files."""
        kind = members.get("kind")
        if kind not in ("start", "resumed", "retention"):
            return
        try:
            details = msgspec.convert(members.get("details", {}), _Details)
        except msgspec.ValidationError:
            # Its seal was not checked: a gateway does not write it so.
            self._report("changed", file, number, f"record {members['seq']} is not what a gateway writes")
            return
        if kind == "retention":
            self._removed[details.through] = details.hash
        for torn in details.torn:
            if self._torn.get(torn.file) == (torn.bytes, torn.sha256):
                del self._torn[torn.file]
                self._interruptions += 1
        if details.head is not None:
            self._report(
                "head", file, number, "the head was gone or damaged when a gateway started: records may be gone"
            )
        if missing := details.missing:
            detail = f"the records from {missing.after + 1} to {missing.through} were gone when a gateway started"
            self._report("truncated", file, number, detail)

    def _check_start(self) -> None:
        if self._start is None:
            return
        file, before = self._start
        allowed = {0: FIRST, **self._removed}
        if allowed.get(before.seq) != before.hash and before.hash:
            detail = f"the records before {before.seq + 1} are gone, and no record says that the gateway removed them"
            self._report("removed", file, None, detail)
