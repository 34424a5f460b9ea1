"""A real API server takes what the chart renders, under Pod Security admission, and keys stay through all changes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.harness.kubernetes import Cluster, cluster
from tests.helm.matrix import BASES, OPTIONS, merged, rendered
from tests.helm.test_matrix import EVERYTHING, foreign, pod_of
from tools.helm import CHART, Document, documents, helm, only

pytestmark = pytest.mark.slow

REDIS = BASES["redis"]
KEYS, TOKENS = "shop-babelgate-token-keys", "shop-babelgate-tokens"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A server that knows the kinds of other projects, though not their schemas."""
    with cluster(tmp_path_factory.mktemp("kubernetes")) as running:
        for version, kind in {(each["apiVersion"], each["kind"]) for each in foreign()}:
            group, _, number = version.partition("/")
            running.define(group, number, kind)
        yield running


class Release:
    """The release ``shop`` in a namespace of its own, in which the restricted standard is enforced."""

    def __init__(self, api: Cluster, namespace: str) -> None:
        self.api = api
        self.namespace = api.restricted(namespace)

    def run(self, verb: str, *arguments: str, values: Mapping[str, Any] | None = None) -> str:
        """What ``helm VERB shop …`` prints."""
        return helm(verb, "shop", *arguments, "--namespace", self.namespace, values=values, environ=self.api.environ)

    def install(self, values: Mapping[str, Any], verb: str = "install") -> str:
        return self.run(verb, str(CHART), values=values)

    def upgrade(self, values: Mapping[str, Any]) -> str:
        return self.install(values, "upgrade")

    def manifest(self) -> list[Document]:
        """The objects of the current revision, without the test."""
        options = ("--namespace", self.namespace)
        return documents(helm("get", "manifest", "shop", *options, environ=self.api.environ))

    def there(self, found: list[Document]) -> list[str]:
        """The kinds of those that the server has."""
        return sorted(each["kind"] for each in found if self.api.get(each, self.namespace) is not None)

    def keys(self) -> Mapping[str, str]:
        return self.api.secret(KEYS, self.namespace)


@pytest.fixture
def release(api: Cluster, queue: str) -> Release:
    return Release(api, queue)


def test_the_server_takes_every_object_of_the_matrix(api: Cluster, queue: str) -> None:
    """Each different one, checked by the server's own code, without unknown fields."""
    namespace = api.restricted(queue)
    different = {json.dumps(each): each for found in rendered().values() for each in found}
    for document in different.values():
        placed = {**document, "metadata": {**document["metadata"], "namespace": namespace}}
        answer = api.create(placed, namespace, keep=False)
        assert answer.status_code == 201, (document["kind"], answer.text)
    assert len(different) > 100


def test_every_pod_is_admitted_under_the_restricted_standard(api: Cluster, queue: str) -> None:
    namespace = api.restricted(queue)
    specs = (pod_of(each) for found in rendered().values() for each in found)
    pods = {json.dumps(spec): spec for spec in specs if spec is not None}
    for number, spec in enumerate(pods.values()):
        volumes = [*spec.get("volumes", ())]
        if not any(each["name"] == "state" for each in volumes):
            # Where the controller of a StatefulSet puts the volume that it claims.
            volumes.append({"name": "state", "persistentVolumeClaim": {"claimName": "state-0"}})
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod-{number}"}}
        # Nobody made the class in this cluster.
        admitted = {**spec, "volumes": volumes, "priorityClassName": ""}
        answer = api.create({**pod, "spec": admitted}, namespace, keep=False)
        assert answer.status_code == 201, answer.text
    assert len(pods) > 20
    root = {**spec, "volumes": volumes, "securityContext": {}}
    refused = api.create({**pod, "spec": root}, namespace, keep=False)
    assert refused.status_code == 403
    assert 'violates PodSecurity "restricted' in refused.json()["message"]


def test_an_installation_is_complete_and_goes_away(release: Release) -> None:
    notes = release.install(merged(EVERYTHING, {"autoscaling": {"enabled": True}}))
    assert "Clients need a token" in notes
    found = release.manifest()
    assert release.there(found) == sorted(each["kind"] for each in found)
    assert {"StatefulSet", "Service", "Ingress", "HTTPRoute", "ServiceMonitor", "CronJob", "SparkApplication"} <= set(
        release.there(found)
    )
    release.run("uninstall")
    kept = release.there(found)
    assert kept == ["PersistentVolumeClaim", "Secret", "Secret"]


def test_the_keys_are_the_same_after_upgrade_rollback_and_a_new_installation(release: Release) -> None:
    release.install(REDIS)
    first, tokens = release.keys(), release.api.secret(TOKENS, release.namespace)
    assert set(first) == {"1"}
    release.upgrade(merged(REDIS, {"config": {"log_level": "debug"}, "replicas": 5}))
    assert release.keys() == first
    deployment = only(release.manifest(), "Deployment")
    kept = release.api.get(deployment, release.namespace)
    assert kept is not None and kept["spec"]["replicas"] == 5
    release.run("rollback", "1")
    kept = release.api.get(deployment, release.namespace)
    assert kept is not None and kept["spec"]["replicas"] == 2
    assert release.keys() == first
    release.run("uninstall")
    release.install(REDIS)
    assert release.keys() == first
    assert release.api.secret(TOKENS, release.namespace) == tokens
    history = json.loads(release.run("history", "--output", "json"))
    assert [each["status"] for each in history] == ["deployed"]


