"""Whose segments are whose: a lock for each process in the directory of open segments, and what dead ones left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from app.observe.journal.record import OPEN, PART, parse_segment
from app.observe.journal.segments import trim
from app.observe.logs import get_logger
from app.runtime.files import FileLock

_LOCK = ".lock"

log = get_logger("babelgate.journal")


class Claim:
    """The right to the segments of one process; it ends with the process that holds it, however that ends.

    A lock of flock(2): ``directory`` lies on a disk of this host.
    """

    def __init__(self, owner: str, lock: FileLock) -> None:
        self.owner = owner
        self._lock = lock

    @classmethod
    def take(cls, directory: Path, owner: str) -> Claim | None:
        """The claim to what ``owner`` wrote; None: it is alive, or another took its claim. Raises OSError."""
        return cls._taken(directory, owner, wait=False)

    @classmethod
    def own(cls, directory: Path, owner: str) -> Claim:
        """The claim of this process, before it writes anything. Raises OSError.

        Blocks for the moment in which another that looks for orphans may hold it, between the file and the lock.
        """
        claim = cls._taken(directory, owner, wait=True)
        assert claim is not None
        return claim

    @classmethod
    def _taken(cls, directory: Path, owner: str, *, wait: bool) -> Claim | None:
        while True:
            lock = FileLock(directory / f"{owner}{_LOCK}", create_mode=0o600)
            try:
                if wait:
                    lock.acquire()
                elif not lock.try_acquire():
                    lock.close()
                    return None
                # The process that held the lock may have removed the file in between; another would lock a new file.
                if lock.is_current():
                    return cls(owner, lock)
            except OSError:
                lock.close()
                raise
            lock.close()

    def release(self) -> None:
        """Nothing is left of these segments here. Raises OSError."""
        self._lock.path.unlink(missing_ok=True)
        self._lock.close()


def orphans(directory: Path) -> Iterator[tuple[Claim, list[Path]]]:
    """The segments of each process that is dead, trimmed and closed, with the claim to them. Raises OSError.

    Those of one process come in order. A claim without segments is released already, and does not come.
    """
    owners = {found.owner for path in directory.iterdir() if (found := parse_segment(path.name))}
    owners |= {path.name.removesuffix(_LOCK) for path in directory.glob(f"*{_LOCK}")}
    for owner in sorted(owners):
        claim = Claim.take(directory, owner)
        if claim is None:
            continue
        for path in directory.glob(f"{owner}-*{PART}"):
            path.unlink()
        paths = [path for path in directory.iterdir() if (found := parse_segment(path.name)) and found.owner == owner]
        closed = [path for path in map(_closed, sorted(paths)) if path is not None]
        if closed:
            yield claim, closed
        else:
            claim.release()


def _closed(path: Path) -> Path | None:
    """The complete file of a dead process; None where nothing of it can be read."""
    if path.suffix != OPEN:
        return path
    cut = trim(path)
    if cut:
        log.warning("the end of a segment was no record and is cut off", file=path.name, bytes=cut)
    if not path.stat().st_size:
        path.unlink()
        return None
    return path.rename(path.with_suffix(""))
