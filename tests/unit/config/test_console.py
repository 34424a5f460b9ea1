"""The report of the console is a local file; a URL or nothing is refused at the start, with the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from babelgate.config.settings import Settings, load
from babelgate.errors import ConfigError


def loaded(report: str) -> Settings:
    return load(None, {"BABELGATE_CONSOLE__REPORT": report})


@pytest.mark.parametrize(
    "url",
    [
        "s3a://lake/report.html",
        "s3://lake/report.html",
        "gs://lake/report.html",
        "GS://lake/report.html",
        "abfs://c@account/report.html",
        "file:/data/report.html",
        "file:///data/report.html",
    ],
)
def test_a_url_is_refused_with_the_remedy(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        loaded(url)
    assert refused.value.key == "console.report"
    for words in ("not a URL", "write to a local folder", "leave the key out", "from its bucket"):
        assert words in str(refused.value)
    assert "lake" not in str(refused.value)


@pytest.mark.parametrize("text", ["", " ", '""'])
def test_an_empty_path_is_refused_with_the_remedy(text: str) -> None:
    with pytest.raises(ConfigError, match="must name a file: leave the key out for no report") as refused:
        loaded(text)
    assert refused.value.key == "console.report"


@pytest.mark.parametrize(
    "path", ["/data/report.html", "report.html", "./s3a://lake/report.html", "a day:1/report.html"]
)
def test_any_path_is_one(path: str) -> None:
    assert loaded(path).console.report == Path(path)
