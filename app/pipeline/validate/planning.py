"""Which task reads what: large files are shared, small ones put together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from app.pipeline.storage.input_files import InputFile
from app.pipeline.storage.inputs import Split
from app.pipeline.validate.bodies import is_divisible

_SHARE_BYTES = 16 * 1024 * 1024
"""A task's share: small enough that progress is seen, large enough that its start does not count."""
_MOST_TASKS = 10_000
_OPENING_BYTES = 256 * 1024
"""What opening a file costs, as if it had so many bytes more."""


def plan(files: Sequence[InputFile], form: str) -> list[list[Split]]:
    """The tasks, each a list of parts of files that fit together; every byte of every file is in one of them."""
    share = max(_SHARE_BYTES, sum(file.size for file in files) // _MOST_TASKS)
    tasks: list[list[Split]] = []
    room = 0
    for split, size in (each for file in files for each in _parts(file, share, form)):
        if not tasks or room < size:
            tasks.append([])
            room = share + _OPENING_BYTES
        tasks[-1].append(split)
        room -= size + _OPENING_BYTES
    return tasks


def _parts(file: InputFile, share: int, form: str) -> Iterator[tuple[Split, int]]:
    if file.size <= share or not _is_divisible(file, form):
        yield Split(file.url, 0, None, file.is_regular), file.size
        return
    starts: Iterable[int] = range(0, file.size, share)
    for start in starts:
        end = start + share
        yield Split(file.url, start, end if end < file.size else None, True), min(share, file.size - start)


def _is_divisible(file: InputFile, form: str) -> bool:
    try:
        return file.is_regular and is_divisible(file.url, form)
    except OSError:
        return False
