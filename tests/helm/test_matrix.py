"""Over a matrix of values the chart renders objects that three versions of Kubernetes accept, with all that it has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema_rs import ValidationError

from babelgate.config import settings
from babelgate.http.spool import MAX_BYTES
from babelgate.server.lifecycle import CLOSE_SECONDS
from tests.harness import program
from tests.harness.local import certify
from tests.harness.monitoring import dashboard, groups
from tests.helm.matrix import BASES, CASES, LINEAGE, VERSIONS, gateway_of, kinds, manifests, merged, rendered
from tools import helm
from tools.helm import CHART, Document, documents, only, template

SPARK = {"spark.apache.org/v1", "sparkoperator.k8s.io/v1beta2"}
"""Objects for which no package has a schema."""


def pod_of(document: Document) -> dict[str, Any] | None:
    """The specification of the pods that an object makes, if it makes any."""
    match document["kind"]:
        case "Pod":
            return dict(document["spec"])
        case "Deployment" | "StatefulSet":
            return dict(document["spec"]["template"]["spec"])
        case "CronJob":
            return dict(document["spec"]["jobTemplate"]["spec"]["template"]["spec"])
    return None


@pytest.mark.parametrize("base", BASES)
def test_helm_has_nothing_to_object(base: str) -> None:
    assert "0 chart(s) failed" in helm.helm("lint", "--strict", str(CHART), values=BASES[base])


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_one_of_kubernetes_without_unknown_keys(version: str) -> None:
    checked = 0
    for found in rendered().values():
        for document in found:
            if not helm.is_foreign(document):
                helm.validate(document, version)
                checked += 1
    foreign = sum(helm.is_foreign(document) for found in rendered().values() for document in found)
    assert checked == kinds().total() - foreign > 10 * len(CASES)


def test_a_key_that_kubernetes_does_not_know_would_be_found() -> None:
    pod = only(rendered()["redis, nothing"], "Pod")
    wrong = {**pod, "spec": {**pod["spec"], "restartPolicies": "Never"}}
    with pytest.raises(ValidationError, match="restartPolicies"):
        helm.validate(wrong, VERSIONS[0])


def foreign() -> list[Document]:
    """Each different object of another project once."""
    every = (document for found in rendered().values() for document in found if helm.is_foreign(document))
    return list({json.dumps(each): each for each in every}.values())


def test_objects_of_other_projects_have_their_types() -> None:
    typed = [each for each in foreign() if each["apiVersion"] not in SPARK]
    assert {each["kind"] for each in typed} == {"ServiceMonitor", "PrometheusRule", "HTTPRoute", "ScaledObject"}
    assert helm.check_types(typed) == ""
    route = only(rendered()["redis, reached"], "HTTPRoute")
    wrong = {**route, "spec": {**route["spec"], "hostname": "queues.example.com"}}
    assert "'\"hostname\"' does not exist" in helm.check_types([wrong])


@pytest.mark.parametrize("version", VERSIONS)
def test_helm_renders_it_for_this_version(version: str) -> None:
    assert template(BASES["many"], "--kube-version", f"v{version}.0")


def test_an_older_version_is_refused() -> None:
    with pytest.raises(AssertionError, match=r"requires kubeVersion: >=1\.30\.0-0"):
        template({}, "--kube-version", "v1.29.0")


def test_every_template_is_rendered() -> None:
    sources = {name for text in manifests().values() for name in re.findall(r"^# Source: babelgate/(\S+)$", text, re.M)}
    templates = {str(path.relative_to(CHART)) for path in (CHART / "templates").rglob("*.yaml")}
    assert sources == templates
    assert not [name for name, text in manifests().items() if "<no value>" in text]


def test_every_object_belongs_to_the_release_and_none_is_there_twice() -> None:
    for name, found in rendered().items():
        named = [(each["apiVersion"], each["kind"], each["metadata"]["name"]) for each in found]
        assert len(named) == len(set(named)), name
        for each in found:
            labels = each["metadata"]["labels"]
            assert labels["app.kubernetes.io/name"] == "babelgate"
            assert labels["app.kubernetes.io/instance"] == "shop"
            assert len(each["metadata"]["name"]) <= 52, "a CronJob adds 11 characters to its name"


def test_what_selects_pods_selects_those_of_the_gateway() -> None:
    for name, found in rendered().items():
        labels = gateway_of(found)["spec"]["template"]["metadata"]["labels"].items()
        for each in found:
            spec = each.get("spec", {})
            match each["kind"]:
                case "Deployment" if each is not gateway_of(found):
                    continue
                case "Deployment" | "StatefulSet" | "PodDisruptionBudget":
                    selector = spec["selector"]["matchLabels"]
                case "NetworkPolicy" if not each["metadata"]["name"].endswith("-pipeline"):
                    selector = spec["podSelector"]["matchLabels"]
                case "Service":
                    selector = spec["selector"]
                case _:
                    continue
            assert selector.items() <= labels, name
            if each["kind"] != "Pod":
                test_pod = only(found, "Pod")["metadata"]["labels"]
                assert not selector.items() <= test_pod.items(), "the test is no gateway"


def test_what_pods_mount_and_name_is_there() -> None:
    """Objects of the chart, and the Secrets and claims that the values name."""
    for name, found in rendered().items():
        there = {(each["kind"], each["metadata"]["name"]) for each in found}
        given = json.dumps(CASES[name])
        for pod in filter(None, map(pod_of, found)):
            volumes = {volume["name"]: volume for volume in pod.get("volumes", ())}
            if any(each["kind"] == "StatefulSet" for each in found):
                volumes |= {"state": {}}
            for container in (*pod.get("initContainers", ()), *pod["containers"]):
                assert {mount["name"] for mount in container.get("volumeMounts", ())} <= volumes.keys(), name
            for volume in volumes.values():
                if "configMap" in volume:
                    assert ("ConfigMap", volume["configMap"]["name"]) in there
                if "secret" in volume:
                    secret = volume["secret"]["secretName"]
                    assert ("Secret", secret) in there or f'"{secret}"' in given, name
                if "persistentVolumeClaim" in volume:
                    claim = volume["persistentVolumeClaim"]["claimName"]
                    assert ("PersistentVolumeClaim", claim) in there or f'"{claim}"' in given, name


def test_every_pod_is_restricted() -> None:
    """As the Pod Security Standard says; the API server says it again in test_api_server.py."""
    seen = 0
    for found in rendered().values():
        for pod in filter(None, map(pod_of, found)):
            seen += 1
            assert pod["securityContext"]["runAsNonRoot"] is True
            assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            assert pod["automountServiceAccountToken"] is False
            for container in (*pod.get("initContainers", ()), *pod["containers"]):
                assert container["securityContext"] == {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                }
    assert seen > 2 * len(CASES)


def contexts(document: Document | dict[str, Any] | list[Any]) -> Iterator[dict[str, Any]]:
    """The security contexts of pods anywhere in an object, by the names of Kubernetes and of the operators of Spark."""
    if isinstance(document, list):
        for each in document:
            yield from contexts(each)
    if isinstance(document, Mapping):
        for key, value in document.items():
            if key in ("securityContext", "podSecurityContext") and "runAsNonRoot" in value:
                yield value
            yield from contexts(value)


@pytest.mark.parametrize(("option", "uid"), [("nightly", 10001), ("by another user", 1_000_700_000)])
@pytest.mark.parametrize("base", BASES)
def test_the_user_is_the_one_of_the_values(base: str, option: str, uid: int) -> None:
    found = list(contexts(rendered()[f"{base}, {option}"]))
    assert len(found) >= 3
    for each in found:
        assert (each["runAsUser"], each["runAsGroup"], each["fsGroup"]) == (uid, uid, uid)


@pytest.mark.parametrize("base", BASES)
def test_openshift_chooses_the_user(base: str) -> None:
    """Its restricted-v2 refuses a user and a group that are not of the namespace's range, and some volumes."""
    found = rendered()[f"{base}, on OpenShift"]
    given = list(contexts(found))
    # The gateway, the nightly job, the test, driver and executor.
    assert len(given) == 5
    for each in given:
        assert each == {
            "runAsNonRoot": True,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        }
    for pod in filter(None, map(pod_of, found)):
        for volume in pod["volumes"]:
            assert volume.keys() & {"configMap", "emptyDir", "persistentVolumeClaim", "secret"}
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            # The image's directory is open to its own user only.
            places = [mount["mountPath"] for mount in container["volumeMounts"]]
            assert container.get("workingDir") in places or "/var/lib/babelgate" in places


