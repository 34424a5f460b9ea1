"""Draws charts as SVG text with Vega-Lite, without a browser.

Colours are CSS variables of the page, so a chart follows its light, dark and print styles. The SVG has no script, link
or id. The page repeats the content of each chart in words and in a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

WIDTH = 320
"""In px. The page shows a chart at least as wide on a screen of 400 px, so that no text is below 11 px."""
_FONT = "system-ui, sans-serif"
COLOURS = tuple(f"var(--c{number})" for number in range(1, 7))
"""The colours of series, in order; the last one is for all further series."""

_NAMES = {"field": "name", "type": "ordinal", "sort": None, "title": None, "axis": {"labelLimit": 120}}
_CONFIG: dict[str, Any] = {
    "aria": False,
    "font": _FONT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--muted)",
        "titleColor": "var(--muted)",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "gridColor": "var(--line)",
        "domain": False,
        "ticks": False,
        "labelPadding": 6,
    },
    "text": {"fill": "var(--ink)", "fontSize": 12},
    "legend": {
        "labelColor": "var(--muted)",
        "labelFontSize": 12,
        "title": None,
        "orient": "bottom",
        "columns": 2,
        "columnPadding": 16,
        "labelLimit": 125,
    },
}


def columns(points: Sequence[tuple[str, float]], colour: str, labels: Sequence[str]) -> str:
    """A column chart of points (name, value), in order. ``labels``: the names that the axis shows."""
    spec = {
        "height": 170,
        "data": {"values": [{"name": name, "value": value} for name, value in points]},
        "mark": {"type": "bar", "color": colour},
        "encoding": {
            "x": {
                "field": "name",
                "type": "ordinal",
                "sort": None,
                "title": None,
                "scale": {"paddingInner": 0.25},
                "axis": {"values": list(labels), "labelAngle": 0, "labelOverlap": True},
            },
            "y": {"field": "value", "type": "quantitative", "title": None, "axis": {"tickCount": 4, "format": ",~r"}},
        },
    }
    return _draw(spec)


def bars(rows: Sequence[tuple[str, float, str]], colour: str) -> str:
    """A bar chart of rows (name, value, formatted value), the first at the top. Names are above the bars."""
    values = [{"row": row, "name": name, "value": value, "text": text} for row, (name, value, text) in enumerate(rows)]
    # Space for the text behind the longest bar.
    most = max((value for _, value, _ in rows), default=0) or 1
    length = {"field": "value", "type": "quantitative", "axis": None, "scale": {"domain": [0, most * 1.25]}}
    name = {"type": "text", "align": "left", "dy": -13, "fill": "var(--muted)", "limit": WIDTH - 70}
    spec = {
        "height": 40 * len(rows),
        "data": {"values": values},
        # The row number identifies a bar, because two rows may have the same name, such as "unknown".
        "encoding": {"y": {**_NAMES, "field": "row", "axis": None}},
        "layer": [
            {
                "mark": {"type": "bar", "color": colour, "height": 12, "yOffset": 6},
                "encoding": {"x": length},
            },
            {"mark": {**name, "x": 0}, "encoding": {"text": {"field": "name", "type": "nominal"}}},
            {
                "mark": {"type": "text", "align": "left", "dx": 6, "dy": 6},
                "encoding": {"x": length, "text": {"field": "text", "type": "nominal"}},
            },
        ],
    }
    return _draw(spec)


def stacks(rows: Sequence[tuple[str, str, float]], series: Sequence[str]) -> str:
    """A stacked bar per name from rows (name, series, value); ``series`` in the order of :data:`COLOURS`."""
    names = {name for name, _, _ in rows}
    order = [
        {"name": name, "series": piece, "value": value, "order": series.index(piece)} for name, piece, value in rows
    ]
    spec = {
        "height": 28 * len(names),
        "data": {"values": order},
        "mark": {"type": "bar", "height": 14},
        "encoding": {
            "y": _NAMES,
            "x": {
                "field": "value",
                "type": "quantitative",
                "title": None,
                "axis": {"tickCount": 4, "format": ",~r", "tickMinStep": 1},
            },
            "color": {"field": "series", "type": "nominal", "scale": {"domain": list(series), "range": list(COLOURS)}},
            "order": {"field": "order", "type": "quantitative"},
        },
    }
    return _draw(spec)


def _draw(spec: dict[str, Any]) -> str:
    # The import loads a library of 80 MB; the first call takes almost a second.
    import vl_convert

    whole = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": WIDTH,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "background": None,
        "padding": 2,
        "config": _CONFIG,
        **spec,
    }
    return str(vl_convert.vegalite_to_svg(whole, vl_version="5.20"))
