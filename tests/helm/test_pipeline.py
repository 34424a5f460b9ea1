"""The objects of the pipeline name commands, options, images and objects that exist."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import click
import pytest

from babelgate import __version__
from babelgate.pipeline.cli.main import pipeline
from tests.helm.matrix import CASES, LINEAGE, OPTIONS, PLACED, gateway_of, merged, rendered
from tests.unit.test_packaging import pins
from tools.helm import Document, documents, only, template

ROOT = Path(__file__).parents[2]
MAIN = "local:///opt/babelgate/bin/babelgate-main.py"
NIGHTLY = "many, nightly"
CONTINUOUS = "many, continuous"
LONGEST_ROUND, INTERVAL = 7201, 300
"""Of ``ingest``, in seconds, as in the values of that case."""
LINEAGE_VARIABLES = {
    "OPENLINEAGE_URL": {"value": LINEAGE["url"]},
    "OPENLINEAGE_NAMESPACE": {"value": "shop"},
    "OPENLINEAGE_API_KEY": {"valueFrom": {"secretKeyRef": {"name": "marquez", "key": "apiKey"}}},
}
POLICY = ("NetworkPolicy", "shop-babelgate-pipeline")
OPERATORS = ("many, kubeflow", "many, apache")


def cron_job(name: str = "pipeline", case: str = NIGHTLY) -> dict[str, Any]:
    """The specification of a CronJob."""
    return dict(only(rendered()[case], "CronJob", f"-{name}")["spec"])


def pod(name: str = "pipeline", case: str = NIGHTLY) -> dict[str, Any]:
    return dict(cron_job(name, case)["jobTemplate"]["spec"]["template"]["spec"])


def containers(name: str = "pipeline", case: str = NIGHTLY) -> list[dict[str, Any]]:
    """The containers of a cron job, in their order."""
    return [*pod(name, case).get("initContainers", ()), *pod(name, case)["containers"]]


def variables(container: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container["env"] if each["name"] not in LINEAGE_VARIABLES}


def applications(case: str) -> list[tuple[dict[str, Any], list[str], dict[str, str]]]:
    """Of each SparkApplication its specification, the program's arguments, and Spark's settings."""
    specs = [each["spec"] for each in rendered()[case] if each["kind"] == "SparkApplication"]
    specs += [each["spec"]["template"] for each in rendered()[case] if each["kind"] == "ScheduledSparkApplication"]
    return [(spec, spec.get("driverArgs") or spec["arguments"], spec["sparkConf"]) for spec in specs]


def parsed(arguments: list[str]) -> str:
    """The command that they run; raises click.UsageError when it would not take them."""
    name, *rest = arguments
    command = pipeline.commands[name]
    command.make_context(name, list(rest), parent=click.Context(pipeline))
    return name


def test_the_cron_job_runs_commands_as_they_are() -> None:
    assert [parsed(each["args"]) for each in containers()] == ["ingest", "compact", "metrics", "maintain", "report"]
    for each in containers():
        assert variables(each) == {"SPARK_DRIVER_MEMORY": "3g", "JAVA_TOOL_OPTIONS": "-XX:ActiveProcessorCount=4"}


def test_jobs_get_the_configuration_of_openlineage() -> None:
    found = rendered()[CONTINUOUS]
    deployed = [only(found, "Deployment", f"-{each}")["spec"]["template"]["spec"] for each in ("ingest", "metrics")]
    jobs = [each for pod in deployed for each in pod["containers"]]
    jobs += [*containers(case=CONTINUOUS), *containers("refresh", CONTINUOUS)]
    assert {each["args"][0] for each in jobs} == {"ingest", "compact", "metrics", "maintain", "report"}
    for each in jobs:
        given = {variable.pop("name"): variable for variable in map(dict, each["env"])}
        assert LINEAGE_VARIABLES.items() <= given.items()
    assert not [each for each in containers() for name in LINEAGE_VARIABLES if name in str(each["env"])]
    for case in OPERATORS:
        for _, _, conf in applications(case):
            set_by_spark = {key: value for key, value in conf.items() if "OPENLINEAGE" in key}
            assert set_by_spark == {
                "spark.kubernetes.driverEnv.OPENLINEAGE_URL": LINEAGE["url"],
                "spark.kubernetes.driverEnv.OPENLINEAGE_NAMESPACE": "shop",
                "spark.kubernetes.driver.secretKeyRef.OPENLINEAGE_API_KEY": "marquez:apiKey",
            }


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"env": {"OPENLINEAGE_API_KEY": "confidential"}}, r"pipeline\.openlineage\.env\.OPENLINEAGE_API_KEY"),
        ({"env": {"OPENLINEAGE__TRANSPORT__AUTH": '{"apiKey":"confidential"}'}}, "name that in pipeline"),
        (
            {"env": {"OPENLINEAGE__TRANSPORT": '{"auth":{"type":"api_key","apiKey":"confidential"}}'}},
            "name that in pipeline",
        ),
        *(
            (
                {"env": {"OPENLINEAGE__TRANSPORT__CONFIG": f'{{"{key}" : "confidential"}}'}},
                "which OPENLINEAGE_CONFIG names",
            )
            for key in (
                "sasl.password",
                "ssl.key.password",
                "ssl.key.pem",
                "sasl.jaas.config",
                "sasl.oauthbearer.client.secret",
                "API-Key",
            )
        ),
        (
            {"env": {"OPENLINEAGE__TRANSPORT": '{"custom_headers":{"Authorization":"Bearer confidential"}}'}},
            r"pipeline\.openlineage\.env\.OPENLINEAGE__TRANSPORT:",
        ),
        ({"env": {"OPENLINEAGE__TRANSPORT__CUSTOM_HEADERS": '{"x-shop":"confidential"}'}}, "CUSTOM_HEADERS"),
        (
            {"env": {"OPENLINEAGE__TRANSPORT": '{"custom_headers":{"x-shop":"confidential"}}'}},
            "OPENLINEAGE__TRANSPORT:",
        ),
        ({"env": {"OPENLINEAGE__TRANSPORT__CUSTOM_HEADERS__AUTHORIZATION": "Bearer confidential"}}, "AUTHORIZATION:"),
        ({"secret": "marquez"}, r"pipeline\.openlineage\.secret: .* pipeline\.openlineage\.url"),
        ({"secret": "marquez", "env": {"OPENLINEAGE_CONFIG": "/data/openlineage.yml"}}, r"openlineage\.secret"),
        ({"url": "https://joe:confidential@marquez"}, r"pipeline\.openlineage\.url"),
        ({"url": "marquez:5000"}, "url"),
        ({"env": {"PATH": "/tmp"}}, "PATH"),
    ],
)
def test_a_configuration_of_openlineage_that_does_not_work_or_shows_a_key_is_refused(
    given: dict[str, Any], reason: str
) -> None:
    with pytest.raises(AssertionError, match=reason) as refused:
        template({"pipeline": {"cronJob": {"enabled": True}, "openlineage": given}})
    assert "confidential" not in str(refused.value)


@pytest.mark.parametrize(
    "given",
    [
        {"env": {"OPENLINEAGE_URL": LINEAGE["url"]}, "secret": "marquez"},
        {
            "env": {
                "OPENLINEAGE__TRANSPORT__TYPE": "kafka",
                "OPENLINEAGE__TRANSPORT__CONFIG": '{"bootstrap.servers":"kafka:9092","sasl.username":"joe"}',
                "OPENLINEAGE_CONFIG": "/data/openlineage.yml",
            }
        },
    ],
    ids=str,
)
def test_a_configuration_of_openlineage_without_a_key_is_rendered(given: dict[str, Any]) -> None:
    text = template({"pipeline": {"cronJob": {"enabled": True}, "openlineage": given}})
    assert all(each in text for each in given["env"])


def test_commands_that_run_on_are_deployments_and_the_cron_jobs_leave_them_out() -> None:
    found = rendered()[CONTINUOUS]
    for command, seconds in (("ingest", str(INTERVAL)), ("metrics", "0.5")):
        spec = only(found, "Deployment", f"-{command}")["spec"]
        template = spec["template"]
        assert (spec["replicas"], spec["strategy"]["type"]) == (1, "Recreate")
        assert spec["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        assert template["metadata"]["labels"]["azure.workload.identity/use"] == "true"
        assert PLACED.items() <= template["spec"].items()
        (container,) = template["spec"]["containers"]
        assert parsed(container["args"]) == command
        assert container["args"][-5:-2] == ["--continuous", "--interval-seconds", seconds]
        assert container["args"][-2:] == ["--alive", container["startupProbe"]["exec"]["command"][-1]]
        assert variables(container) == {"SPARK_DRIVER_MEMORY": "2g", "JAVA_TOOL_OPTIONS": "-XX:ActiveProcessorCount=2"}
    assert [parsed(each["args"]) for each in containers(case=CONTINUOUS)] == ["compact", "maintain", "report"]
    assert [parsed(each["args"]) for each in containers("refresh", CONTINUOUS)] == ["report"]


def test_a_container_that_hangs_is_restarted_and_one_that_was_restarted_is_given_time(tmp_path: Path) -> None:
    """Its own shell commands, with another folder than /tmp."""
    (container,) = only(rendered()[CONTINUOUS], "Deployment", "-ingest")["spec"]["template"]["spec"]["containers"]
    alive = tmp_path / "alive"
    (tmp_path / "babelgate").write_text(f'#!/bin/sh\necho "$@"; test ! -e {alive}\n')
    (tmp_path / "babelgate").chmod(0o755)

    def run(words: list[str]) -> subprocess.CompletedProcess[str]:
        here = [word.replace("/tmp", str(tmp_path)) for word in words]
        environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        return subprocess.run(here, env=environ, capture_output=True, text=True, check=False)

    startup, liveness = (container[f"{each}Probe"]["exec"]["command"] for each in ("startup", "liveness"))
    assert run(startup).returncode != 0
    alive.touch()
    assert run(startup).returncode == run(liveness).returncode == 0
    assert container["startupProbe"]["failureThreshold"] * container["startupProbe"]["periodSeconds"] >= LONGEST_ROUND
    longest = time.time() - (LONGEST_ROUND + INTERVAL) + 60
    os.utime(alive, (longest, longest))
    assert run(liveness).returncode == 0, "a long round and the pause after it are no hang"
    os.utime(alive, (longest - 240, longest - 240))
    assert run(liveness).returncode != 0
    started = run([*container["command"], *container["args"]])
    assert (started.returncode, started.stdout.split()[:2]) == (0, ["pipeline", "ingest"])


def test_between_two_nights_the_figures_are_refreshed() -> None:
    assert [parsed(each["args"]) for each in containers("refresh")] == ["ingest", "metrics", "report"]
    assert cron_job("refresh")["schedule"] == "5 5-23 * * *"
    assert cron_job()["schedule"] == "0 3 * * *"


@pytest.mark.parametrize("name", ["pipeline", "refresh"])
def test_a_cron_job_has_its_times_and_its_place(name: str) -> None:
    spec = cron_job(name)
    assert (spec["timeZone"], spec["startingDeadlineSeconds"], spec["concurrencyPolicy"]) == (
        "Europe/Vienna",
        600,
        "Forbid",
    )
    job = spec["jobTemplate"]["spec"]
    assert (job["activeDeadlineSeconds"], job["ttlSecondsAfterFinished"]) == (7_200, 86_400)
    assert PLACED.items() <= pod(name).items()


def test_metrics_are_scheduled_by_the_operator_that_has_schedules() -> None:
    spec = only(rendered()["redis, scheduled"], "ScheduledSparkApplication")["spec"]
    assert (spec["schedule"], spec["timeZone"], spec["concurrencyPolicy"]) == ("15 2 * * *", "Europe/Vienna", "Forbid")
    ((_, (program, *arguments), _),) = applications("redis, scheduled")
    assert (program, parsed(arguments)) == ("pipeline", "metrics")
    with pytest.raises(AssertionError, match=r"pipeline\.spark\.metricsSchedule: only the operator kubeflow"):
        template({"pipeline": {"spark": {"operator": "apache", "metricsSchedule": "@daily"}}})


def pods_of(spec: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Metadata, and what else is set, of the pods of an application: the driver's and the executors'."""
    if "driverSpec" in spec:
        templates = [spec[f"{each}Spec"]["podTemplateSpec"] for each in ("driver", "executor")]
        return [(each["metadata"], each["spec"]) for each in templates]
    return [(spec[each], spec[each]) for each in ("driver", "executor")]


