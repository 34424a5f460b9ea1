"""The steps of ``metrics`` by DuckDB for what is new: the rows that whole dates would give, from the messages that new
records touch.

Counts and sizes of new records are added to those of their dates. Messages with new events are combined once more from
all of their events, and replace their former rows. A large date is in slices, of which only those with such messages
are written again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import date, timedelta
from typing import NamedTuple

from babelgate.pipeline.duckdb_engine.lake import DuckDBLake, parquet_files
from babelgate.pipeline.journal.reader import Snapshot
from babelgate.pipeline.metrics import duckdb_events as events_sql
from babelgate.pipeline.metrics import duckdb_lifecycles as lives_sql
from babelgate.pipeline.metrics import duckdb_messages as messages_sql
from babelgate.pipeline.metrics.dates import DAY_MS, midnight
from babelgate.pipeline.metrics.duckdb_stages import DuckDBMetricsWriter
from babelgate.pipeline.metrics.missing_spans import MissingSpans
from babelgate.pipeline.metrics.parts import (
    DIVIDED,
    ENTANGLED,
    OPEN,
    SLICE,
    SLICE_MS,
    DatasetParts,
    Parts,
    part_of,
    parts_of_days,
)
from babelgate.pipeline.metrics.since import Former, WholeDatesNeeded
from babelgate.pipeline.storage.duckdb_sql import literal
from babelgate.pipeline.storage.schemas import DATASETS, JOURNAL

DIVIDED_BYTES = 8 * 1024 * 1024
"""A date of ``lifecycle`` or ``traces`` with more than this is written in slices."""
_OPEN_COLUMNS = "date, created_at, accepted_at, first_at, ended_at, last_queue, last_event, at_least"
_PLACED = {"lifecycle": messages_sql.BEGAN, "traces": "started_at"}
"""The time that decides the slice of a row."""


Slices = dict[date, set[int] | None]
"""By date: the slices to write; None: the whole date."""


class _Spot(NamedTuple):
    """A slice of a date; None: all of it."""

    date: date
    number: int | None


class DuckDBIncrement(DuckDBMetricsWriter):
    """A :class:`~babelgate.pipeline.metrics.stages.StageWriter` for the records that came since ``former``.

    :meth:`touched` raises WholeDatesNeeded where rows of whole dates would be made of other records than former rows.
    """

    def __init__(
        self,
        lake: DuckDBLake,
        journal: Snapshot,
        former: Former,
        run: str,
        dates: Collection[str],
        missing_spans: MissingSpans,
        parts: Parts,
    ) -> None:
        self._former = former
        self._journal = journal
        self._dates = sorted(dates)
        first = date.fromisoformat(self._dates[0])
        self._seen_from = min([first, *former.seen_from.values()]).isoformat()
        """The first date of the records that rows of followed messages are made of."""
        self._seen_otherwise = {day: max(seen, first) for day, seen in former.seen_from.items() if seen != first}
        """The dates whose rows are made of earlier or later records than those of this run, or that have none by those,
        and the first date of those that are in both."""
        self._is_wide = False
        super().__init__(lake, journal, run, dates, missing_spans, parts)

    def _load(self, journal: Snapshot, dates: Collection[str]) -> None:
        home = self._lake.reader.folder(JOURNAL.name)
        folders = [f"{home}/{each.folder}" for each in self._former.fresh if each.folder is not None]
        self._lake.table("fresh", self._records(folders, dates))
        self._lake.table("ids", lives_sql.ids("fresh"))
        self._lake.table("entangled", self._known_entangled())
        blank = f"select message_id from ({lives_sql.without_created_at('fresh')})"
        found = f"from ids where message_id in (select message_id from entangled) or message_id in ({blank}) limit 1"
        self._is_wide = bool(self._lake.rows(found))

    def _known_entangled(self) -> str:
        """The ids that were entangled before this run, or with it if they have to be found in all records."""
        folder = self._lake.reader.folder("lifecycle", self._former.run)
        for each in self._lake.reader.files.list(folder):
            name = each.url.rpartition("/")[2]
            # Those of later dates alone would lack ids of late records.
            if name.startswith(ENTANGLED) and name <= f"{ENTANGLED}{self._seen_from}.parquet":
                rows = f"select * from read_parquet({literal(each.url)})"
                return f"select * from ({rows}) where last_date >= date '{self._seen_from}'"
        dates = [day for day in self._journal.dates() if day >= self._seen_from]
        self._lake.view("records", self._records(self._journal.folders(dates), dates))
        blank = f"select message_id from ({lives_sql.without_created_at('records')})"
        self._lake.table("pool", f"select * from records where message_id in ({blank})")
        return lives_sql.entangled("pool")

    def events(self, days: Collection[date]) -> None:
        """Add the counts and sizes of new records to those of ``days``."""
        lake = self._lake
        lake.view("former_counts", self._read("throughput", days))
        lake.view("fresh_counts", events_sql.throughput("fresh", self._missing_spans))
        lake.view("both_counts", "select * from former_counts union all by name select * from fresh_counts")
        self._write("throughput", events_sql.added_throughput("both_counts"), days)
        lake.view("counted", self._read("throughput", days))
        self._write("rates", events_sql.rates("counted"), days)
        lake.view("former_sizes", self._read("payload", days))
        histogram = f"{events_sql.sizes_of('former_sizes')} union all by name ({events_sql.sizes('fresh')})"
        self._write("payload", events_sql.payload(histogram, self._missing_spans), days)

    def touched(self, days: Collection[date]) -> set[date]:
        """The dates of the messages that have new events."""
        self._lake.table("keys", lives_sql.keys("fresh"))
        if self._is_wide:
            rows = self._records(self._journal.folders(self._dates), self._dates)
            self._lake.table("journal", f"select * from ({rows}) where message_id in (from ids)")
            touched = super().touched(days)
            both = f"select * from entangled union all by name ({lives_sql.entangled('journal', 'entangled')})"
            folds = ", ".join(f"{fold}({name}) as {name}" for name, fold in lives_sql.ENTANGLED_DATES.items())
            self._lake.table("entangled", f"select message_id, {folds} from ({both}) group by message_id")
        else:
            self._lake.table("journal", self._of_keys())
            day = lives_sql.day_of("created_at")
            touched = {row["day"] for row in self._lake.rows(f"select distinct {day} as day from keys")}
        self._require_equal_views(days, touched)
        ends = {date.fromisoformat(day): at for day, at in self._former.last_at.items()}
        for row in self._lake.rows('select date, max("at") as last_at from fresh group by date'):
            ends[row["date"]] = max(row["last_at"], ends.get(row["date"], row["last_at"]))
        self._last_at = ends
        return touched

    def _require_equal_views(self, days: Collection[date], touched: Collection[date]) -> None:
        """Raise WholeDatesNeeded if whole dates would write a date of a followed message that has events that are in
        former rows or in those of this run, and not in both."""
        # If what dates a message is not among the records, it has the date of another event.
        ends = "from entangled where first_date < date '{}' and greatest(last_day, last_date) >= date '{}' limit 1"
        doubtful = [day for day, first in self._seen_otherwise.items() if self._lake.rows(ends.format(first, day))]
        # Other dates stay as they are, as long as no record comes to them.
        if doubtful and not {*touched, *self._written_by_whole_dates(days)}.isdisjoint(doubtful):
            raise WholeDatesNeeded("a message without created_at has events older than --lookback-days")

    def _written_by_whole_dates(self, days: Collection[date]) -> set[date]:
        """The dates of the messages with events on ``days``, and maybe others."""
        lake = self._lake
        isos = [day.isoformat() for day in sorted(days) if day.isoformat() in self._dates]
        lake.view("of_days", self._records(self._journal.folders(isos), isos))
        found = {row["day"] for row in lake.rows(f"select distinct day from ({lives_sql.dated('of_days')})")}
        lake.table("tangled", f"select * from entangled where message_id in ({lives_sql.ids('of_days')})")
        if not lake.rows("from tangled limit 1"):
            return found
        lives = f"select distinct date from ({self._read('lifecycle', list(self._former.seen_from))})"
        found |= {row["date"] for row in lake.rows(f"{lives} where message_id in (select message_id from tangled)")}
        spans = "least(first_day, first_date) as first, greatest(last_day, last_date) as last"
        for row in lake.rows(f"select distinct {spans} from tangled"):
            found |= {day for day in self._seen_otherwise if row["first"] <= day <= row["last"]}
        return found

    def _of_keys(self) -> str:
        """All records of the messages with new events. Each has their ``created_at``."""
        (row,) = self._lake.rows("select min(created_at) as first, max(created_at) as last from keys")
        if row["first"] is None:
            return "select * from fresh where false"
        # The clock of a record's gateway is at most a day behind that of the producer.
        since = (date(1970, 1, 1) + timedelta(days=row["first"] // DAY_MS - 1)).isoformat()
        dates = [day for day in self._dates if day >= since]
        # Named in both ways: whole groups of rows are skipped by the bounds.
        return f"""
            select * from ({self._records(self._journal.folders(dates), dates)})
            where created_at between {row["first"]} and {row["last"]}
                and created_at in (select created_at from keys)
                and (message_id, created_at) in (select (message_id, created_at) from keys)
        """

    def messages(self, days: Collection[date]) -> None:
        """Combine the messages of ``days`` with new events, with their latencies and traces."""
        slices = self._messages(days) if days else {}
        self._keep_open(slices)
        folder = self._lake.reader.folder("lifecycle", self._run)
        self._lake.reader.files.make_folder(folder)
        for name, rows in ((f"{ENTANGLED}{self._seen_from}.parquet", "entangled"), (OPEN, "still")):
            self._lake.run(f"copy (from {rows}) to {literal(f'{folder}/{name}')} (format parquet)")
        for dataset in DIVIDED:
            self._make_one_whole(dataset)

    def _messages(self, days: Collection[date]) -> Slices:
        lake = self._lake
        window = midnight(min(days)), midnight(max(days)) + DAY_MS - 1
        dated = f"select * from ({lives_sql.with_message_dates('journal', window)}) where {_is_in('day', days)}"
        lake.table("dated", dated)
        self._find_homes()
        lake.table("renewed", lake.typed(lives_sql.lifecycle("dated", "homes", self._missing_spans), "lifecycle"))
        if self._is_wide:
            is_old = "message_id in (from ids)"
        else:
            is_old = "(message_id, created_at) in (select (message_id, created_at) from keys)"
        places = [f"select date, {messages_sql.BEGAN} as began from renewed"]
        if self._is_wide:
            former = self._read("lifecycle", days)
            places.append(f"select date, {messages_sql.BEGAN} as began from ({former}) where {is_old}")
        # Otherwise a former row has the date and the slice of the new one, as these follow from ``created_at``.
        slices = self._slices("lifecycle", days, places)
        former = self._rows_in("lifecycle", slices)
        lake.table("former", f"select distinct trace_id from ({former}) where {is_old}")
        self._rewrite("lifecycle", slices, "renewed", is_old)
        self._latencies(slices)
        named = "select trace_id from {} where trace_id is not null"
        lake.table("touched", f"{named.format('former')} union {named.format('renewed')}")
        self._renew_traces()
        return slices

    def _keep_open(self, slices: Slices) -> None:
        """Keep the messages without an end as the table ``still``: those of ``slices`` from their rows,
        the others from the former run."""
        url = f"{self._lake.reader.folder('lifecycle', self._former.run)}/{OPEN}"
        if self._lake.reader.files.exists(url):
            former = f"select * from read_parquet({literal(url)}) where not {_is_within(messages_sql.BEGAN, slices)}"
            now = f"select {_OPEN_COLUMNS} from ({self._rows_in('lifecycle', slices)}) where ended_at is null"
            self._lake.table("still", f"{former} union all by name {now}")
        else:
            self._lake.table("still", f"select {_OPEN_COLUMNS} from ({self._read('lifecycle')}) where ended_at is null")

    def _open_lives(self, day: date, at: int, latest: date) -> str:
        # All events are of the latest day or earlier, so a message with an end has it by then.
        return "select * from still" if day == latest else super()._open_lives(day, at, latest)

    def _latencies(self, slices: Slices) -> None:
        """Recompute the latencies of the minutes in slices that were written, and of their days."""
        self._lake.view("now", self._rows_in("lifecycle", slices))
        self._lake.view("former_minutes", self._read("latency_hist", list(slices)))
        minutes = f"""
            select * from ({messages_sql.latency_hist("now")}) where grain = 'minute'
            union all by name
            select * from former_minutes where grain = 'minute' and not {_is_within('"at"', slices)}
        """
        self._write("latency_hist", messages_sql.with_days(minutes), slices)
        self._lake.view("histogram", self._read("latency_hist", list(slices)))
        self._write("latency", messages_sql.latency("histogram"), slices)

    def _renew_traces(self) -> None:
        """Recompute the ``touched`` traces. Which messages such a trace had is in its former row."""
        lake = self._lake
        is_touched = "trace_id in (from touched)"
        began = """[{'at': hop."at", 'is_known': hop.created_at is not null} for hop in hops]"""
        kept = f"select date, trace_id, started_at, messages, {began} as began from ({self._parts_with('traces')})"
        lake.table("former_traces", f"select * from ({kept}) where {is_touched}")
        (row,) = lake.rows("select count(*) filter (messages > len(began)) as large from former_traces")
        times = "select unnest(began, max_depth := 2) from former_traces"
        (unknown,) = lake.rows(f"select count(*) as n from ({times}) where not is_known")
        if row["large"] or unknown["n"]:
            lives = self._parts_with("lifecycle")
        else:
            at = '"at"'
            members = f"select {lives_sql.day_of(at)} as date, {_number(at)} as number from ({times})"
            members += f" union select date, {_number(messages_sql.BEGAN)} from renewed"
            found = [_Spot(each["date"], each["number"]) for each in lake.rows(members)]
            lives = lake.parts("lifecycle", self._holding("lifecycle", found))
        lake.view("touched_lives", f"select * from ({lives}) where {is_touched}")
        lake.table("new_traces", lake.typed(messages_sql.traces("touched_lives"), "traces"))
        places = [f"select date, started_at as began from {each}" for each in ("former_traces", "new_traces")]
        days = [each["date"] for each in lake.rows(f"select distinct date from ({' union all '.join(places)})")]
        slices = self._slices("traces", days, places)
        self._rewrite("traces", slices, "new_traces", is_touched)

    def _parts_with(self, dataset: str) -> str:
        """The parts of all dates that have rows of ``touched`` traces. To find them, one column is read."""
        found = self._lake.rows(
            f"select distinct date, {_number(_PLACED[dataset])} as number from ({self._read(dataset)}) "
            "where trace_id in (from touched)"
        )
        spots = [_Spot(each["date"], each["number"]) for each in found]
        return self._lake.parts(dataset, self._holding(dataset, spots))

    def _make_one_whole(self, dataset: str) -> None:
        """Write a divided date that rests as a whole one. The others wait for later runs, so that each is short."""
        for day in self._former.resting.get(dataset, ()):
            parts = parts_of_days(self.parts[dataset], [day])
            if not parts or self._run in parts.values():
                continue
            folder = self._lake.reader.folder(dataset, self._run)
            self._lake.reader.files.make_folder(folder)
            # An earlier attempt of this run may have left files.
            self._lake.reader.files.remove(f"{folder}/date={day}")
            rows = self._lake.typed(self._lake.parts(dataset, parts), dataset)
            self._lake.copy(rows, folder, DATASETS[dataset].partitions)
            for part in parts:
                del self.parts[dataset][part]
            self.parts[dataset][day.isoformat()] = self._run
            return

    def _slices(self, dataset: str, days: Collection[date], places: Sequence[str]) -> Slices:
        """What of ``days`` has replaced or new rows. ``places``: queries of their ``date`` and ``began``."""
        divided = {day: set[int]() for day in days if self._is_divided(dataset, day)}
        if divided:
            found = f"select distinct date, {_number('began')} as number from ({' union all '.join(places)})"
            for row in self._lake.rows(f"{found} where {_is_in('date', divided)}"):
                divided[row["date"]].add(row["number"])
        return {day: divided.get(day) for day in days}

    def _is_divided(self, dataset: str, day: date) -> bool:
        return any(SLICE in part for part in parts_of_days(self.parts[dataset], [day]))

    def _rows_in(self, dataset: str, slices: Slices) -> str:
        """The current rows of slices."""
        return self._lake.parts(dataset, self._holding(dataset, _places(slices)))

    def _holding(self, dataset: str, places: Iterable[_Spot]) -> DatasetParts:
        """The parts with the rows of these places."""
        wanted = {(day.isoformat(), number) for day, number in places}
        days = {day for day, _ in wanted}
        found = {}
        for part, run in self.parts[dataset].items():
            day, _, inner = part.partition("/")
            number = int(inner.removeprefix(SLICE)) if inner else None
            if day in days and (number is None or not wanted.isdisjoint({(day, number), (day, None)})):
                found[part] = run
        return found

    def _rewrite(self, dataset: str, slices: Slices, renewed: str, is_old: str) -> None:
        """Write the rows of slices, of which those of ``renewed`` replace the old ones."""
        folder = self._lake.reader.folder(dataset, self._run)
        large = {day for day, of in slices.items() if of is not None or self._is_large(dataset, day)}
        columns = ", ".join(DATASETS[dataset].columns)

        def rows(days: Collection[date]) -> str:
            former = self._rows_in(dataset, {day: slices[day] for day in days})
            return f"""
                select {columns} from ({former}) where not coalesce({is_old}, false)
                union all by name select {columns} from {renewed} where {_is_in("date", days)}
            """

        self._lake.write(rows(slices.keys() - large), dataset, self._run)
        written = list(self._lake.reader.files.folders(folder, "date="))
        if large:
            written += self._write_divided(rows(large), dataset, folder)
        for part in self._holding(dataset, _places(slices)):
            del self.parts[dataset][part]
        self.parts[dataset].update((part, self._run) for part in written)

    def _write_divided(self, rows: str, dataset: str, folder: str) -> Iterator[str]:
        """Write rows by slices below ``folder``. Yields the parts."""
        files = self._lake.reader.files
        made = f"{folder}/_divided"
        numbered = f"select *, {_number(_PLACED[dataset])} as slice from ({rows})"
        self._lake.copy(numbered, made, ("date", "slice"))
        for day in files.folders(made, "date="):
            files.make_folder(f"{folder}/date={day}")
            for number in files.folders(f"{made}/date={day}", "slice="):
                part = part_of(date.fromisoformat(day), int(number))
                files.rename(f"{made}/date={day}/slice={number}", f"{folder}/date={part}")
                yield part
        files.remove(made)

    def _is_large(self, dataset: str, day: date) -> bool:
        parts = parts_of_days(self.parts[dataset], [day])
        home = self._lake.reader.folder(dataset)
        folders = [f"{home}/run={run}/date={part}" for part, run in parts.items()]
        return sum(size for _, size in parquet_files(self._lake.reader, folders)) > DIVIDED_BYTES


def _places(slices: Slices) -> list[_Spot]:
    return [
        _Spot(day, number) for day, numbers in slices.items() for number in ([None] if numbers is None else numbers)
    ]


def _number(at: str) -> str:
    """The number of the slice of a time."""
    return f"({events_sql.floored(f'({at})', SLICE_MS)} // {SLICE_MS})"


def _is_within(at: str, slices: Slices) -> str:
    """Whether a row of a minute belongs to one of the slices."""
    parts = []
    for day, numbers in slices.items():
        inner = "true" if numbers is None else f"list_contains({sorted(numbers)}::bigint[], {_number(at)})"
        parts.append(f"(date = date '{day}' and {inner})")
    return f"({' or '.join(parts) or 'false'})"


def _is_in(column: str, days: Collection[date]) -> str:
    return f"list_contains([{', '.join(literal(day.isoformat()) for day in sorted(days))}]::date[], {column})"