def test_a_key_is_rotated_by_adding_one(release: Release) -> None:
    release.install(REDIS)
    old = release.keys()["1"]
    release.upgrade(merged(REDIS, {"tokenKeys": {"ids": ["1", "2"]}}))
    both = release.keys()
    assert both["1"] == old != both["2"]
    release.upgrade(merged(REDIS, {"tokenKeys": {"ids": ["2", "1"]}}))
    assert release.keys() == both
    release.upgrade(merged(REDIS, {"tokenKeys": {"ids": ["2"]}}))
    assert release.keys() == {"2": both["2"]}
    release.run("rollback", "3")
    assert release.keys() == both


def test_a_token_is_added_and_the_others_stay(release: Release) -> None:
    release.install(REDIS)
    before = release.api.secret(TOKENS, release.namespace)
    release.upgrade(merged(REDIS, {"tokens": {"rights": {"billing": {"bills": ["send"]}}}}))
    after = release.api.secret(TOKENS, release.namespace)
    assert after.keys() - before.keys() == {"billing", "billing.sha256"}
    assert before.items() <= after.items()


def test_a_release_moves_from_sqlite_to_brokers_and_to_a_journal(release: Release) -> None:
    """The kind of the workload changes; the one before goes."""
    kinds = []
    for verb, values in (("install", {}), ("upgrade", REDIS), ("upgrade", BASES["journal"])):
        release.install(values, verb)
        found = release.manifest()
        kinds.append([each["kind"] for each in found if each["kind"] in ("Deployment", "StatefulSet")])
        workloads = {"apiVersion": "apps/v1", "metadata": {"name": "shop-babelgate"}}
        both = [{**workloads, "kind": kind} for kind in ("Deployment", "StatefulSet")]
        assert release.there(both) == kinds[-1]
    assert kinds == [["StatefulSet"], ["Deployment"], ["StatefulSet"]]


def test_an_upgrade_leaves_the_number_of_gateways_to_the_autoscaler(release: Release) -> None:
    release.install(merged(REDIS, {"replicas": 4}))
    scaled = merged(REDIS, {"autoscaling": {"enabled": True}})
    release.upgrade(scaled)
    deployment = only(release.manifest(), "Deployment")

    def replicas() -> int:
        kept = release.api.get(deployment, release.namespace)
        return int(kept["spec"]["replicas"]) if kept is not None else 0

    assert replicas() == 4
    path = f"/apis/apps/v1/namespaces/{release.namespace}/deployments/shop-babelgate/scale"
    patch = {"content-type": "application/merge-patch+json"}
    answer = release.api.client.patch(path, content=json.dumps({"spec": {"replicas": 7}}), headers=patch)
    answer.raise_for_status()
    release.upgrade(merged(scaled, {"config": {"log_level": "debug"}}))
    assert replicas() == 7


def test_an_upgrade_that_cannot_work_changes_nothing(release: Release) -> None:
    release.install(REDIS)
    with pytest.raises(AssertionError, match=r"config\.workers"):
        release.upgrade(merged(REDIS, {"config": {"workers": 2}}))
    history = json.loads(release.run("history", "--output", "json"))
    assert [each["revision"] for each in history] == [1]


def test_a_release_changes_its_options(release: Release) -> None:
    """From nothing to each group of options and back, on one release."""
    release.install(REDIS)
    for options in OPTIONS.values():
        if "fullnameOverride" not in options:
            release.upgrade(merged(REDIS, options))
            found = release.manifest()
            assert release.there(found) == sorted(each["kind"] for each in found)
    release.upgrade(REDIS)
    found = release.manifest()
    assert release.there(found) == sorted(each["kind"] for each in found)


def test_a_driver_may_start_executors_and_nothing_else(release: Release) -> None:
    """The server answers for the account of drivers, and for that of executors, which may do nothing."""
    release.install(EVERYTHING)

    def may(account: str, verb: str, resource: str, group: str = "", name: str = "") -> bool:
        attributes = {"namespace": release.namespace, "verb": verb, "resource": resource, "group": group, "name": name}
        user = f"system:serviceaccount:{release.namespace}:shop-babelgate-{account}"
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
        answer = release.api.create(review | {"spec": {"user": user, "resourceAttributes": attributes}})
        assert answer.status_code == 201, answer.text
        return bool(answer.json()["status"]["allowed"])

    needed = [("pods", verb) for verb in ("get", "list", "watch", "create")]
    assert all(may("pipeline", verb, resource) for resource, verb in needed)
    assert not any(may("executor", verb, resource) for resource, verb in needed)
    verbs = ("get", "list", "create", "update", "patch", "delete", "deletecollection")
    for document in release.manifest():
        group, _, _ = document["apiVersion"].rpartition("/")
        resource = f"{document['kind'].lower()}s".replace("policys", "policies").replace("ingresss", "ingresses")
        for verb in verbs:
            assert not may("pipeline", verb, resource, group, document["metadata"]["name"]), (verb, resource)
    for verb in ("update", "patch", "delete", "deletecollection"):
        assert not may("pipeline", verb, "pods")
    assert not may("pipeline", "create", "pods/exec") and not may("pipeline", "get", "secrets")