@pytest.mark.parametrize("case", OPERATORS)
def test_labels_and_places_reach_the_pods_of_spark(case: str) -> None:
    for spec, _, _ in applications(case):
        for metadata, given in pods_of(spec):
            assert metadata["labels"]["azure.workload.identity/use"] == "true"
            assert metadata["annotations"] == {"example.com/owner": "shop"}
            assert PLACED.items() <= given.items()


@pytest.mark.parametrize("option", ["kubeflow", "apache", "nightly"])
def test_network_policies_let_pods_of_the_pipeline_reach_the_gateway_and_each_other(option: str) -> None:
    found = documents(template(merged(CASES[f"many, {option}"], OPTIONS["closed"])))
    specs = [each["spec"] for each in found if each["kind"] == "SparkApplication"]
    labels = [metadata["labels"] for spec in specs for metadata, _ in pods_of(spec)]
    jobs = [each["spec"]["jobTemplate"]["spec"]["template"] for each in found if each["kind"] == "CronJob"]
    labels += [each["metadata"]["labels"] for each in jobs]
    http = only(found, "NetworkPolicy", "shop-babelgate")["spec"]["ingress"][0]
    (from_release,) = (each["podSelector"] for each in http["from"] if "podSelector" in each)
    assert len(labels) == (2 if option == "nightly" else 4)
    for each in labels:
        assert from_release["matchLabels"].items() <= each.items()
    policies = [each for each in found if (each["kind"], each["metadata"]["name"]) == POLICY]
    assert len(policies) == (option != "nightly")
    for policy in policies:
        assert policy["spec"]["ingress"] == [{"from": [{"podSelector": policy["spec"]["podSelector"]}]}]
        selector = policy["spec"]["podSelector"]["matchLabels"].items()
        assert all(selector <= each.items() for each in labels)
        assert not selector <= gateway_of(found)["spec"]["template"]["metadata"]["labels"].items()


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
    assert rule == {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "create"]}
    account = only(found, "ServiceAccount", "-executor")
    assert account["automountServiceAccountToken"] is False
    for _, _, conf in applications(case):
        assert conf["spark.kubernetes.authenticate.executor.serviceAccountName"] == account["metadata"]["name"]
        # What Spark would delete, change or make besides.
        for setting in (
            "driver.ownPersistentVolumeClaim",
            "driver.service.deleteOnTermination",
            "executor.deleteOnTermination",
        ):
            assert conf[f"spark.kubernetes.{setting}"] == "false"
        assert conf["spark.kubernetes.executor.disableConfigMap"] == "true"
    assert not [each for each in found if each["kind"] in ("ClusterRole", "ClusterRoleBinding")]


def test_without_an_operator_nobody_has_rights() -> None:
    for case, found in rendered().items():
        if case not in OPERATORS and not [each for each in found if each["kind"].endswith("SparkApplication")]:
            assert not [each for each in found if each["kind"] in ("Role", "RoleBinding")], case


def test_all_write_to_one_volume() -> None:
    """The gateways, whose journal lands in it, the cron job, drivers and executors."""
    claim = only(rendered()[NIGHTLY], "PersistentVolumeClaim")["metadata"]["name"]
    assert claim in str(cron_job())
    assert claim in str(only(rendered()[NIGHTLY], "Deployment")["spec"])
    for _, _, conf in applications("many, kubeflow"):
        for part in ("driver", "executor"):
            volume = f"spark.kubernetes.{part}.volumes.persistentVolumeClaim.data"
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
    contexts = [pod()]
    for spec, _, _ in applications(case):
        for part in ("driver", "executor"):
            if part in spec:
                contexts.append({"securityContext": spec[part]["podSecurityContext"]})
            else:
                contexts.append(spec[f"{part}Spec"]["podTemplateSpec"]["spec"])
    for each in contexts:
        context = each["securityContext"]
        assert context["runAsNonRoot"] and context["runAsUser"] == context["fsGroup"] == user