def test_temporary_files_of_the_gateway_have_a_bound_and_enough_space() -> None:
    for found in rendered().values():
        (volume,) = [each for each in gateway_of(found)["spec"]["template"]["spec"]["volumes"] if each["name"] == "tmp"]
        assert volume["emptyDir"] == {"sizeLimit": "1Gi"}
    assert 2 * MAX_BYTES <= 1 << 30


def test_a_pod_has_the_time_to_stop() -> None:
    """Kubernetes kills a pod that is not gone after the grace period, which begins before preStop."""
    for name, found in rendered().items():
        pod = pod_of(gateway_of(found)) or {}
        config = CASES[name].get("config", {})
        (gateway,) = pod["containers"]
        wait = int(gateway["lifecycle"]["preStop"]["exec"]["command"][1])
        defaults = settings.Settings.model_fields
        draining = config.get("drain_seconds", defaults["drain_seconds"].default)
        finishing = config.get("shutdown_seconds", defaults["shutdown_seconds"].default)
        assert pod["terminationGracePeriodSeconds"] > wait + ceil(draining) + ceil(finishing) + CLOSE_SECONDS, name


def test_probes_ask_where_the_gateway_answers() -> None:
    for name, found in rendered().items():
        config = CASES[name].get("config", {})
        (gateway,) = (pod_of(gateway_of(found)) or {})["containers"]
        (port,) = [each["containerPort"] for each in gateway["ports"] if each["name"] == "http"]
        assert port == config.get("port", 8080)
        for probe, path in (("startupProbe", "startupz"), ("readinessProbe", "readyz"), ("livenessProbe", "livez")):
            assert gateway[probe]["httpGet"] == {
                "path": f"{config.get('prefix', '')}/{path}",
                "port": "http",
                "scheme": "HTTPS" if "tls_cert" in config else "HTTP",
            }


