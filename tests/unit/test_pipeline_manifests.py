"""The files for Kubernetes name commands, options, images and objects that exist. No cluster is needed to see that."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from app import __version__
from app.pipeline.cli.main import pipeline
from tests.unit.test_packaging import pins

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "helm" / "babelgate" / "pipeline"
IMAGE = f"babelgate-pipeline:{__version__}"
MAIN = "local:///opt/babelgate/bin/babelgate.py"


def objects() -> list[dict[str, Any]]:
    """Every object of every file; those of a list by themselves."""
    found = [each for path in sorted(FOLDER.glob("*.yaml")) for each in yaml.safe_load_all(path.read_text())]
    return [item for each in found for item in (each["items"] if each["kind"] == "List" else [each])]


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [each for each in objects() if each["kind"] == kind]


def named(kind: str) -> str:
    (found,) = of_kind(kind)
    return str(found["metadata"]["name"])


def pods() -> list[dict[str, Any]]:
    """The containers of the cron job, in their order."""
    (job,) = of_kind("CronJob")
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return [*pod["initContainers"], *pod["containers"]]


def applications() -> list[tuple[dict[str, Any], list[str], dict[str, str]]]:
    """Of each SparkApplication its specification, the program's arguments, and Spark's settings."""
    specs = [each["spec"] for each in of_kind("SparkApplication")]
    return [(spec, spec.get("driverArgs") or spec["arguments"], spec["sparkConf"]) for spec in specs]


def parsed(arguments: list[str]) -> str:
    """The command that they run; raises click.UsageError when it would not take them."""
    name, *rest = arguments
    command = pipeline.commands[name]
    command.make_context(name, list(rest), parent=click.Context(pipeline))
    return name


def test_the_cron_job_runs_commands_as_they_are() -> None:
    assert [parsed(each["args"]) for each in pods()] == ["ingest", "compact", "metrics", "report"]


def test_applications_run_commands_as_they_are() -> None:
    commands = []
    for _, (program, *arguments), _ in applications():
        assert program == "pipeline"
        commands.append(parsed(arguments))
    assert commands == ["metrics", "redrive"] * 2


def test_what_the_files_ask_for_would_be_refused_if_it_were_wrong() -> None:
    with pytest.raises(click.UsageError):
        parsed(["metrics", "/data/lake", "--no-such-option"])


def test_there_is_one_image_and_it_is_this_version() -> None:
    images = {each["image"] for each in pods()}
    images |= {spec.get("image") or conf["spark.kubernetes.container.image"] for spec, _, conf in applications()}
    assert images == {IMAGE}


def test_spark_is_the_version_in_the_image() -> None:
    for spec, _, _ in applications():
        told = spec.get("sparkVersion") or spec["runtimeVersions"]["sparkVersion"]
        assert told == pins("requirements-spark.txt")["pyspark"]


def test_the_program_is_where_the_image_has_it() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert f"ln -s babelgate {MAIN.removeprefix('local://')}" in text
    assert {spec.get("mainApplicationFile") or spec["pyFiles"] for spec, _, _ in applications()} == {MAIN}


def test_what_is_referred_to_is_defined_beside_it() -> None:
    claim, account = named("PersistentVolumeClaim"), named("ServiceAccount")
    (binding,) = of_kind("RoleBinding")
    assert binding["roleRef"]["name"] == named("Role")
    assert [each["name"] for each in binding["subjects"]] == [account]
    (job,) = of_kind("CronJob")
    volumes = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["volumes"]
    claims = [each["persistentVolumeClaim"]["claimName"] for each in volumes if "persistentVolumeClaim" in each]
    assert claims == [claim]
    for spec, _, conf in applications():
        for pod in ("driver", "executor"):
            volume = f"spark.kubernetes.{pod}.volumes.persistentVolumeClaim.data"
            assert conf[f"{volume}.options.claimName"] == claim
            assert conf[f"{volume}.mount.path"] == "/data"
        of_kubeflow = spec.get("driver", {}).get("serviceAccount")
        assert (of_kubeflow or conf["spark.kubernetes.authenticate.driver.serviceAccountName"]) == account


def test_only_what_sends_has_the_token_and_only_by_reference() -> None:
    for _, arguments, conf in applications():
        secret = conf.get("spark.kubernetes.driver.secretKeyRef.BABELGATE_TOKEN")
        assert secret == ("babelgate-pipeline:token" if "redrive" in arguments else None)
        assert "--token" not in arguments


def test_nothing_runs_as_root() -> None:
    user = 10001
    assert f"USER {user}:{user}" in (ROOT / "Dockerfile").read_text()
    (job,) = of_kind("CronJob")
    contexts = [job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["securityContext"]]
    for spec, _, _ in applications():
        for pod in ("driver", "executor"):
            if pod in spec:
                contexts.append(spec[pod]["podSecurityContext"])
            else:
                contexts.append(spec[f"{pod}Spec"]["podTemplateSpec"]["spec"]["securityContext"])
    assert all(each["runAsNonRoot"] and each["runAsUser"] == each["fsGroup"] == user for each in contexts)
    for container in pods():
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


@pytest.fixture
def entry(tmp_path: Path) -> Any:
    """A function that runs the image's entry with the given words; what it starts tells its own name and arguments."""
    for name in ("babelgate", "java", "spark/bin/spark-submit"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('#!/bin/sh\necho "${0##*/}"\nfor each in "$@"; do echo "$each"; done\n')
        path.chmod(0o755)
    variables = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "SPARK_HOME": str(tmp_path / "spark"),
        "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.1",
        "SPARK_DRIVER_URL": "spark://driver:7078",
        "SPARK_EXECUTOR_ID": "3",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_EXECUTOR_MEMORY": "512m",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
        "SPARK_EXECUTOR_POD_NAME": "pod-3",
        "SPARK_APPLICATION_ID": "app-1",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_JAVA_OPT_0": "-Dsome=two words",
        "SPARK_JAVA_OPT_1": "-Dother=1",
    }

    def run(*words: str) -> list[str]:
        command = ["sh", str(ROOT / "docker" / "pipeline"), *words]
        return subprocess.run(command, env=variables, check=True, capture_output=True, text=True).stdout.splitlines()

    return run


def test_the_image_runs_commands(entry: Any) -> None:
    assert entry("metrics", "a b") == ["babelgate", "pipeline", "metrics", "a b"]
    assert entry() == ["babelgate", "pipeline"]


def test_the_image_is_a_driver_or_an_executor_when_spark_says_so(entry: Any) -> None:
    driver = entry("driver", "--properties-file", "/p", "main.py", "pipeline", "metrics")
    assert driver[:3] == ["spark-submit", "--deploy-mode", "client"]
    assert driver[3:5] == ["--conf", "spark.driver.bindAddress=10.0.0.1"]
    assert driver[5:] == ["--properties-file", "/p", "main.py", "pipeline", "metrics"]
    java, *executor = entry("executor")
    assert java == "java"
    assert executor[:4] == ["-Dsome=two words", "-Dother=1", "-Xms512m", "-Xmx512m"]
    named = dict(zip(executor[-14::2], executor[-13::2], strict=True))
    assert named["--driver-url"] == "spark://driver:7078"
    assert named["--podName"] == "pod-3"
