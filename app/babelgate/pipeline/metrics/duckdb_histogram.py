"""The histogram of ``metrics`` in DuckDB: the same buckets and percentiles as in Spark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from babelgate.pipeline.duckdb_engine.lake import DuckDBLake
from babelgate.pipeline.metrics.histogram import BASE, NOTHING, PERCENTILES, least_of_buckets, middles
from babelgate.pipeline.storage.duckdb_sql import literal, quoted


def define_functions(lake: DuckDBLake) -> None:
    """Define ``middle_of(bucket)``, the value that represents a bucket, and ``bucket_of(value)`` of an integer."""
    # As one string each: a list of 2,200 numbers would be planned number by number at each use.
    values, least = (str(list(of)) for of in (middles(), least_of_buckets()))
    lake.run(
        f"create or replace temporary macro middle_of(bucket) as ({literal(values)}::double[])[bucket + {1 - NOTHING}]"
    )
    lake.run(f"create or replace temporary macro least_of(bucket) as ({literal(least)}::bigint[])[bucket + 1]")
    # Rounding may put the logarithm on the wrong side of a bound, so integers decide.
    lake.run(
        "create or replace temporary macro exact_bucket(value, near) as near"
        " - coalesce((value < least_of(near))::integer, 0) + coalesce((value >= least_of(near + 1))::integer, 0)"
    )
    near = f"floor(ln(value::double) / {math.log(BASE)!r})::integer"
    lake.run(
        "create or replace temporary macro bucket_of(value) as"
        f" case when value > 0 then exact_bucket(value, {near}) when value <= 0 then {NOTHING} end"
    )


def percentiles(histogram: str, keys: Sequence[str], more: Mapping[str, str] | None = None) -> str:
    """SQL of the percentiles per ``keys`` of the query ``histogram``, which has ``bucket``, ``n`` and ``max``.

    The columns are the keys, ``n``, ``max``, ``buckets`` (a list of bucket and n), each of
    :data:`~babelgate.pipeline.metrics.histogram.PERCENTILES`, and ``more``: columns with their aggregate functions.
    """
    by = ", ".join(map(quoted, keys))
    reached = {
        # The first rank that reaches percent/100 of the total, in integers.
        name: f"min(bucket) filter (rank * 100 >= total * {percent})"
        for name, percent in PERCENTILES.items()
    }
    found = ", ".join(f"least(middle_of({bucket}), max(max)::double) as {name}" for name, bucket in reached.items())
    folded = ", ".join(f"{fold}({name}) as {name}" for name, fold in {"max": "max", **(more or {})}.items())
    return f"""
        with histogram as ({histogram}),
        merged as (select {by}, bucket, sum(n)::bigint as n, {folded} from histogram group by {by}, bucket),
        ranked as (
            select *, sum(n) over (partition by {by} order by bucket) as rank, sum(n) over (partition by {by}) as total
            from merged
        )
        select {by}, sum(n)::bigint as n, {folded}, {found},
            list({{'bucket': bucket, 'n': n}} order by bucket) as buckets
        from ranked group by {by}
    """