def test_secrets_come_by_reference() -> None:
    """No ConfigMap and no pod has a password, a token or a key."""
    for name, found in rendered().items():
        texts = [json.dumps(each) for each in found if each["kind"] != "Secret"]
        secrets = [value for each in found if each["kind"] == "Secret" for value in each["data"].values()]
        assert not [value for value in secrets for text in texts if value in text], name


def test_rules_and_dashboard_are_the_files() -> None:
    found = rendered()["redis, observed"]
    assert only(found, "PrometheusRule")["spec"]["groups"] == groups()
    assert json.loads(only(found, "ConfigMap", "-dashboard")["data"]["babelgate.json"]) == dashboard()


def files(found: list[Document], directory: Path) -> tuple[dict[str, str], str]:
    """Lay the files of a gateway's pod under ``directory``; its environment, and the configuration with these paths.

    What the chart does not have comes from elsewhere: it gets some content.
    """
    pod = pod_of(gateway_of(found)) or {}
    (check,) = pod["initContainers"]
    secrets = {each["metadata"]["name"]: each["data"] for each in found if each["kind"] == "Secret"}
    for each in check["volumeMounts"]:
        (directory / each["mountPath"].lstrip("/")).mkdir(parents=True, exist_ok=True)
    (directory / "run" / "secrets").mkdir(exist_ok=True)
    certify(directory / "run" / "secrets")
    for volume in pod["volumes"]:
        for item in volume.get("secret", {}).get("items", ()):
            known = secrets.get(volume["secret"]["secretName"])
            assert known is None or item["key"] in known
            mount = next(each["mountPath"] for each in check["volumeMounts"] if each["name"] == volume["name"])
            path = directory / mount.lstrip("/") / item["path"]
            path.write_text("0" * 63 + str(len(list(path.parent.iterdir()))))
    text = only(found, "ConfigMap", gateway_of(found)["metadata"]["name"])["data"]["babelgate.yaml"]
    for path in ("/run/", "/var/lib/"):
        text = text.replace(path, f"{directory}{path}")
    (directory / "etc/babelgate/babelgate.yaml").write_text(text)
    environ = {each["name"]: each.get("value", "10.0.0.7") for each in check["env"]}
    return environ | {"BABELGATE_CONFIG": str(directory / "etc/babelgate/babelgate.yaml")}, text


