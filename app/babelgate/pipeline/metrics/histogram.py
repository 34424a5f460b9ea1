"""A deterministic histogram with buckets of 2 % width, which merges exactly.

Bucket ``b`` counts the values from 1.02^b to below 1.02^(b+1); bucket -1 counts values of 0 and less. Histograms are
merged by adding the counts of equal buckets. A percentile is the middle of the bucket of that rank: it is at most 1 %
off, and never above the largest value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BASE = 1.02
_NUMERATOR, _DENOMINATOR = 51, 50
_LARGEST = 2**63 - 1
NOTHING = -1
"""The bucket of 0 and less."""
PERCENTILES = {"p50": 50, "p95": 95, "p99": 99}


@cache
def least_of_buckets() -> tuple[int, ...]:
    """The least integer of each bucket, up to 64 bits."""
    found: list[int] = []
    power, divisor = 1, 1
    while power <= _LARGEST * divisor:
        found.append(-(-power // divisor))
        power, divisor = power * _NUMERATOR, divisor * _DENOMINATOR
    return tuple(found)


def bucket_of(value: Column) -> Column:
    """The bucket of an integer column; null for null."""
    from pyspark.sql import functions as f

    # Rounding may put the logarithm on the wrong side of a bound, so integers decide.
    near = f.floor(f.ln(value.cast("double")) / f.lit(math.log(BASE))).cast("int")
    # As one literal: each item of a list would be a call to Java, and an expression to plan.
    least = f.split(f.lit(",".join(map(str, least_of_buckets()))), ",").cast("array<bigint>")
    too_high = (value < f.get(least, near)).cast("int")
    too_low = (value >= f.get(least, near + 1)).cast("int")
    exact = near - f.coalesce(too_high, f.lit(0)) + f.coalesce(too_low, f.lit(0))
    return f.when(value > 0, exact).when(value <= 0, NOTHING).cast("int")


@cache
def middles() -> tuple[float, ...]:
    """The value that represents each bucket, from :data:`NOTHING` on, with three decimals."""
    exact = (Decimal(repr(BASE ** (bucket + 0.5))) for bucket in range(len(least_of_buckets())))
    return 0.0, *(float(each.quantize(Decimal("0.001"), ROUND_HALF_UP)) for each in exact)


def middle_of(bucket: Column) -> Column:
    """The value that represents a bucket."""
    from pyspark.sql import functions as f

    # A table, because engines differ in the last digit of a power.
    table = f.split(f.lit(",".join(map(repr, middles()))), ",").cast("array<double>")
    return f.get(table, bucket - NOTHING)


def percentiles(
    histogram: DataFrame, keys: Sequence[str], more: Mapping[str, Callable[[str], Column]] | None = None
) -> DataFrame:
    """Per ``keys``: ``n``, ``sum``, ``max``, ``buckets`` (array of bucket and n) and each of :data:`PERCENTILES`.

    ``histogram``: rows of ``keys``, ``bucket``, ``n``, ``sum`` and ``max``. A bucket may occur several times per key;
    its rows are merged. ``more``: other columns to keep, with their aggregate functions.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    folded = {"n": f.sum, "sum": f.sum, "max": f.max, **(more or {})}
    totals = [fold(name).alias(name) for name, fold in folded.items()]
    merged = histogram.groupBy(*keys, "bucket").agg(*totals)
    group = Window.partitionBy(*keys)
    ranked = merged.withColumns({"rank": f.sum("n").over(group.orderBy("bucket")), "of": f.sum("n").over(group)})

    def percentile(percent: int) -> Column:
        # The first rank that reaches percent/100 of the total, in integers.
        reached = f.col("rank") * 100 >= f.col("of") * percent
        return f.least(middle_of(f.min(f.when(reached, f.col("bucket")))), f.max("max").cast("double"))

    return ranked.groupBy(*keys).agg(
        *totals,
        f.sort_array(f.collect_list(f.struct("bucket", "n"))).alias("buckets"),
        *(percentile(percent).alias(name) for name, percent in PERCENTILES.items()),
    )
