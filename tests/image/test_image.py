"""What is in the image, and what is not."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from functools import cache
from pathlib import Path

import pytest

from babelgate import __version__
from tests.harness import image as harness
from tests.harness.image import LIMITS, ROOT, TAG, Podman

pytestmark = pytest.mark.slow

PREFIX = "/opt/babelgate"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

IMPORTS = """
import importlib, json, pathlib, pkgutil, sys
import babelgate
from babelgate.brokers import registry
# The pipeline has an image of its own, and a program starts where it is imported.
skipped = ("babelgate.pipeline", "babelgate.demo", "babelgate.__main__")
found = (m.name for m in pkgutil.walk_packages(babelgate.__path__, "babelgate.", onerror=print))
names = [name for name in found if not name.startswith(skipped)]
for name in (*names, *(driver.module for driver in registry.SCHEMES.values()), *sys.argv[1:]):
    importlib.import_module(name)
stale = []
for module in list(sys.modules.values()):
    source, cached = getattr(module, "__file__", None), getattr(module, "__cached__", None)
    if cached and source and source.endswith(".py"):
        path = pathlib.Path(cached)
        changed = int(pathlib.Path(source).stat().st_mtime).to_bytes(4, "little")
        # https://peps.python.org/pep-0552/: the time of the source follows the magic number and the flags.
        if not path.is_file() or path.read_bytes()[8:12] != changed:
            stale.append(module.__name__)
print(json.dumps({"imported": sorted(set(sys.modules)), "stale": sorted(stale)}))
"""
CLIENTS = ("aioboto3", "aio_pika", "azure.identity.aio", "azure.servicebus.aio", "confluent_kafka", "proton", "redis")
OTHERS = ("hiredis", "s3fs", "uvloop", "httptools", "opentelemetry.exporter.otlp.proto.grpc.trace_exporter")

INSTALLED = """
import json
from importlib import metadata
print(json.dumps({d.metadata["Name"]: d.version for d in metadata.distributions()}))
"""


@cache
def in_image(podman: Podman, *arguments: str) -> str:
    """What a program of the image prints."""
    program, *rest = arguments
    return podman("run", "--rm", "--network", "none", "--read-only", *LIMITS, "--entrypoint", program, TAG, *rest)


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_labels(podman: Podman) -> None:
    labels = podman.inspect(TAG, "image")["Labels"]
    prefix = "org.opencontainers.image."
    assert {name.removeprefix(prefix): text for name, text in labels.items() if name.startswith(prefix)} == {
        "title": PROJECT["name"],
        "description": PROJECT["description"],
        "licenses": PROJECT["license"],
        "version": __version__,
    }


def test_settings(podman: Podman) -> None:
    config = podman.inspect(TAG, "image")
    assert config["User"] == "10001:10001"
    assert config["Healthcheck"]["Test"] == ["CMD", "babelgate", "healthcheck"]
    assert list(config["Config"]["Volumes"]) == ["/var/lib/babelgate"]
    # Nothing of the machine that built it.
    assert {name.partition("=")[0] for name in config["Config"]["Env"]} == {
        "PATH",
        "BABELGATE_HOST",
        "BABELGATE_STATE_DIR",
    }


def test_every_module_and_every_client_is_there_and_compiled(podman: Podman) -> None:
    """On a read-only file system, what is not compiled is compiled at every start."""
    found = json.loads(in_image(podman, "python3", "-W", "ignore", "-c", IMPORTS, *CLIENTS, *OTHERS))
    assert {*CLIENTS, *OTHERS, "babelgate.observe.otel", "babelgate.brokers.artemis.binding"} <= set(found["imported"])
    assert found["stale"] == []


def test_the_bill_of_materials_is_what_is_installed(podman: Podman) -> None:
    document = json.loads(in_image(podman, "cat", f"{PREFIX}/sbom.cdx.json"))
    installed = {
        normalized(name): version for name, version in json.loads(in_image(podman, "python3", "-c", INSTALLED)).items()
    }
    assert installed.pop("babelgate") == document["metadata"]["component"]["version"] == __version__
    assert {each["name"]: each["version"] for each in document["components"]} == installed
    locks = "".join((ROOT / f"requirements{name}.txt").read_text("utf-8") for name in ("", "-artemis"))
    assert installed.items() <= {(name, version) for name, version in re.findall(r"^(\S+)==(\S+)", locks, re.M)}
    assert {"uvloop", "python-qpid-proton"} <= installed.keys()
    assert all(each["licenses"][0]["expression"] for each in document["components"])


@pytest.mark.parametrize("program", ["gcc", "strip", "pip", f"{PREFIX}/bin/pip"])
def test_what_builds_it_is_not_in_it(podman: Podman, program: str) -> None:
    done = podman.run("run", "--rm", "--network", "none", *LIMITS, "--entrypoint", program, TAG, "--version")
    assert done.returncode == 127, done.stdout + done.stderr


def test_a_change_of_the_program_adds_one_layer_to_those_of_before(podman: Podman, tmp_path: Path) -> None:
    """Dependencies that were installed again would have other times, and their layer another digest."""
    copied = tmp_path / "checkout"
    copied.mkdir()
    for name in re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text("utf-8"), re.M):
        source, target = ROOT / name, copied / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy2)(source, target)
    for name in ("Dockerfile", ".dockerignore"):
        shutil.copy2(ROOT / name, copied / name)
    with (copied / "app" / "babelgate" / "__init__.py").open("a", encoding="utf-8") as file:
        file.write(f"# {tmp_path.name}\n")
    changed = "babelgate:changed"
    harness.build(copied, changed)
    before, after = (podman.inspect(tag, "image")["RootFS"]["Layers"] for tag in (TAG, changed))
    harness.remove(changed)
    assert before[:-1] == after[:-1]
    assert before[-1] != after[-1]


def test_the_sizes_of_the_layers_are_those_of_the_page(podman: Podman) -> None:
    page = (ROOT / "docs" / "operating.md").read_text("utf-8")
    (table,) = re.findall(r"^\| layer \| MB .*\n\|[- |]*\n((?:\|.*\n)+)", page, re.M)
    stated = [int(row.split("|")[2]) for row in table.splitlines()]
    (total,) = re.findall(r"\*\*Size\.\*\* (\d+) MB", page)
    assert sum(stated) == int(total)
    *layers, _ = [each["size"] for each in json.loads(podman("history", "--format", "json", TAG)) if each["size"]]
    assert [size / 1e6 for size in reversed(layers)] == [pytest.approx(each, rel=0.15) for each in stated]