def configurations() -> Mapping[str, list[Document]]:
    """The cases whose gateways differ in their configuration."""
    different: dict[str, str] = {}
    for name, found in rendered().items():
        text = only(found, "ConfigMap", gateway_of(found)["metadata"]["name"])["data"]["babelgate.yaml"]
        different.setdefault(text, name)
    return {name: rendered()[name] for name in different.values()}


def test_the_gateway_accepts_every_configuration(tmp_path: Path) -> None:
    """By the command of the init container. Certificates and passwords are other ones."""
    checked = 0
    for number, (name, found) in enumerate(configurations().items()):
        directory = tmp_path / str(number)
        environ, text = files(found, directory)
        tls = directory / "run" / "secrets" / "tls"
        if tls.is_dir():
            (tls.parent / "server.crt").rename(tls / "tls.crt")
            (tls.parent / "server.key").rename(tls / "tls.key")
            (tls.parent / "cache" / "password").write_text("a-b_c")
        (check,) = (pod_of(gateway_of(found)) or {})["initContainers"]
        done = program.run(*check["args"], environ=environ)
        assert done.returncode == 0, (name, text, done.stderr)
        loaded = settings.load(Path(environ["BABELGATE_CONFIG"]), environ)
        assert loaded.peers.listen and loaded.peers.dns and loaded.token_keys and loaded.auth
        assert not loaded.is_loopback
        assert loaded.state_dir == directory / "var/lib/babelgate"
        # Other members of `auth` stay beside the tokens of the chart.
        assert loaded.auth == "none" or loaded.auth.made_tokens.max_ttl_seconds == (
            86_400 if "max_ttl_seconds" in text else 31_536_000
        )
        checked += 1
    assert checked > 10


def test_the_init_container_refuses_a_mistake(tmp_path: Path) -> None:
    found = documents(template(merged(BASES["redis"], {"config": {"default": {"broker": "cash"}}})))
    environ, _ = files(found, tmp_path)
    (check,) = (pod_of(gateway_of(found)) or {})["initContainers"]
    done = program.run(*check["args"], environ=environ)
    assert done.returncode == 1
    assert b"default.broker: no broker 'cash' is configured" in done.stderr


