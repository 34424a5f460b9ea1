"""Made-up figures of a report, with names that contain HTML."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from babelgate.pipeline.report.figures import (
    CheckedBodies,
    DeadLetterFigures,
    ErrorFigures,
    Figures,
    Group,
    OpenMessages,
    SchemaViolations,
    TargetFigures,
    Violations,
)

HOSTILE = '<script>alert("1")</script>'
FORMULA = "=HYPERLINK(0)"


def group(name: str | None, accepted: int, dead: int = 0, **more: Any) -> Group:
    done = accepted - dead
    return Group(
        name=name,
        accepted=accepted,
        delivered=accepted + dead,
        retried=dead,
        acked=done,
        nacked=dead,
        dead_lettered=dead,
        retry_rate=dead / (accepted + dead) if accepted else None,
        dead_letter_rate=dead / accepted if accepted else None,
        wait_p50_ms=1_200.5,
        wait_p95_ms=61_000.0 + accepted,
        wait_p99_ms=120_000.0,
        wait_max_ms=600_000,
        e2e_p50_ms=4_000.0,
        e2e_p95_ms=90_000.0 + 100 * dead,
        e2e_p99_ms=300_000.0,
        e2e_max_ms=900_000,
        **more,
    )


FIGURES = Figures(
    first_date="2026-01-31",
    last_date="2026-01-31",
    as_of=1_769_903_999_999,
    unit="hour",
    total=group(None, 12_000, 300),
    trend=[group(f"2026-01-31T{hour:02d}", 100 * (12 - abs(12 - hour)), hour) for hour in range(24)],
    queues=[group("orders", 8_000, 200), group("emails", 4_000, 100)],
    jobs=[
        group("urn:babel:orders:created", 6_000, 20),
        group(HOSTILE, 3_000, 400),
        group("urn:babel:stock:" + "reserved-with-a-name-that-goes-on-" * 4, 2_000, 160),
        group(FORMULA, 990),
        group(None, 10),
    ],
    languages=[group(lang, 2_000 - index) for index, lang in enumerate(("php", "java", "go", "node", "python"))],
    brokers=[group("local", 12_000, 300)],
    dead_letters=[DeadLetterFigures("failed", "orders", 200), DeadLetterFigures(HOSTILE, "emails", 100)],
    comparison=[
        replace(group("2026-01-31", 12_000, 300), lease_expired=14, redriven=70),
        replace(group("2026-01-30", 10_000, 400), lease_expired=7),
    ],
    errors=[
        ErrorFigures("dead_lettered", "failed", "orders", "urn:babel:orders:created", 200, ["0190b6f2-5d0c-7b1e", "b"]),
        ErrorFigures("nacked", None, "emails", HOSTILE, 100, ["a/b c?&", FORMULA]),
    ],
    targets=[
        TargetFigures("orders", "e2e_p99_ms", 2_000.0, 300_000.0, False),
        TargetFigures("emails", "e2e_p99_ms", 600_000.0, 300_000.0, True),
        TargetFigures("quiet.*", "wait_p95_ms", 500.0, None, None),
    ],
    open=[
        OpenMessages("orders", "waiting", 0, 60, 12, 50_000),
        OpenMessages(None, "leased", 604_800, None, 4, 900_000_000),
    ],
    checked=[CheckedBodies("php", 4_000, 80), CheckedBodies("go", 3_000, 3), CheckedBodies(None, 5, 5)],
    violations=[
        Violations("php", "missing_trace_id", 60),
        Violations("php", "missing_meta", 20),
        *(Violations("go", f"reason_{number}", 3) for number in range(6)),
        Violations(None, "invalid_utf8", 5),
    ],
    schema_violations=[
        SchemaViolations("urn:babel:orders:created", "/data/lines/*/amount", "schema_violation", 40),
        SchemaViolations(HOSTILE, "/job", "schema_missing", 2),
    ],
)
INCOMPLETE = replace(FIGURES, lost=17, in_holes=4, total=replace(FIGURES.total, at_least=True))
EMPTY = Figures(
    first_date="2026-01-30",
    last_date="2026-01-31",
    as_of=1_769_903_999_999,
    unit="day",
    total=Group(name=None),
    trend=[Group(name="2026-01-30"), Group(name="2026-01-31")],
    queues=[],
    jobs=[],
    languages=[],
    brokers=[],
    dead_letters=[],
    open=[],
)
