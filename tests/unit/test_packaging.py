"""What the package declares is what it needs: dependencies, extras, data files, lock files."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

from babelgate.brokers import registry
from tests.architecture.sources import ROOT, belongs, binding_family, imports, modules
from tools import versions

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]

# Used without an import statement: the page of the API reads the first's files, and httpx asks the second in which loop
# it runs.
INDIRECT = {"fastapi-swagger", "sniffio"}

# Whose extra a module may import, beside the bindings.
OWN_EXTRA = {
    "babelgate.pipeline.lineage": "openlineage",
    "babelgate.pipeline": "spark",
    "babelgate.schemas": "schemas",
    "babelgate.observe.journal.segments": "journal",
    "babelgate.observe.journal.stores": "journal",
    "babelgate.observe.otel": "otlp",
    "babelgate.observe.metrics.otlp": "otlp",
}
LOCKED = next(line for line in (ROOT / "Makefile").read_text().splitlines() if line.endswith("-o requirements.txt"))
DEPLOYED = re.findall(r"--extra (\w+)", LOCKED)
TESTED = [*re.findall(r"\w+", EXTRAS["dev"][0].partition("[")[2]), "dev"]


def names(requirements: list[str]) -> set[str]:
    """The normalized distribution names of requirement lines."""
    found = (re.match(r"[A-Za-z0-9._-]+", line) for line in requirements)
    return {normalized(match.group()) for match in found if match}


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def providers() -> Mapping[str, list[str]]:
    """Import name to the installed distributions that provide it."""
    return packages_distributions()


# A package that many distributions share; what is not named of OpenTelemetry comes with the SDK.
SHARED = {
    "google.protobuf": "protobuf",
    "opentelemetry.exporter.otlp.proto.grpc": "opentelemetry-exporter-otlp-proto-grpc",
    "opentelemetry.exporter.otlp.proto.http": "opentelemetry-exporter-otlp-proto-http",
    "opentelemetry.proto": "opentelemetry-exporter-otlp-proto-http",
    "opentelemetry": "opentelemetry-sdk",
}


def provider(name: str) -> str:
    """The distribution that provides the import ``name``; what nothing installed provides stands for itself."""
    shared = next((distribution for entry, distribution in SHARED.items() if belongs(name, entry)), None)
    top = name.split(".")[0]
    return shared or normalized(providers().get(top, [top])[0])


def needed(path: Path) -> set[str]:
    """The distributions that a source file imports."""
    ours = {*sys.stdlib_module_names, "babelgate", "bench", "tests", "tools"}
    # Starlette's version is FastAPI's business, pydantic-core's is pydantic's, MarkupSafe's is Jinja's; yarl is how
    # aio-pika takes a URL, and s3fs and grpcio are what fsspec and the exporter stand on.
    parents = {
        "starlette": "fastapi",
        "pydantic-core": "pydantic",
        "markupsafe": "jinja2",
        "yarl": "aio-pika",
        "py4j": "pyspark",
        "s3fs": "fsspec",
        "grpcio": "opentelemetry-exporter-otlp-proto-grpc",
    }
    found = {provider(name) for name in imports(path) if name.split(".")[0] not in ours}
    return {parents.get(name, name) for name in found}


def pins(lock: str) -> dict[str, str]:
    """The versions of a lock file, by distribution."""
    return dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", (ROOT / lock).read_text(), re.M))


def test_every_import_is_declared() -> None:
    """A binding may import the client of the extra named like itself; else, the core and what OWN_EXTRA names."""
    core = names(PROJECT["dependencies"])
    for module, path in modules().items():
        family = binding_family(module)
        own = (
            family.rpartition(".")[2] if family else next((e for of, e in OWN_EXTRA.items() if belongs(module, of)), "")
        )
        assert needed(path) <= core | names(EXTRAS.get(own, [])), module


def test_every_import_of_the_tests_is_declared() -> None:
    used = set().union(*(needed(path) for top in ("bench", "tests", "tools") for path in (ROOT / top).rglob("*.py")))
    assert used <= names(PROJECT["dependencies"]) | names([line for extra in TESTED for line in EXTRAS[extra]])


def test_every_core_dependency_is_used() -> None:
    used = set().union(*(needed(path) for path in modules().values()))
    assert names(PROJECT["dependencies"]) - used == INDIRECT


@pytest.mark.parametrize(
    "lock",
    [
        "requirements.txt",
        "requirements-artemis.txt",
        "requirements-dev.txt",
        "requirements-build.txt",
        "requirements-spark.txt",
        "requirements-quality.txt",
    ],
)
def test_a_lock_file_is_exact_and_hashed(lock: str) -> None:
    text = (ROOT / lock).read_text()
    entries = re.split(r"\n(?=[a-z0-9])", text)[1:]
    assert entries
    for entry in entries:
        assert re.match(r"[a-z0-9._-]+==\S+", entry), entry
        assert "--hash=sha256:" in entry, entry
    assert "://" not in text


def test_the_lock_files_agree() -> None:
    """The tests run with the versions that are deployed."""
    runtime, jobs, dev = (pins(f"requirements{name}.txt") for name in ("", "-spark", "-dev"))
    assert runtime.items() | jobs.items() <= dev.items()
    assert names(PROJECT["dependencies"] + EXTRAS["spark"]) <= jobs.keys()
    assert names(PROJECT["dependencies"] + [line for extra in DEPLOYED for line in EXTRAS[extra]]) <= runtime.keys()
    assert names(EXTRAS["dev"]) - {"babelgate"} <= dev.keys()


def test_the_wheel_carries_every_file_of_the_package(tmp_path: Path) -> None:
    """SQL, Lua and static files are data, and data is what packaging forgets."""
    build = "import sys; from pdm import backend; backend.build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, str(tmp_path)], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("babelgate-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("babelgate/")}
        entry_points = archive.read(next(n for n in archive.namelist() if n.endswith("entry_points.txt"))).decode()
    files = {p for p in (ROOT / "app").rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    assert packed == {p.relative_to(ROOT / "app").as_posix() for p in files}
    assert "babelgate = babelgate.__main__:main" in entry_points


def test_loading_the_program_loads_no_broker_client() -> None:
    """Every module but the bindings themselves, in one process: no client of any extra is there afterwards."""
    plain = [
        name
        for name in modules()
        if binding_family(name) is None
        and name != "babelgate.__main__"
        and (belongs(name, "babelgate.pipeline.cli.main") or not belongs(name, "babelgate.pipeline"))
    ]
    code = "import importlib, sys; [importlib.import_module(n) for n in sys.argv[1:]]; print(*sys.modules, sep='\\n')"
    loaded = subprocess.run([sys.executable, "-c", code, *plain], cwd=ROOT, check=True, capture_output=True, text=True)
    tops = {name.split(".")[0] for name in loaded.stdout.split()}
    assert "babelgate" in tops
    assert tops.isdisjoint(
        {
            "redis",
            "hiredis",
            "aio_pika",
            "aiormq",
            "aioboto3",
            "azure",
            "pulsar",
            "confluent_kafka",
            "proton",
            "pyspark",
            "pyarrow",
        }
    )


def test_a_serving_process_loads_no_part_of_the_command_line() -> None:
    """What a worker imports: each module takes memory once per worker."""
    code = "import sys, babelgate.__main__, babelgate.server.wiring; print(*sys.modules, sep='\\n')"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    names = loaded.stdout.split()
    assert "babelgate.http.api" in names
    assert {"babelgate.cli.main", "rich", "pygments", "httpx", "pandas"}.isdisjoint(names)


def test_every_driver_has_the_extra_of_its_name() -> None:
    for driver in registry.SCHEMES.values():
        assert driver.module in modules()
        assert driver.extra is None or (driver.kind == driver.extra and driver.extra in EXTRAS)


def test_each_python_that_is_tested_is_declared() -> None:
    declared = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.search(r":: Python :: \d+\.", each)]
    assert declared == [release["Python"] for release in versions.DEBIAN.values()]
    assert PROJECT["requires-python"] == f">={declared[0]}"


def test_the_addresses_are_those_of_the_repository_that_the_client_for_go_names() -> None:
    (module,) = re.findall(r"^module (.+)/clients/go$", (ROOT / "clients/go/go.mod").read_text(), re.MULTILINE)
    repository = PROJECT["urls"]["Repository"]
    assert repository == f"https://{module}"
    files = {url.removeprefix(repository) for url in PROJECT["urls"].values()} - {""}
    assert files == {"/tree/main/docs", "/blob/main/CHANGELOG.md"}
    assert [each for each in files if not (ROOT / each.split("/main/")[1]).exists()] == []
