"""Linters accept the OpenAPI document without a warning, generators make clients of it without one, and no change of it
breaks those clients unless the changelog says so. ``make lint-api`` runs this file."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from babelgate.config import settings
from babelgate.gateway.authorization import ANYONE
from babelgate.http import asyncapi
from babelgate.schemas.job_schemas import load
from babelgate.server.wiring import build_gateway
from tests.harness.asyncapi import configured
from tests.harness.ci import missing
from tests.harness.gateway import gateway
from tools import openapi_generator
from tools.openapi_tools import GO_MODULE, NODE_MODULES, ROOT, run

pytestmark = pytest.mark.slow

FOLDER = ROOT / "openapi"
DOCUMENT = FOLDER / "openapi.yaml"
CLIENTS = Path(__file__).parent / "clients"


def test_redocly_has_nothing_to_say(tmp_path):
    # It prints a notice about the version of Node.js as well, so that only the status tells.
    said = run("redocly", "lint", "--config", FOLDER / "redocly.yaml", DOCUMENT, cwd=tmp_path)
    assert "Your API description is valid" in said and "warning" not in said.lower().replace("deprecation warning", "")


def test_spectral_has_nothing_to_say(tmp_path):
    options = ("--ruleset", FOLDER / "spectral.yaml", "--fail-severity", "hint", "--verbose")
    said = run("spectral", "lint", *options, DOCUMENT, cwd=tmp_path)
    enabled = re.search(r"Found \d+ rules \((\d+) enabled\)", said)
    assert enabled is not None and int(enabled[1]) > 40, said


@pytest.mark.parametrize("linter", ["redocly", "spectral"])
def test_the_linters_refuse_a_worse_document(linter, tmp_path):
    worse = tmp_path / "openapi.yaml"
    worse.write_text(re.sub(r"( *)operationId: list_queues\n", "", DOCUMENT.read_text("utf-8")), "utf-8")
    rules = FOLDER / f"{linter}.yaml"
    options = ("--config", rules) if linter == "redocly" else ("--ruleset", rules, "--fail-severity", "hint")
    assert "operation" in run(linter, "lint", *options, worse, cwd=tmp_path, status=1)


ASYNCAPI_RULES = {
    "extends": ["spectral:asyncapi"],
    "rules": {
        # What the document of a running gateway does not know.
        "asyncapi-3-tags": "off",
        "asyncapi-info-contact": "off",
        "asyncapi-info-license": "off",
    },
}


def test_spectral_accepts_the_asyncapi_document(tmp_path):
    """It has the official JSON Schema of such documents."""
    found = build_gateway(settings.load(configured(tmp_path), {}))
    found.schema_checks.schemas = load(tmp_path / "schemas")
    made = asyncapi.document(found, ANYONE, asyncapi.PublicAddress("localhost:8080", "http", "/mq"))
    (tmp_path / "rules.json").write_text(json.dumps(ASYNCAPI_RULES))
    worse = {**made, "operations": {"x": {"action": "send", "channel": {"$ref": "#/channels/nowhere"}}}}
    for document, status in ((made, 0), (worse, 1)):
        (tmp_path / "asyncapi.json").write_text(json.dumps(document))
        options = ("--ruleset", "rules.json", "--fail-severity", "warn")
        run("spectral", "lint", *options, "asyncapi.json", cwd=tmp_path, status=status)


def test_openapi_generator_recommends_nothing():
    need_generator()
    assert "No validation issues detected" in openapi_generator.validate(DOCUMENT)


# Go and Java clients are generated, compiled and used in test_generated_clients.py.
@pytest.mark.parametrize("language", ["csharp", "php", "python", "typescript-fetch"])
def test_openapi_generator_makes_a_client_without_a_warning(language, tmp_path):
    need_generator()
    client = openapi_generator.generate(language, str(DOCUMENT), tmp_path / language)
    models = [path for path in client.rglob("*") if path.is_file() and path.stem.lower() == "draft"]
    assert models, "the body of a publish has a class"
    # The type of the argument is the draft, and no union.
    assert not [path for path in client.rglob("*") if path.stem.lower() in ("publication", "publishmessagerequest")]


def need_generator() -> None:
    if not openapi_generator.is_here():
        missing("openapi-generator", "run `python -m tools.openapi_generator`")


def test_openapi_python_client_publishes(tmp_path):
    target = ("--meta", "none", "--output-path", tmp_path / "client")
    run("openapi-python-client", "generate", "--path", DOCUMENT, *target, "--fail-on-warning", cwd=tmp_path)
    shutil.copy(CLIENTS / "publish.py.txt", tmp_path / "publish.py")
    with gateway(tmp_path) as server:
        assert run(sys.executable, "publish.py", server.url, cwd=tmp_path) == "36 1 1 /job\n"


def test_types_of_openapi_typescript_compile_and_publish(tmp_path):
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "node_modules").symlink_to(NODE_MODULES)
    run("openapi-typescript", DOCUMENT, "-o", tmp_path / "api.d.ts", cwd=tmp_path)
    shutil.copy(CLIENTS / "publish.ts", tmp_path)
    options = {"strict": True, "target": "es2022", "module": "preserve", "lib": ["es2022", "dom"], "types": []}
    (tmp_path / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "files": ["publish.ts"]}))
    run("tsc", cwd=tmp_path)
    with gateway(tmp_path) as server:
        printed = json.loads(run("node", "publish.js", server.url, cwd=tmp_path))
    assert (printed["to"], printed["acked"]) == ("ada@example.com", 1) and printed["created_at"] > 1_700_000_000_000


def test_a_client_of_oapi_codegen_compiles_and_publishes(tmp_path):
    module = tmp_path / "module"
    (module / "api").mkdir(parents=True)
    run(
        "oapi-codegen",
        "-generate",
        "types,client",
        "-package",
        "api",
        "-o",
        module / "api" / "api.go",
        DOCUMENT,
        cwd=tmp_path,
    )
    for name in ("go.mod", "go.sum"):
        shutil.copy(GO_MODULE / name, module)
    shutil.copy(CLIENTS / "publish.go", module / "main.go")
    run("go", "build", "-mod=mod", "-o", tmp_path / "program", ".", cwd=module)
    with gateway(tmp_path) as server:
        assert run(str(tmp_path / "program"), server.url, cwd=tmp_path) == "36 1 1\n"


def breaking(before: Path, after: Path, folder: Path) -> list[tuple[str, str]]:
    """Each change that breaks a client: its operation, such as ``GET /queues``, and what oasdiff says of it."""
    levels = ("--severity-levels", FOLDER / "oasdiff-levels.txt")
    printed = run("oasdiff", "breaking", before, after, "--format", "json", *levels, cwd=folder)
    return [(f"{change['operation']} {change['path']}", change["text"]) for change in json.loads(printed)]


def undeclared(changes: list[tuple[str, str]], changelog: str) -> list[str]:
    """The changes whose operation is not named in an entry of ``[Unreleased]`` that says **Breaking**."""
    declared = "\n".join(_breaking_entries(changelog))
    return [f"{operation}: {text}" for operation, text in changes if f"`{operation}`" not in declared]


def _breaking_entries(changelog: str) -> Iterator[str]:
    unreleased = re.split(r"^## ", changelog, flags=re.M)[1]
    assert unreleased.startswith("[Unreleased]")
    for entry in re.split(r"^- ", unreleased, flags=re.M):
        if re.search(r"\*\*Breaking\b", entry):
            yield " ".join(entry.split())


def test_a_change_that_breaks_clients_is_in_the_changelog(tmp_path):
    changes = breaking(FOLDER / "released.yaml", DOCUMENT, tmp_path)
    silent = undeclared(changes, (ROOT / "CHANGELOG.md").read_text("utf-8"))
    assert silent == [], "name each operation, as `POST /path`, in a line of CHANGELOG.md that says **Breaking**"


def test_a_breaking_change_is_found(tmp_path):
    worse = tmp_path / "openapi.yaml"
    text = DOCUMENT.read_text("utf-8")
    # oasdiff alone takes a new operationId for no break, but it is the name of a method in every client.
    text = text.replace("  /brokers:\n", "  /workers:\n", 1).replace(
        "operationId: list_queues\n", "operationId: queues\n", 1
    )
    worse.write_text(text, "utf-8")
    found = breaking(DOCUMENT, worse, tmp_path)
    assert sorted(operation for operation, _ in found) == ["GET /brokers", "GET /queues"]
    found = [change for change in found if change[0] == "GET /brokers"]
    assert undeclared(found, "## [Unreleased]\n- Brokers are workers: `GET /brokers`.\n") != []
    assert undeclared(found, "## [Unreleased]\n- **Breaking**: brokers are workers:\n  `GET /brokers`.\n") == []
    assert undeclared(found, "## [Unreleased]\n- x\n## [0.1]\n- **Breaking**: `GET /brokers`.\n") != []
