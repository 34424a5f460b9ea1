"""Times as texts."""

from __future__ import annotations

import pytest

from babelgate.clock import milliseconds, utc_text


def test_a_time_is_written_in_utc():
    at = 1_769_903_999_129
    assert utc_text(at) == "2026-01-31 23:59:59"
    assert utc_text(at, "minutes") == "2026-01-31 23:59"
    assert utc_text(at, "milliseconds") == "2026-01-31 23:59:59.129"
    assert utc_text(-1, "milliseconds") == "1969-12-31 23:59:59.999"


@pytest.mark.parametrize("at", [253_402_300_799_999, -62_135_596_800_000])
def test_a_written_time_is_exact_in_all_years(at):
    assert milliseconds(f"{utc_text(at, 'milliseconds')}Z") == at


@pytest.mark.parametrize("at", [253_402_300_800_000, -62_135_596_800_001, 10**30])
def test_what_no_calendar_has_is_no_text(at):
    assert utc_text(at) is None
