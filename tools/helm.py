"""Renders the chart with Helm, and validates what it renders by the schemas of Kubernetes and of other projects.

``python -m tools.helm`` installs Helm and the types of other projects' objects once into ``.brokers``; the
tests only run them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jsonschema_rs
import kubernetes_validate
import yaml

from tests.harness.ci import missing

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "helm" / "babelgate"
_VERSION = "v4.3.1"
HELM = ROOT / ".brokers" / f"helm-{_VERSION}" / "helm"

_TYPES = ROOT / ".brokers" / "kubernetes-models"
_TYPE_PACKAGES = (
    "@kubernetes-models/gateway-api@2.0.0",
    "@kubernetes-models/keda@2.0.0",
    "@kubernetes-models/prometheus-operator@6.0.0",
    "typescript@5.9.3",
)
_PACKAGE_OF = {
    "gateway.networking.k8s.io": "gateway-api",
    "keda.sh": "keda",
    "monitoring.coreos.com": "prometheus-operator",
}
_COMPILE = ("--strict", "--noEmit", "--skipLibCheck", "--module", "esnext", "--moduleResolution", "bundler")

Document = dict[str, Any]
"""An object of Kubernetes."""


def fetch() -> None:
    """Install what is not here. Without Go or npm nothing is installed: the tests find it missing."""
    if not HELM.is_file() and shutil.which("go"):
        environ = {"GOTOOLCHAIN": "local", "GOFLAGS": "", "CGO_ENABLED": "0", "GOBIN": str(HELM.parent)}
        command = ["go", "install", "-trimpath", f"helm.sh/helm/v4/cmd/helm@{_VERSION}"]
        subprocess.run(command, env=os.environ | environ, check=True)
    if not _installed() and shutil.which("npm"):
        _TYPES.mkdir(parents=True, exist_ok=True)
        options = ["--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(_TYPES)]
        subprocess.run(["npm", "install", *options, *_TYPE_PACKAGES], check=True)
        (_TYPES / "installed").write_text("\n".join(_TYPE_PACKAGES), "utf-8")


def _installed() -> bool:
    record = _TYPES / "installed"
    return record.is_file() and record.read_text("utf-8") == "\n".join(_TYPE_PACKAGES)


def helm(*arguments: str, values: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None) -> str:
    """What Helm prints on standard output; ``values`` are those of a file. Raises AssertionError with its error."""
    if not HELM.is_file():
        missing("Helm", "run `python -m tools.helm`")
    with TemporaryDirectory() as home:
        own = {f"HELM_{kind}_HOME": f"{home}/{kind.lower()}" for kind in ("CACHE", "CONFIG", "DATA")}
        given = Path(home, "values.yaml")
        given.write_text(yaml.safe_dump(dict(values or {})), "utf-8")
        files = ["--values", str(given)] if values is not None else []
        done = subprocess.run(
            [HELM, *arguments, *files], env={**os.environ, **own, **(environ or {})}, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr
    return done.stdout


def template(values: Mapping[str, Any], *options: str) -> str:
    """The manifests of the release ``shop`` in the namespace ``prod``. Raises AssertionError with Helm's reason."""
    return helm("template", "shop", str(CHART), "--namespace", "prod", *options, values=values)


def documents(text: str) -> list[Document]:
    """The objects of a manifest."""
    return [each for each in yaml.load_all(text, yaml.CSafeLoader) if each]


def only(found: Iterable[Document], kind: str, suffix: str = "") -> Document:
    """The one object of a kind whose name ends with ``suffix``."""
    (one,) = [each for each in found if each["kind"] == kind and each["metadata"]["name"].endswith(suffix)]
    return one


def group_of(document: Document) -> str:
    """The group of an object's API; empty for the core."""
    return str(document["apiVersion"].rpartition("/")[0])


def is_foreign(document: Document) -> bool:
    """Whether the object belongs to another project than Kubernetes."""
    group = group_of(document)
    return group in (*_PACKAGE_OF, "spark.apache.org", "sparkoperator.k8s.io")


@cache
def _definitions(version: str) -> tuple[dict[str, Any], dict[tuple[str, str, str], str]]:
    folder = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema" / f"v{version}.0-local-strict"
    text = (folder / "_definitions.json").read_text("utf-8").replace("/api/_definitions.json#", "#")
    definitions = json.loads(text)["$defs"]
    names = {
        (kind["group"], kind["version"], kind["kind"]): name
        for name, definition in definitions.items()
        for kind in definition.get("x-kubernetes-group-version-kind", ())
    }
    return definitions, names


@cache
def _validator(version: str, group: str, api: str, kind: str) -> Any:
    definitions, names = _definitions(version)
    schema = {"$ref": f"#/$defs/{names[group, api, kind]}", "$defs": definitions}
    return jsonschema_rs.validator_for({"$schema": "http://json-schema.org/schema#", **schema})


def validate(document: Document, version: str) -> None:
    """Raise ValidationError unless the object is one of Kubernetes ``version`` (such as 1.34), without unknown keys."""
    group, _, api = document["apiVersion"].rpartition("/")
    _validator(version, group, api, document["kind"]).validate(document)


def check_types(foreign: Iterable[Document]) -> str:
    """What TypeScript's compiler says about these objects, by the types of their projects; empty when it is content."""
    if not _installed():
        missing("the types of other projects' objects", "run `python -m tools.helm`")
    lines = []
    for number, document in enumerate(foreign):
        group, _, api = document["apiVersion"].rpartition("/")
        kind = document["kind"]
        module = f"@kubernetes-models/{_PACKAGE_OF[group]}/{group}/{api}/{kind}"
        lines.append(f'import type {{ I{kind} as T{number} }} from "{module}";')
        lines.append(f"export const d{number}: T{number} = {json.dumps(document)};")
    with TemporaryDirectory(dir=_TYPES) as folder:
        (Path(folder) / "objects.ts").write_text("\n".join(lines), "utf-8")
        command = [str(_TYPES / "node_modules" / ".bin" / "tsc"), *_COMPILE, "objects.ts"]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True).stdout


if __name__ == "__main__":
    fetch()