def test_patterns_keep_their_order(tmp_path: Path) -> None:
    environ, _ = files(rendered()["many, nothing"], tmp_path)
    (tmp_path / "run/secrets/cache/password").write_text("x")
    loaded = settings.load(Path(environ["BABELGATE_CONFIG"]), environ)
    assert list(loaded.queues) == ["z.*", "a*", "mails"]
    assert loaded.limits.max_stream_bytes == 1_073_741_824


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"confg": {}}, "additional properties 'confg' not allowed"),
    ({"replicas": 0}, "/replicas"),
    ({"service": {"port": 70_000}}, "/service/port"),
    ({"uid": 0}, "/uid"),
    ({"pipeline": {"spark": {"operator": "none"}}}, "/pipeline/spark/operator"),
    ({"tokenKeys": {"ids": []}}, "/tokenKeys/ids"),
    ({"tokens": {"rights": {"client": {"*": ["read"]}}}}, "/tokens/rights/client"),
    ({"persistence": {"enabled": False}}, "persistence.enabled: SQLite keeps messages"),
    ({"replicas": 2}, "replicas: each gateway would have an SQLite file of its own"),
    ({"autoscaling": {"enabled": True}}, "replicas: each gateway would have an SQLite file of its own"),
    ({"config": {"brokers": {"a": {"url": "sqlite:///a.db"}}}, "replicas": 2}, "replicas: each gateway"),
    ({"config": {"workers": 4}}, "config.workers: the chart sets it; a pod has one worker"),
    ({"config": {"state_dir": "/data"}}, "config.state_dir: the chart sets it"),
    ({"config": {"token_keys": []}}, "config.token_keys: the chart sets it; use tokenKeys"),
    ({"config": {"peers": {}}}, "config.peers: the chart sets it; use peers.port"),
    ({"config": {"brokers": {"r": "amqp://shop:secret@r/"}}}, "config.brokers.r: everyone who may read a ConfigMap"),
    ({"config": {"brokers": {"r": {"url": "redis://:secret@r/"}}}}, "config.brokers.r.url: everyone who may read"),
    (
        {"config": {**BASES["redis"]["config"], "queues": {"a*": {}, "b*": {}}}},
        "patternOrder: config.queues has several",
    ),
    ({"config": BASES["redis"]["config"], "patternOrder": ["a*"]}, "patternOrder: config.queues has no a"),
    (
        {"serviceMonitor": {"enabled": True}, "tokens": {"rights": {"metrics": None}}},
        "tokens.rights.metrics: is needed",
    ),
    ({"tokens": {"rights": {"test": None}}}, "tokens.rights.test: is needed for helm test"),
    ({"ingress": {"enabled": True}}, "ingress.hosts: name at least one host"),
    ({"httpRoute": {"enabled": True}}, "httpRoute.parentRefs: name at least one Gateway"),
]


@pytest.mark.parametrize(("values", "words"), REFUSED)
def test_values_that_cannot_work_are_refused_in_words(values: dict[str, Any], words: str) -> None:
    with pytest.raises(AssertionError) as refused:
        template(values)
    assert words in str(refused.value)


