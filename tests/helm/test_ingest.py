"""How the chart lets ``ingest`` run: each night, in a Deployment, or on an operator of Spark; from a topic, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from babelgate.brokers.kafka.url import topic_of
from babelgate.config import settings
from tests.helm.matrix import BASES, CASES, gateway_of, merged
from tests.helm.test_matrix import files, pod_of
from tests.helm.test_pipeline import CONTINUOUS, NIGHTLY, OPERATORS, parsed
from tools.helm import documents, only, template

TOPIC = "kafka+ssl://joe@kafka-1:9093,kafka-2:9093/journal?sasl_mechanism=SCRAM-SHA-512"
PASSWORD = {"secretKeyRef": {"name": "kafka", "key": "password"}}


@pytest.mark.parametrize("case", [NIGHTLY, CONTINUOUS])
def test_ingest_alone_gets_the_password_of_the_topic_that_it_reads(case: str) -> None:
    given = {"pipeline": {"landing": TOPIC, "landingSecret": "kafka"}}
    pods = [
        each["spec"].get("jobTemplate", each)["spec"]["template"]["spec"]
        for each in documents(template(merged(CASES[case], given)))
        if each["kind"] in ("CronJob", "Deployment") and each["metadata"]["name"].startswith("shop-babelgate-")
    ]
    found = [each for pod in pods for each in [*pod.get("initContainers", ()), *pod["containers"]]]
    password = {"name": "BABELGATE_LANDING_PASSWORD", "valueFrom": PASSWORD}
    commands = {each["args"][0] for each in found}
    assert {"ingest", "metrics", "report"} <= commands
    assert {each["args"][0] for each in found if password in each["env"]} == {"ingest"}


def test_gateways_and_ingest_share_a_topic_and_the_secret_of_its_password(tmp_path: Path) -> None:
    given = {
        "config": {"journal": {"landing": TOPIC.replace("joe@", "joe:${file:/run/secrets/topic/password}@")}},
        "secrets": {"topic": "kafka"},
        "pipeline": {
            "continuous": {"commands": ["ingest"]},
            "landing": TOPIC,
            "landingSecret": "kafka",
            "lake": "s3a://lake",
            "storage": {"enabled": False},
        },
    }
    found = documents(template(merged(BASES["redis"], given)))
    assert not [each for each in found if each["kind"] == "PersistentVolumeClaim"]

    pod = pod_of(gateway_of(found)) or {}
    (mounted,) = [each for each in pod["volumes"] if each.get("secret", {}).get("secretName") == "kafka"]
    places = {each["name"]: each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
    assert places[mounted["name"]] == "/run/secrets/topic"
    assert "/data" not in places.values()
    environ, _ = files(found, tmp_path)
    (tmp_path / "run/secrets/topic/password").write_text("confidential")
    landing = settings.load(Path(environ["BABELGATE_CONFIG"]), environ).journal.landing

    (ingest,) = (pod_of(only(found, "Deployment", "-ingest")) or {})["containers"]
    assert {"name": "BABELGATE_LANDING_PASSWORD", "valueFrom": PASSWORD} in ingest["env"]
    command, url, *_ = ingest["args"]
    assert (command, parsed(ingest["args"])) == ("ingest", "ingest")
    client, topic = topic_of(url, {"password": "confidential"})
    assert (client, topic) == topic_of(str(landing), {})
    assert (topic, client["sasl.password"]) == ("journal", "confidential")


@pytest.mark.parametrize("case", OPERATORS)
def test_an_operator_runs_ingest_until_it_is_stopped(case: str) -> None:
    given: dict[str, Any] = {
        "pipeline": {
            "landing": TOPIC,
            "landingSecret": "kafka",
            "spark": {"jobs": ["ingest", "metrics"]},
            "continuous": {"intervalSeconds": {"ingest": 2.5}},
            "cronJob": {"enabled": True, "refreshSchedule": "5 5-23 * * *"},
        }
    }
    found = documents(template(merged(CASES[case], given)))
    specs = {each["metadata"]["name"]: each["spec"] for each in found if each["kind"] == "SparkApplication"}
    ingest, metrics = specs["shop-babelgate-ingest"], specs["shop-babelgate-metrics"]
    program, *arguments = ingest.get("driverArgs") or ingest["arguments"]
    assert (program, parsed(arguments)) == ("pipeline", "ingest")
    assert arguments[-4:] == ["--continuous", "--interval-seconds", "2.5", TOPIC]
    assert "--interval-seconds" not in (metrics.get("driverArgs") or metrics["arguments"])
    reference = "spark.kubernetes.driver.secretKeyRef.BABELGATE_LANDING_PASSWORD"
    assert ingest["sparkConf"].get(reference) == "kafka:password"
    assert reference not in metrics["sparkConf"]
    if case.endswith("kubeflow"):
        assert (ingest["restartPolicy"]["type"], metrics["restartPolicy"]["type"]) == ("Always", "Never")
    else:
        always, never = (each["applicationTolerations"]["restartConfig"] for each in (ingest, metrics))
        assert (always["restartPolicy"], never["restartPolicy"]) == ("Always", "Never")
        assert always["maxRestartAttempts"] == 2**31 - 1
    for each in found:
        if each["kind"] == "CronJob":
            pod = pod_of(each) or {}
            commands = [one["args"][0] for one in (*pod.get("initContainers", ()), *pod["containers"])]
            assert "metrics" in commands and "ingest" not in commands
    with pytest.raises(AssertionError, match=r"pipeline\.spark\.jobs: a second ingest"):
        template(merged(merged(CASES[case], given), {"pipeline": {"continuous": {"commands": ["ingest"]}}}))
