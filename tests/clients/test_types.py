"""The commands of ``docs/schemas.md`` make types of a schema in six languages, which compile, read and write data."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from babelgate.config import settings
from babelgate.gateway.authorization import ANYONE
from babelgate.http import asyncapi
from babelgate.schemas.job_schemas import load
from babelgate.server.wiring import build_gateway
from tests.clients.languages import LANGUAGES, PYTHON, ROOT
from tests.harness.ci import missing
from tools import quicktype
from tools.openapi_generator import JAVA_OPTIONS

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs" / "schemas.md").read_text("utf-8")
MONEY = {
    "$id": "urn:babel:shop:money",
    "title": "Money",
    "type": "object",
    "required": ["amount", "currency"],
    "properties": {"amount": {"type": "integer"}, "currency": {"enum": ["EUR", "USD"]}, "note": {"type": "string"}},
}
DATA = {"order_id": "A-4711", "total": {"amount": 1999, "currency": "EUR", "note": "é"}}
"""All members: the types of PHP and Java write the others as null, which the page says."""
MARKS = {"python": "Python", "typescript": "TypeScript", "php": "PHP", "csharp": "C#", "java": "Java", "go": "Go"}
NEWTONSOFT = ROOT / ".brokers/dotnet/node_modules/nswag/bin/binaries/NetCore31/Newtonsoft.Json.dll"
PROJECT = f"""<Project Sdk="Microsoft.NET.Sdk">
  <PropertyGroup>
    <OutputType>Exe</OutputType>
    <TargetFramework>netcoreapp3.1</TargetFramework>
    <CheckEolTargetFramework>false</CheckEolTargetFramework>
    <UseSharedCompilation>false</UseSharedCompilation>
  </PropertyGroup>
  <ItemGroup><Reference Include="Newtonsoft.Json"><HintPath>{NEWTONSOFT}</HintPath></Reference></ItemGroup>