def leaves(tree: Mapping[str, Any], *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The values of values.yaml; an empty mapping is one, and so are the mappings of labels and resources."""
    for key, value in tree.items():
        if isinstance(value, Mapping) and value and key not in ("rights", "labels", "resources", "behavior"):
            yield from leaves(value, *path, key)
        else:
            yield (*path, key), value


VALUES = dict(leaves(yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))))
EVERYTHING = merged(
    BASES["many"],
    {
        "replicas": 2,
        "persistence": {"enabled": True},
        "ingress": {"enabled": True, "hosts": ["a.example"]},
        "httpRoute": {"enabled": True, "parentRefs": [{"name": "public"}]},
        "networkPolicy": {"clients": [{"podSelector": {}}]},
        "serviceMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "dashboard": {"enabled": True},
        "pipeline": {
            "cronJob": {"enabled": True},
            "continuous": {"commands": ["ingest", "metrics"]},
            "spark": {"operator": "kubeflow", "jobs": ["metrics", "redrive"]},
            "openlineage": LINEAGE,
        },
        "autoscaling": {"keda": {"prometheusAddress": "http://p", "queues": [{"queue": "a", "messagesPerReplica": 1}]}},
    },
)
SCENES = [
    EVERYTHING,
    merged(EVERYTHING, {"autoscaling": {"enabled": True}}),
    merged(EVERYTHING, {"autoscaling": {"enabled": True, "keda": {"enabled": True}}}),
]
ANOTHER: Mapping[tuple[str, ...], Any] = {
    ("config",): {"brokers": {"another": "redis://another"}},
    ("patternOrder",): ["a*", "z.*"],
    ("env",): [{"name": "ANOTHER", "value": "x"}],
    ("envFrom",): [{"secretRef": {"name": "another"}}],
    ("image", "digest"): "sha256:" + "1" * 64,
    ("pipeline", "image", "digest"): "sha256:" + "1" * 64,
    ("pipeline", "lake"): "s3a://another",
    ("pipeline", "report"): "/another/report.html",
    ("image", "pullPolicy"): "Never",
    ("service", "type"): "NodePort",
    ("tokens", "rights"): {"another": {"*": ["send"]}},
    ("ingress", "tls"): [{"hosts": ["another.example"]}],
    ("httpRoute", "parentRefs"): [{"name": "another"}],
    ("httpRoute", "requestTimeout"): "7s",
    ("serviceMonitor", "interval"): "7s",
    ("persistence", "enabled"): False,
    ("persistence", "accessModes"): ["ReadWriteMany"],
    ("autoscaling", "behavior"): {"scaleUp": {"stabilizationWindowSeconds": 7}},
    ("autoscaling", "keda", "queues"): [{"queue": "another", "messagesPerReplica": 7}],
    ("networkPolicy", "clients"): [{"namespaceSelector": {}}],
    ("networkPolicy", "egress"): [{"to": [{"namespaceSelector": {}}]}],
    ("tolerations",): [{"key": "another"}],
    ("topologySpreadConstraints",): [],
    ("affinity",): {"podAntiAffinity": {}},
    ("pipeline", "spark", "operator"): "apache",
    ("pipeline", "spark", "jobs"): ["metrics"],
    ("pipeline", "continuous", "commands"): ["metrics"],
    ("pipeline", "continuous", "roundSeconds"): 700,
    ("pipeline", "continuous", "driverMemory"): "7g",
    ("pipeline", "cronJob", "driverMemory"): "7g",
    ("pipeline", "cronJob", "timeZone"): "Another/Zone",
    ("pipeline", "openlineage", "url"): "https://another",
    ("pipeline", "openlineage", "env"): {"OPENLINEAGE_NAMESPACE": "another"},
    ("pipeline", "tolerations"): [{"key": "another"}],
}
"""Another value, where its type does not give one."""


def another(path: tuple[str, ...], now: Any) -> Any:
    """A value that differs from ``now``."""
    if path in ANOTHER:
        return ANOTHER[path]
    match now:
        case bool():
            return not now
        case int():
            return now + 1
        case str():
            return "7Gi" if path[-1] == "size" else f"another{now}"[:40].rstrip(":/-.0123456789")
        case list():
            return ["another"]
        case None:
            return 7
    return {"requests": {"cpu": "7"}} if path[-1] == "resources" else {"another": "another"}


def seen(values: Mapping[str, Any], *options: str) -> str:
    """What is rendered, without the random values of Secrets and what only repeats the configuration."""
    text = template(values, *options)
    kept = [each | {"data": sorted(each["data"])} if each["kind"] == "Secret" else each for each in documents(text)]
    return re.sub(r'"checksum/config": "\w+"', "", json.dumps(kept))


def test_every_value_is_used() -> None:
    """Another value of each changes an object, where everything is switched on."""
    before = [seen(scene) for scene in SCENES]

    def changes(path: tuple[str, ...]) -> bool:
        for scene, text in zip(SCENES, before, strict=True):
            place: Any = scene
            for key in path:
                place = place.get(key) if isinstance(place, Mapping) else None
            value: Any = another(path, VALUES[path] if place is None or path in ANOTHER else place)
            for key in reversed(path):
                value = {key: value}
            replaced = merged(scene, value) if path != ("config",) else {**scene, "patternOrder": [], **value}
            if seen(replaced) != text:
                return True
        return False

    with ThreadPoolExecutor(4) as pool:
        unused = [".".join(path) for path, used in zip(VALUES, pool.map(changes, VALUES), strict=True) if not used]
    assert len(VALUES) > 80
    assert unused == []


def test_every_value_is_explained() -> None:
    text = (CHART / "README.md").read_text("utf-8")
    explained = set(re.findall(r"^\| `([A-Za-z.]+)` \|", text, re.M))
    assert {path for path in map(".".join, VALUES) if path not in explained} == set()
