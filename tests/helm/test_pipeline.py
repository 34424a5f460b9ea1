"""The objects of the pipeline name commands, options, images and objects that exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from babelgate import __version__
from babelgate.pipeline.cli.main import pipeline
from tests.helm.matrix import rendered
from tests.unit.test_packaging import pins
from tools.helm import Document, only

ROOT = Path(__file__).parents[2]
MAIN = "local:///opt/babelgate/bin/babelgate-main.py"
NIGHTLY = "many, nightly"
OPERATORS = ("many, kubeflow", "many, apache")


def containers(case: str = NIGHTLY) -> list[dict[str, Any]]:
    """The containers of the cron job, in their order."""
    pod = only(rendered()[case], "CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return [*pod["initContainers"], *pod["containers"]]


def applications(case: str) -> list[tuple[dict[str, Any], list[str], dict[str, str]]]:
    """Of each SparkApplication its specification, the program's arguments, and Spark's settings."""
    specs = [each["spec"] for each in rendered()[case] if each["kind"] == "SparkApplication"]
    return [(spec, spec.get("driverArgs") or spec["arguments"], spec["sparkConf"]) for spec in specs]


def parsed(arguments: list[str]) -> str:
    """The command that they run; raises click.UsageError when it would not take them."""
    name, *rest = arguments
    command = pipeline.commands[name]
    command.make_context(name, list(rest), parent=click.Context(pipeline))
    return name


def test_the_cron_job_runs_commands_as_they_are() -> None:
    assert [parsed(each["args"]) for each in containers()] == ["ingest", "compact", "metrics", "maintain", "report"]
    ingest = containers()[0]["args"]
    assert [ingest[ingest.index(each) + 1] for each in ("--master", "--conf")] == ["local[4]", "spark.driver.memory=3g"]


@pytest.mark.parametrize("case", OPERATORS)
def test_applications_run_commands_as_they_are(case: str) -> None:
    commands = []
    for _, (program, *arguments), _ in applications(case):
        assert program == "pipeline"
        commands.append(parsed(arguments))
    assert commands == ["metrics", "redrive"]


def test_what_the_objects_ask_for_would_be_refused_if_it_were_wrong() -> None:
    with pytest.raises(click.UsageError):
        parsed(["metrics", "/data/lake", "--no-such-option"])


@pytest.mark.parametrize("case", OPERATORS)
def test_the_image_is_this_version_with_its_spark(case: str) -> None:
    for spec, _, conf in applications(case):
        image = spec.get("image") or conf["spark.kubernetes.container.image"]
        assert image == f"babelgate-pipeline:{__version__}"
        version = spec.get("sparkVersion") or spec["runtimeVersions"]["sparkVersion"]
        assert version == pins("requirements-spark.txt")["pyspark"]
    assert {each["image"] for each in containers()} == {"babelgate-pipeline:edge"}


def test_the_chart_is_this_version() -> None:
    chart = (ROOT / "helm" / "babelgate" / "Chart.yaml").read_text("utf-8")
    assert f"\nversion: {__version__}\n" in chart
    assert f'\nappVersion: "{__version__}"\n' in chart


@pytest.mark.parametrize("case", OPERATORS)
def test_the_program_is_where_the_image_has_it(case: str) -> None:
    text = (ROOT / "Dockerfile").read_text()
    # What is made below /opt/program is copied over /opt/babelgate.
    place = MAIN.removeprefix("local:///opt/babelgate")
    assert f"ln -s babelgate /opt/program{place}" in text
    assert "COPY --from=program-pipeline /opt/program /opt/babelgate" in text
    assert {spec.get("mainApplicationFile") or spec["pyFiles"] for spec, _, _ in applications(case)} == {MAIN}


@pytest.mark.parametrize("case", OPERATORS)
def test_drivers_have_an_account_that_may_start_executors(case: str) -> None:
    found = rendered()[case]
    account = only(found, "ServiceAccount", "-pipeline")["metadata"]["name"]
    binding = only(found, "RoleBinding")
    assert binding["roleRef"]["name"] == only(found, "Role")["metadata"]["name"]
    assert [each["name"] for each in binding["subjects"]] == [account]
    for spec, _, conf in applications(case):
        of_kubeflow = spec.get("driver", {}).get("serviceAccount")
        assert (of_kubeflow or conf["spark.kubernetes.authenticate.driver.serviceAccountName"]) == account


@pytest.mark.parametrize("case", OPERATORS)
def test_rights_are_those_of_drivers_alone_and_no_more_than_they_need(case: str) -> None:
    found = rendered()[case]
    (rule,) = only(found, "Role")["rules"]
    assert rule["apiGroups"] == [""]
    assert rule["resources"] == ["pods", "services", "configmaps"]
    assert not {"*", "impersonate", "escalate", "bind"} & {*rule["verbs"]}
    account = only(found, "ServiceAccount", "-executor")
    assert account["automountServiceAccountToken"] is False
    for _, _, conf in applications(case):
        assert conf["spark.kubernetes.authenticate.executor.serviceAccountName"] == account["metadata"]["name"]
        assert conf["spark.kubernetes.driver.ownPersistentVolumeClaim"] == "false"
    assert not [each for each in found if each["kind"] in ("ClusterRole", "ClusterRoleBinding")]


def test_without_an_operator_nobody_has_rights() -> None:
    for case, found in rendered().items():
        if case not in OPERATORS and not [each for each in found if each["kind"] == "SparkApplication"]:
            assert not [each for each in found if each["kind"] in ("Role", "RoleBinding")], case


def test_all_write_to_one_volume() -> None:
    """The gateways, whose journal lands in it, the cron job, drivers and executors."""
    claim = only(rendered()[NIGHTLY], "PersistentVolumeClaim")["metadata"]["name"]
    assert claim in str(only(rendered()[NIGHTLY], "CronJob")["spec"])
    assert claim in str(only(rendered()[NIGHTLY], "Deployment")["spec"])
    for _, _, conf in applications("many, kubeflow"):
        for pod in ("driver", "executor"):
            volume = f"spark.kubernetes.{pod}.volumes.persistentVolumeClaim.data"
            assert conf[f"{volume}.options.claimName"] == "lake"
            assert conf[f"{volume}.mount.path"] == "/data"


def test_an_object_store_needs_no_volume() -> None:
    found: list[Document] = rendered()["many, apache"]
    assert not [each for each in found if each["kind"] == "PersistentVolumeClaim"]
    for _, arguments, conf in applications("many, apache"):
        assert not [key for key in conf if "persistentVolumeClaim" in key]
        assert arguments[arguments.index("--lake") + 1] == "s3a://lake"
        if "redrive" in arguments:
            assert arguments[arguments.index("--summary") + 1] == "s3a://lake/redrive.json"


@pytest.mark.parametrize("case", OPERATORS)
def test_only_what_sends_has_the_token_and_only_by_reference(case: str) -> None:
    tokens = only(rendered()[case], "Secret", "-tokens")
    for _, arguments, conf in applications(case):
        reference = conf.get("spark.kubernetes.driver.secretKeyRef.BABELGATE_TOKEN")
        if "redrive" not in arguments:
            assert reference is None
            continue
        name, key = str(reference).split(":")
        assert name == tokens["metadata"]["name"]
        assert key in tokens["data"]
        assert "--token" not in arguments


@pytest.mark.parametrize("case", OPERATORS)
def test_nothing_runs_as_root(case: str) -> None:
    user = 10001
    assert f"USER {user}:{user}" in (ROOT / "Dockerfile").read_text()
    contexts = [only(rendered()[NIGHTLY], "CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]]
    for spec, _, _ in applications(case):
        for pod in ("driver", "executor"):
            if pod in spec:
                contexts.append({"securityContext": spec[pod]["podSecurityContext"]})
            else:
                contexts.append(spec[f"{pod}Spec"]["podTemplateSpec"]["spec"])
    for each in contexts:
        context = each["securityContext"]
        assert context["runAsNonRoot"] and context["runAsUser"] == context["fsGroup"] == user
