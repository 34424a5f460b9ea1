"""Computes the datasets of ``metrics`` again in plain Python, message by message, for comparison."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from fractions import Fraction
from itertools import accumulate, repeat
from operator import mul
from typing import Any

Row = Mapping[str, Any]
Spans = Sequence[tuple[int, int]]
COUNTED = ("accepted", "delivered", "acked", "nacked", "rejected", "redriven", "lease_expired", "poison")
# Where each bucket of 2 % begins.
_BOUNDS = [math.ceil(bound) for bound in accumulate(repeat(Fraction(51, 50), 1400), mul, initial=Fraction(1))]


def bucket(value: int) -> int:
    return bisect_right(_BOUNDS, value) - 1 if value > 0 else -1


def percentile(values: Sequence[int], percent: int) -> int:
    """The exact one, by nearest rank."""
    return sorted(values)[math.ceil(percent * len(values) / 100) - 1]


def day(at: int) -> date:
    return datetime.fromtimestamp(at / 1000, UTC).date()


def grains(at: int) -> list[tuple[str, int]]:
    return [("minute", at // 60_000 * 60_000), ("day", at // 86_400_000 * 86_400_000)]


def lossy(spans: Spans, first: int, last: float) -> bool:
    return any(start <= last and end >= first for start, end in spans)


def of_row(grain: str, at: int, spans: Spans) -> bool:
    return lossy(spans, at, at + {"minute": 60_000, "day": 86_400_000}[grain] - 1)


def keys(row: Row) -> tuple[Any, ...]:
    return row["queue"], row["job"], row["lang"], row["broker"]


def throughput(rows: Iterable[Row], spans: Spans = ()) -> dict[Any, dict[str, Any]]:
    found: defaultdict[Any, Counter[Any]] = defaultdict(Counter)
    for row in rows:
        if row["event"] not in (*COUNTED, "dead_lettered"):
            continue
        for grain in grains(row["at"]):
            cell = found[day(row["at"]), *grain, *keys(row)]
            cell[row["event"]] += 1
            if row["event"] == "delivered" and row["attempts"]:
                cell["retried"] += 1
            if row["event"] in ("dead_lettered", "poison"):
                cell["dead"] += 1
                code = row["outcome"] or "unknown"
                cell["by", "poison" if row["event"] == "poison" else code] += 1
                cell[row["event"], code] += 1
    return {
        key: {
            **{name: cell[name] for name in (*COUNTED, "retried")},
            "dead_lettered": cell["dead"],
            "dead_lettered_by": {name[1]: n for name, n in cell.items() if name[0] == "by"},
            "poison_by": {name[1]: n for name, n in cell.items() if name[0] == "poison"},
            "at_least": of_row(key[1], key[2], spans),
        }
        for key, cell in found.items()
    }


def rates(counts: Mapping[Any, Row]) -> dict[Any, dict[str, Any]]:
    found = {}
    for key, cell in counts.items():
        ended = cell["acked"] + cell["dead_lettered"]
        found[key] = {
            **{name: cell[name] for name in ("delivered", "retried", "dead_lettered", "at_least")},
            "ended": ended,
            "retry_rate": cell["retried"] / cell["delivered"] if cell["delivered"] else None,
            "dead_letter_rate": cell["dead_lettered"] / ended if ended else None,
        }
    return found


def payloads(rows: Iterable[Row]) -> dict[Any, list[int]]:
    found: defaultdict[Any, list[int]] = defaultdict(list)
    for row in rows:
        if row["event"] in ("accepted", "delivered") and row["bytes"] is not None:
            for grain in grains(row["at"]):
                found[day(row["at"]), *grain, row["event"], *keys(row)].append(row["bytes"])
    return found


def lives(rows: Iterable[Row], spans: Spans = ()) -> dict[Any, dict[str, Any]]:
    """By (message_id, created_at, queue)."""
    return {key: _life(key[1], key[2], events, placed_at, spans) for key, events, placed_at in _grouped(rows)}


def _grouped(rows: Iterable[Row]) -> Iterator[tuple[Any, list[dict[str, Any]], int]]:
    """The key, the events and the time of each life."""
    by_id: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["message_id"] is not None and row["event"] in (*COUNTED, "dead_lettered", "dropped"):
            made = row["created_at"]
            plausible = made is not None and 10**12 <= made <= row["at"] + 86_400_000
            by_id[row["message_id"]].append({**row, "created_at": made if plausible else None})
    for events in by_id.values():
        events.sort(key=lambda row: (row["at"], row["node"], row["epoch"], row["seq"]))
        first_at = events[0]["at"]
        told = [row["created_at"] for row in events]
        latest = next((made for made in told if made is not None), None)
        own: defaultdict[Any, list[dict[str, Any]]] = defaultdict(list)
        moves: defaultdict[Any, list[dict[str, Any]]] = defaultdict(list)
        placed = []
        for row, made in zip(events, told, strict=True):
            latest = latest if made is None else made
            placed.append((row, latest))
            if row["event"] == "redriven" and row["to_queue"] not in (None, row["queue"]):
                moves[latest].append(row)
        for row, latest in placed:
            home = row["queue"]
            for move in reversed(moves[latest]):
                if move["to_queue"] == home:
                    home = move["queue"]
            own[row["message_id"], latest, home].append(row)
        for key, parts in own.items():
            yield key, parts, first_at if key[1] is None else key[1]


def _life(made: int | None, home: str, events: list[dict[str, Any]], placed_at: int, spans: Spans) -> dict[str, Any]:
    def times(event: str) -> list[int]:
        return [row["at"] for row in events if row["event"] == event]

    def greatest(name: str) -> Any:
        return max((row[name] for row in events if row[name] is not None), default=None)

    first = [row for row in events if row["queue"] == home] + [row for row in events if row["queue"] != home]
    accepted, delivered, acked, dead = map(times, ("accepted", "delivered", "acked", "dead_lettered"))
    dropped, is_dead = times("dropped"), len(dead) > len(times("redriven"))
    outcome = "acked" if acked else "dropped" if dropped else "dead_lettered" if is_dead else "open"
    ended = min(acked) if acked else max(dropped) if dropped else max(dead) if is_dead else None
    waits_from = min(accepted) if accepted else made
    lasts_from = min(accepted, default=None) if made is None else made
    wait = None if waits_from is None or not delivered else min(delivered) - waits_from
    whole = None if lasts_from is None or not acked else min(acked) - lasts_from
    began = events[0]["at"] if made is None else min(made, events[0]["at"])
    names = ("at", "event", "queue", "broker", "attempts", "outcome", "node")
    return {
        "date": day(placed_at),
        **{name: greatest(name) for name in ("job", "lang", "trace_id", "bytes")},
        "broker": next((row["broker"] for row in first if row["broker"] is not None), None),
        "accepted_at": min(accepted, default=None),
        "first_at": events[0]["at"],
        "first_delivered_at": min(delivered, default=None),
        "ended_at": ended,
        "outcome": outcome,
        "last_queue": events[-1]["to_queue"] or events[-1]["queue"],
        "last_event": events[-1]["event"],
        "copies": len(accepted),
        "deliveries": len(delivered),
        "acks": len(acked),
        "nacks": len(times("nacked")),
        "lease_expiries": len(times("lease_expired")),
        "dead_letterings": len(dead),
        "redrives": len(times("redriven")),
        "events": len(events),
        "wait_ms": None if wait is None else max(wait, 0),
        "e2e_ms": None if whole is None else max(whole, 0),
        "skewed": (wait or 0) < 0 or (whole or 0) < 0,
        "hops": [tuple(row[name] for name in names) for row in events],
        "at_least": lossy(spans, began, math.inf if ended is None else ended),
    }


def began(life: Row, made: int | None) -> int:
    return next(at for at in (made, life["accepted_at"], life["first_at"]) if at is not None)


def latencies(found: Mapping[Any, Row]) -> dict[Any, list[tuple[int, bool, bool]]]:
    """Each time with whether it is skewed, and at least."""
    times: defaultdict[Any, list[tuple[int, bool, bool]]] = defaultdict(list)
    for (_, made, queue), life in found.items():
        for kind, name in (("wait", "wait_ms"), ("end_to_end", "e2e_ms")):
            if life[name] is not None:
                for grain in grains(began(life, made)):
                    key = life["date"], *grain, kind, queue, life["job"], life["lang"], life["broker"]
                    times[key].append((life[name], life["skewed"], life["at_least"]))
    return times


def still_open(rows: Iterable[Row], as_of: int) -> Counter[Any]:
    """By what had happened until then, whatever happened later."""
    counted: Counter[Any] = Counter()
    edges = [0, 60, 600, 3600, 21_600, 86_400, 604_800]
    for (_, made, _), events, _ in _grouped(rows):
        past = [row for row in events if row["at"] <= as_of]
        names = Counter(row["event"] for row in past)
        if not past or names["acked"] or names["dropped"] or names["dead_lettered"] > names["redriven"]:
            continue
        accepted = [row["at"] for row in events if row["event"] == "accepted"]
        since = min(accepted, default=events[0]["at"]) if made is None else made
        at = bisect_right(edges, max((as_of - since) / 1000, 0))
        below = edges[at] if at < len(edges) else None
        state = "leased" if past[-1]["event"] == "delivered" else "waiting"
        counted[past[-1]["to_queue"] or past[-1]["queue"], state, edges[at - 1], below] += 1
    return counted


def traces(found: Mapping[Any, Row]) -> dict[str, dict[str, Any]]:
    by_trace: defaultdict[str, list[Any]] = defaultdict(list)
    for (message_id, made, queue), life in found.items():
        if life["trace_id"] is not None:
            by_trace[life["trace_id"]].append((began(life, made), life["first_at"], message_id, queue, life))
    told = {}
    for trace_id, members in by_trace.items():
        members.sort(key=lambda each: each[:4])
        ends = [life["ended_at"] for *_, life in members if life["ended_at"] is not None]
        complete = all(life["outcome"] != "open" for *_, life in members)
        told[trace_id] = {
            "date": min(life["date"] for *_, life in members),
            "started_at": members[0][0],
            "ended_at": max(ends) if complete else None,
            "trace_ms": max(max(ends) - members[0][0], 0) if complete else None,
            "complete": complete,
            "messages": len(members),
            "open": sum(life["outcome"] == "open" for *_, life in members),
            "dead_lettered": sum(life["outcome"] == "dead_lettered" for *_, life in members),
            "queues": list(dict.fromkeys(queue for *_, queue, _ in members)),
            "ids": [message_id for _, _, message_id, _, _ in members],
            "at_least": any(life["at_least"] for *_, life in members),
        }
    return told
