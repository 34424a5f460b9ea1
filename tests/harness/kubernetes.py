"""A real API server of Kubernetes, with etcd. It has no controllers and no nodes, so no pod ever runs.

``python -m tests.harness.kubernetes`` builds the server once into ``.brokers``; the tests only run it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import yaml

from tests.harness.ci import missing
from tests.harness.local import free_ports
from tools.helm import ROOT, Document

_VERSION = "v1.34.2"
_SERVER = ROOT / ".brokers" / f"kube-apiserver-{_VERSION}" / "kube-apiserver"
_TOKEN = "administrator"
_START_SECONDS = 240
_MAIN = """package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() { os.Exit(cli.Run(app.NewAPIServerCommand())) }
"""


def fetch() -> None:
    """Build the server, unless it is here. Without Go nothing is built: the tests find it missing.

    The module of Kubernetes replaces its libraries by folders of its own, which ``go install`` refuses. A module of
    ours replaces them by their releases of the same version.
    """
    if _SERVER.is_file() or not shutil.which("go"):
        return
    environ = os.environ | {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod", "CGO_ENABLED": "0"}
    with TemporaryDirectory() as folder:

        def go(*arguments: str) -> str:
            command = ["go", *arguments]
            return subprocess.run(
                command, cwd=folder, env=environ, check=True, stdout=subprocess.PIPE, text=True
            ).stdout

        module = json.loads(go("mod", "download", "-json", f"k8s.io/kubernetes@{_VERSION}"))["GoMod"]
        given = json.loads(go("mod", "edit", "-json", module))
        libraries = [each["Old"]["Path"] for each in given["Replace"] if each["New"]["Path"].startswith("./staging/")]
        lines = ["module kube-apiserver", f"go {given['Go']}", f"require k8s.io/kubernetes {_VERSION}"]
        lines += [f"replace {path} => {path} {_VERSION.replace('v1.', 'v0.')}" for path in libraries]
        Path(folder, "go.mod").write_text("\n".join(lines))
        Path(folder, "main.go").write_text(_MAIN)
        go("mod", "tidy")
        _, minor, _ = _VERSION.split(".")
        version = "k8s.io/component-base/version"
        named = f"-X {version}.gitVersion={_VERSION} -X {version}.gitMajor=1 -X {version}.gitMinor={minor}"
        go("build", "-trimpath", "-ldflags", f"-s -w {named}", "-o", str(_SERVER), ".")


class Cluster:
    """A running API server. ``client`` calls it as an administrator."""

    def __init__(self, url: str, kubeconfig: Path) -> None:
        self.environ = {"KUBECONFIG": str(kubeconfig)}
        """With it, Helm uses this server."""
        headers = {"authorization": f"Bearer {_TOKEN}"}
        self.client = httpx.Client(base_url=url, headers=headers, verify=False, timeout=120)
        self._plurals: dict[tuple[str, str], tuple[str, bool]] = {}

    def create(self, document: Document, namespace: str = "default", *, keep: bool = True) -> httpx.Response:
        """Ask for an object, without unknown fields; ``keep=False``: only let the server check it."""
        query = {"fieldValidation": "Strict"} | ({} if keep else {"dryRun": "All"})
        return self.client.post(self._path(document, namespace), json=document, params=query)

    def get(self, document: Document, namespace: str = "default") -> Document | None:
        """The object of the same kind and name; None if there is none."""
        answer = self.client.get(f"{self._path(document, namespace)}/{document['metadata']['name']}")
        return None if answer.status_code == 404 else dict(answer.raise_for_status().json())

    def secret(self, name: str, namespace: str) -> Mapping[str, str]:
        """The data of a Secret, as it is kept: base64."""
        answer = self.client.get(f"/api/v1/namespaces/{namespace}/secrets/{name}")
        return dict(answer.raise_for_status().json()["data"])

    def restricted(self, name: str) -> str:
        """A new namespace in which the restricted Pod Security Standard is enforced."""
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        self.create(namespace).raise_for_status()
        return name

    def define(self, group: str, version: str, kind: str) -> None:
        """Define a kind of another project. The server then takes any object of it."""
        plural = f"{kind.lower()}s"
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        spec = {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        }
        definition = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": spec}
        # The server asks for it where the group is one of Kubernetes' own.
        annotations = {"api-approved.kubernetes.io": "unapproved, a test"}
        metadata = {"name": f"{plural}.{group}", "annotations": annotations}
        self.create(definition | {"metadata": metadata}).raise_for_status()
        self._until(lambda: kind in self.client.get(f"/apis/{group}/{version}").text)

    def _path(self, document: Document, namespace: str) -> str:
        api, kind = document["apiVersion"], document["kind"]
        root = f"/apis/{api}" if "/" in api else f"/api/{api}"
        if (api, kind) not in self._plurals:
            resources = self.client.get(root).raise_for_status().json()["resources"]
            self._plurals |= {(api, each["kind"]): (each["name"], each["namespaced"]) for each in reversed(resources)}
        plural, namespaced = self._plurals[api, kind]
        return f"{root}/namespaces/{namespace}/{plural}" if namespaced else f"{root}/{plural}"

    @staticmethod
    def _until(condition: Any) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not condition():
            assert time.monotonic() < deadline, "the API server does not get there"
            time.sleep(0.05)


@contextmanager
def cluster(directory: Path) -> Iterator[Cluster]:
    """A running API server with an empty etcd, ended with the block. Its files and logs are in ``directory``."""
    etcd = shutil.which("etcd")
    if etcd is None:
        missing("etcd", "install the system's package etcd-server")
    if not _SERVER.is_file():
        missing("kube-apiserver", "run `python -m tests.harness.kubernetes`")
    clients, peers, port = free_ports(3)
    key = directory / "account.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    (directory / "tokens.csv").write_text(f"{_TOKEN},admin,admin,system:masters\n")
    url = f"https://127.0.0.1:{port}"
    kubeconfig = directory / "kubeconfig"
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "test", "cluster": {"server": url, "insecure-skip-tls-verify": True}}],
                "users": [{"name": "admin", "user": {"token": _TOKEN}}],
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
                "current-context": "test",
            }
        )
    )
    kubeconfig.chmod(0o600)
    store, member = f"http://127.0.0.1:{clients}", f"http://127.0.0.1:{peers}"
    commands = [
        [
            etcd,
            f"--data-dir={directory / 'etcd'}",
            f"--listen-client-urls={store}",
            f"--advertise-client-urls={store}",
            f"--listen-peer-urls={member}",
            f"--initial-advertise-peer-urls={member}",
            f"--initial-cluster=default={member}",
        ],
        [
            str(_SERVER),
            f"--etcd-servers={store}",
            f"--cert-dir={directory / 'certificates'}",
            f"--secure-port={port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--token-auth-file={directory / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24",
            # A controller would make the accounts that it asks for.
            "--disable-admission-plugins=ServiceAccount",
        ],
    ]
    with ExitStack() as stack:
        for number, command in enumerate(commands):
            log = stack.enter_context((directory / f"{number}.log").open("wb"))
            process = stack.enter_context(subprocess.Popen(command, stdout=log, stderr=log))
            stack.callback(process.kill)
        running = Cluster(url, kubeconfig)
        stack.callback(running.client.close)

        def ready() -> bool:
            try:
                return running.client.get("/readyz").status_code == 200
            except httpx.TransportError:
                return False

        running._until(ready)
        yield running


if __name__ == "__main__":
    fetch()
