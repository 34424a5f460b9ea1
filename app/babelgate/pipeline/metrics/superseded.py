"""Removes what later runs of ``metrics`` have superseded."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from babelgate.pipeline.metrics.parts import ENTANGLED, OPEN, parts_in
from babelgate.pipeline.storage.datasets import DatasetReader, Manifest


def remove_superseded(store: DatasetReader, datasets: Sequence[str], current: Manifest, until: int) -> list[str]:
    """Remove parts that were current at no time since ``until`` (Unix ms), leftovers of killed runs, and of all runs
    but the current one what only the next run needs.

    ``current``: the manifest of the current run. Returns the removed paths below the root. The caller owns the lock of
    ``metrics``.
    """
    kept = _kept(store, datasets[-1], current, until)
    places = [place for dataset in datasets for place in _unused(store, dataset, kept)]
    places += _of_former_runs(store, current["run_id"], {*places})
    for place in places:
        store.files.remove(place)
    return [place.removeprefix(f"{store.root}/") for place in places]


def _kept(store: DatasetReader, last: str, current: Manifest, until: int) -> dict[str, Manifest]:
    """The runs that were current at ``until`` or later, by id. ``last``: the dataset whose manifest is written last."""
    # A run without it never was current.
    found = ((run, store.manifest(last, run)) for run in store.files.folders(store.folder(last), "run="))
    made = {run: manifest for run, manifest in found if manifest is not None}
    made[current["run_id"]] = current
    times = {run: int(manifest["completed_at"]) for run, manifest in made.items()}
    # Of runs completed in the same millisecond, all may have been current.
    first = max((at for at in times.values() if at <= until), default=until)
    return {run: made[run] for run, at in times.items() if at >= first}


def _unused(store: DatasetReader, dataset: str, kept: dict[str, Manifest]) -> Iterator[str]:
    home = store.folder(dataset)
    used = {(run, part) for manifest in kept.values() for part, run in manifest["parts"][dataset].items()}
    runs_in_use = {run for run, _ in used}
    for run in store.files.folders(home, "run="):
        place = f"{home}/run={run}"
        if run in kept:
            continue
        if run not in runs_in_use:
            yield place
        else:
            yield from (f"{place}/date={part}" for part in parts_in(store.files, place) if (run, part) not in used)


def _of_former_runs(store: DatasetReader, current: str, gone: Collection[str]) -> Iterator[str]:
    """The files that a run keeps for the next one alone, in the folders of other runs that stay."""
    home = store.folder("lifecycle")
    for run in store.files.folders(home, "run="):
        place = f"{home}/run={run}"
        if run == current or place in gone:
            continue
        for each in store.files.list(place):
            name = each.url.rpartition("/")[2]
            if name == OPEN or name.startswith(ENTANGLED):
                yield f"{place}/{name}"
