"""Where the jobs of the chart write the report and the result of a redrive, and what the console may show."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tools.helm import documents, only, template

NO_VOLUME = {"enabled": False}
CRON = {"enabled": True}
LANDS = {"landing": "/data/landing"}
IN_BUCKET = {"cronJob": CRON, "lake": "s3a://lake", "storage": NO_VOLUME}


@pytest.mark.parametrize(
    ("given", "report"),
    [
        ({}, "/data/report.html"),
        ({"report": "/data/daily/shop.html"}, "/data/daily/shop.html"),
        ({"lake": "s3a://lake/prod"}, "/data/report.html"),
        ({"lake": "s3a://lake/prod//", "storage": NO_VOLUME}, "s3a://lake/prod/report.html"),
        ({"lake": "file:/shared", "storage": NO_VOLUME}, "file:/shared/report.html"),
        ({"lake": "s3a://lake", "storage": NO_VOLUME, "report": "gs://web/shop.html"}, "gs://web/shop.html"),
    ],
)
def test_a_report_is_where_the_jobs_can_write(given: dict[str, Any], report: str) -> None:
    spark = {"operator": "apache", "jobs": ["redrive"]}
    found = documents(template({"pipeline": {"cronJob": {"enabled": True}, "spark": spark, **given}}))
    pod = only(found, "CronJob", "-pipeline")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["args"][-2:] == ["--output", report]
    redrive = only(found, "SparkApplication")["spec"]["driverArgs"]
    assert redrive[redrive.index("--summary") + 1] == report.rpartition("/")[0] + "/redrive.json"


def test_a_report_in_a_volume_that_is_not_mounted_is_refused() -> None:
    given = {"cronJob": {"enabled": True}, "lake": "s3a://lake", "storage": NO_VOLUME, "report": "/data/report.html"}
    with pytest.raises(
        AssertionError, match=r"pipeline\.report: without pipeline\.storage\.enabled nothing is mounted"
    ):
        template({"pipeline": given})


def test_a_report_where_no_job_can_write_is_refused() -> None:
    given = {"cronJob": {"enabled": True}, "lake": "abfs://c@account/lake", "storage": NO_VOLUME}
    with pytest.raises(AssertionError, match=r"pipeline\.report: no report can be written to abfs://c@account/lake/"):
        template({"pipeline": given})


@pytest.mark.parametrize("url", ["s3a://lake/report.html", "file:/data/report.html"])
def test_the_console_is_not_given_a_url(url: str) -> None:
    with pytest.raises(AssertionError, match=r"config\.console\.report: must be a path, not a URL: .* from its bucket"):
        template({"config": {"console": {"report": url}}})


@pytest.mark.parametrize("nothing", ["", " "])
def test_the_console_is_not_given_an_empty_path(nothing: str) -> None:
    with pytest.raises(AssertionError, match=r"config\.console\.report: must name a file: leave it out for no report"):
        template({"config": {"console": {"report": nothing}}})


@pytest.mark.parametrize(
    ("pipeline", "journal", "words"),
    [
        (IN_BUCKET, {}, "the jobs write the report to s3a://lake/report.html, .* read the report from its bucket"),
        ({"cronJob": CRON, "report": "gs://web/shop.html"}, LANDS, "the jobs write the report to gs://web/shop.html"),
        ({"cronJob": CRON}, {"landing": "kafka://kafka/journal"}, "gateways mount /data only with .* set both"),
        ({"spark": {"operator": "apache"}}, {}, "gateways mount /data only with .* set both"),
    ],
)
def test_the_console_is_not_given_a_path_where_no_report_can_be(
    pipeline: dict[str, Any], journal: dict[str, str], words: str
) -> None:
    with pytest.raises(AssertionError, match=rf"config\.console\.report: {words}"):
        template({"pipeline": pipeline, "config": {"console": {"report": "/data/report.html"}, "journal": journal}})


@pytest.mark.parametrize(
    ("pipeline", "journal", "console"),
    [
        (IN_BUCKET, {}, {}),
        (IN_BUCKET, {}, {"report": "/var/lib/babelgate/report.html"}),
        ({"cronJob": CRON}, LANDS, {"report": "/data/report.html"}),
        ({"cronJob": CRON, "report": "file:/data/report.html"}, LANDS, {"report": "/data/report.html"}),
        ({}, {}, {"report": "/data/report.html"}),
    ],
)
def test_the_console_is_given_what_the_values_say(
    pipeline: dict[str, Any], journal: dict[str, str], console: dict[str, str]
) -> None:
    found = documents(template({"pipeline": pipeline, "config": {"console": console, "journal": journal}}))
    (text,) = only(found, "ConfigMap", "-babelgate")["data"].values()
    assert yaml.safe_load(text)["console"] == console