</Project>
"""


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """``/asyncapi.json`` of a gateway with the example of the page."""
    folder = tmp_path_factory.mktemp("schemas")
    (example,) = re.findall(r'```json\n(\{\n  "\$schema".*?)```', PAGE, re.DOTALL)
    for name, text in (("order", example), ("money", json.dumps(MONEY))):
        (folder / f"{name}.json").write_text(text, "utf-8")
    config = folder / "babelgate.yaml"
    config.write_text(json.dumps({"state_dir": str(folder), "schemas": {"directory": str(folder)}}))
    built = build_gateway(settings.load(config, {}))
    built.schema_checks.schemas = load(folder)
    made = asyncapi.document(built, ANYONE, asyncapi.PublicAddress("localhost:8080", "http", ""))
    return json.dumps(made).encode()


def ran(folder: Path, *command: object, data: str = "", **environ: str) -> str:
    """What a command prints. Raises AssertionError unless it ends well."""
    done = subprocess.run(
        list(map(str, command)), cwd=folder, input=data, capture_output=True, text=True, env=os.environ | environ
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def python(folder: Path) -> str:
    code = "import json, sys, order_placed as o\n"
    code += "print(json.dumps(o.OrderPlaced.from_dict(json.load(sys.stdin)).to_dict()))"
    return ran(folder, PYTHON, "-W", "error", "-c", code, data=json.dumps(DATA))


def typescript(folder: Path) -> str:
    code = 'import type { OrderPlaced } from "./order-placed";\n'
    (folder / "use.ts").write_text(f"{code}const order: OrderPlaced = {json.dumps(DATA)};\nconsole.log(order);\n")
    tsc = ROOT / "clients/typescript/node_modules/.bin/tsc"
    check = tsc, "--noEmit", "--strict", "--lib", "es2022,dom"
    ran(folder, *check, "use.ts")
    (folder / "wrong.ts").write_text(f'{code}export const order: OrderPlaced = {{order_id: 1, total: "x"}};\n')
    wrong = subprocess.run([*check, "wrong.ts"], cwd=folder, capture_output=True, text=True)
    assert wrong.returncode != 0 and wrong.stdout.count("TS2322") == 2, wrong.stdout
    return json.dumps(DATA)


def go(folder: Path) -> str:
    (folder / "go.mod").write_text("module example.com/orders\n\ngo 1.19\n")
    (folder / "use").mkdir()
    (folder / "use" / "main.go").write_text(
        'package main\n\nimport (\n\t"io"\n\t"os"\n\n\t"example.com/orders"\n)\n\nfunc main() {\n'
        "\tdata, _ := io.ReadAll(os.Stdin)\n\torder, err := orders.UnmarshalOrderPlaced(data)\n"
        "\tif err != nil {\n\t\tpanic(err)\n\t}\n\tmade, _ := order.Marshal()\n\tos.Stdout.Write(made)\n}\n"
    )
    ran(folder, "go", "vet", "./...", GOFLAGS="-mod=mod", GOPROXY="off", GOTOOLCHAIN="local")
    return ran(folder, "go", "run", "./use", data=json.dumps(DATA), GOPROXY="off", GOTOOLCHAIN="local")


def java(folder: Path) -> str:
    (folder / "Use.java").write_text(
        "import com.example.orders.*;\npublic class Use {\n"
        "  public static void main(String[] words) throws Exception {\n"
        "    OrderPlaced order = Converter.fromJsonString(new String(System.in.readAllBytes()));\n"
        "    System.out.print(Converter.toJsonString(order));\n  }\n}\n"
    )
    libraries = ROOT / "clients/java/target/libraries/*"
    options = [f"-J{each}" for each in JAVA_OPTIONS]
    sources = sorted(each.name for each in folder.glob("*.java"))
    ran(folder, "javac", *options, "--release", "17", "-cp", libraries, "-d", "classes", *sources)
    return ran(folder, "java", *JAVA_OPTIONS, "-cp", f"classes:{libraries}", "Use", data=json.dumps(DATA))


def csharp(folder: Path) -> str:
    (folder / "Use.cs").write_text(
        "using System;\nusing Example.Orders;\npublic static class Use {\n  public static void Main() {\n"
        "    Console.Write(Serialize.ToJson(OrderPlaced.FromJson(Console.In.ReadToEnd())));\n  }\n}\n"
    )
    (folder / "Types.csproj").write_text(PROJECT)
    dotnet = ROOT / "clients/csharp/dotnet"
    ran(folder, dotnet, "build", "-nologo", "-warnaserror", "-c", "Release", "-o", "out")
    return ran(folder, dotnet, "out/Types.dll", data=json.dumps(DATA))


def php(folder: Path) -> str:
    code = (
        'require "OrderPlaced.php"; echo json_encode(OrderPlaced::from(json_decode(stream_get_contents(STDIN)))->to());'
    )
    return ran(folder, "php", "-d", "display_errors=stderr", "-r", code, data=json.dumps(DATA))


USES: dict[str, Callable[[Path], str]] = {
    "python": python,
    "typescript": typescript,
    "php": php,
    "csharp": csharp,
    "java": java,
    "go": go,
}


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.name)
def test_the_command_of_the_page_makes_types_that_read_and_write_data(language, document, tmp_path):
    if not quicktype.is_here():
        missing("quicktype", "`make clients-deps` installs it")
    (where,) = re.findall(r"^S='asyncapi.json.*$", PAGE, re.M)
    (command,) = re.findall(rf"^npx quicktype@26 (.*?)# {re.escape(MARKS[language.name])}(?:: .*)?$", PAGE, re.M)
    (tmp_path / "asyncapi.json").write_bytes(document)
    ran(tmp_path, "sh", "-ec", f"{where}\n{quicktype.PROGRAM} {command}")
    assert json.loads(USES[language.name](tmp_path)) == DATA


def test_the_version_of_the_page_is_the_one_that_is_tested() -> None:
    locked = json.loads((ROOT / "clients/types/package.json").read_text())["dependencies"]["quicktype"]
    assert set(re.findall(r"npx quicktype@(\d+)", PAGE)) == {locked.partition(".")[0]}
