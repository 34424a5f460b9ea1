"""Projects of a user, each with the client of one language, which it has installed from the client's folder alone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.clients.languages import MAVEN_OPTIONS, Language
from tools.openapi_generator import JAVA_OPTIONS

MAVEN = Path.home() / ".m2" / "repository"
POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>com.example</groupId><artifactId>project</artifactId><version>1</version>
  <properties>
    <maven.compiler.release>17</maven.compiler.release>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <dependencies>{dependency}</dependencies>
  <build><plugins>
    <plugin><artifactId>maven-resources-plugin</artifactId><version>3.3.1</version></plugin>
    <plugin><artifactId>maven-compiler-plugin</artifactId><version>3.13.0</version></plugin>
    <plugin><artifactId>maven-dependency-plugin</artifactId><version>3.8.1</version></plugin>
  </plugins></build>
</project>
"""
CSPROJ = """\
<Project Sdk="Microsoft.NET.Sdk">
  <PropertyGroup>
    <OutputType>Exe</OutputType>
    <TargetFramework>netcoreapp3.1</TargetFramework>
    <LangVersion>8.0</LangVersion>
    <InvariantGlobalization>true</InvariantGlobalization>
    <UseSharedCompilation>false</UseSharedCompilation>
    <StartupObject>Start</StartupObject>
  </PropertyGroup>
</Project>
"""
START = """\
using System;
using System.Linq;
using System.Reflection;
using System.Threading.Tasks;

class Start
{
    static async Task<int> Main(string[] arguments)
    {
        var main = Type.GetType(arguments[0], true)
            .GetMethod("Main", BindingFlags.Static | BindingFlags.Public | BindingFlags.NonPublic);
        var given = main.GetParameters().Length == 0 ? null : new object[] { arguments.Skip(1).ToArray() };
        var result = main.Invoke(null, BindingFlags.DoNotWrapExceptions, null, given, null);
        if (result is Task task) { await task; }
        return result is Task<int> awaited ? awaited.Result : result is int status ? status : 0;
    }
}
"""
"""An assembly has one entry point. This one runs the class that is named, so that one build serves all programs."""


def blocks(readme: str, kind: str) -> list[str]:
    """The blocks of code of this kind, as they stand."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)


class Project:
    """A project of a user in ``folder``, beside a checkout that has only the folder of one client.

    ``environment``: the variables of what runs in it.
    """

    def __init__(self, language: Language, folder: Path) -> None:
        self.language = language
        self.folder = folder / "project"
        self.readme = (language.folder / "README.md").read_text("utf-8")
        self.checkout = folder / "babelgate" / "clients" / language.name
        self.environment = {name: text for name, text in os.environ.items() if not name.startswith("BABELGATE_")}
        self.folder.mkdir(parents=True)
        tracked = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.run(tracked, cwd=language.folder, capture_output=True, text=True).stdout.splitlines():
            (self.checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(language.folder / name, self.checkout / name)

    def path_begins_with(self, folder: Path) -> None:
        self.environment["PATH"] = f"{folder}{os.pathsep}{self.environment['PATH']}"

    def set(self, **variables: str) -> None:
        self.environment |= variables

    def do(self, *command: str | Path) -> str:
        """Run a command to its end; return what it printed."""
        done = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, (command, (done.stdout + done.stderr)[-4000:])
        return done.stdout

    def install(self) -> None:
        """Do what the README says."""
        (commands,) = blocks(self.readme, "sh")
        self.do("sh", "-euc", commands)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        return path

    def start(self, command: Sequence[str | Path], output: Path) -> subprocess.Popen[bytes]:
        """Ctrl-C ends the program, whatever the process that runs the tests makes of it."""
        interruptible = ["env", "--default-signal=INT", *command]
        with output.open("wb") as out:
            return subprocess.Popen(
                interruptible, cwd=self.folder, env=self.environment, stdout=out, stderr=subprocess.STDOUT
            )


def python(project: Project, programs: list[str]) -> list[Sequence[str | Path]]:
    project.do(sys.executable, "-m", "venv", "environment")
    binaries = project.folder / "environment" / "bin"
    project.path_begins_with(binaries)
    project.set(PIP_DISABLE_PIP_VERSION_CHECK="1")
    project.install()
    return [[binaries / "python", project.write(f"program{n}.py", text)] for n, text in enumerate(programs)]


def typescript(project: Project, programs: list[str]) -> list[Sequence[str | Path]]:
    project.write("package.json", '{"type": "module", "private": true}')
    project.install()
    tools = project.language.folder / "node_modules"
    options: list[str | Path] = [
        "--module",
        "nodenext",
        "--target",
        "es2022",
        "--strict",
        "--typeRoots",
        tools / "@types",
        "--types",
        "node",
    ]
    files = [project.write(f"program{n}.ts", text) for n, text in enumerate(programs)]
    project.do(tools / ".bin" / "tsc", *options, *files)
    return [["node", file.with_suffix(".js")] for file in files]


def php(project: Project, programs: list[str]) -> list[Sequence[str | Path]]:
    # Packagist is not asked: the libraries are Debian's.
    project.write(
        "composer.json",
        """{"repositories": {"packagist.org": false},
            "provide": {"guzzlehttp/guzzle": "7.4.5", "guzzlehttp/psr7": "2.4.5"},
            "autoload": {"files": ["libraries.php"]}}""",
    )
    project.write("libraries.php", "<?php require '/usr/share/php/GuzzleHttp/autoload.php';")
    project.set(
        COMPOSER_ALLOW_SUPERUSER="1", COMPOSER_HOME=str(project.folder / "composer"), COMPOSER_NO_INTERACTION="1"
    )
    project.install()
    return [["php", project.write(f"program{n}.php", text)] for n, text in enumerate(programs)]


def java(project: Project, programs: list[str]) -> list[Sequence[str | Path]]:
    # What Maven has fetched is at hand, and what it installs goes away with the test.
    repository = project.folder.parent / "repository"
    copies = 'cp -al "$0" "$1" 2>/dev/null || { rm -rf "$1"; cp -a "$0" "$1"; }'
    subprocess.run(["sh", "-c", copies, MAVEN, repository], check=True)
    project.set(MAVEN_OPTS=f"{MAVEN_OPTIONS} -Dmaven.repo.local={repository}")
    (dependency,) = blocks(project.readme, "xml")
    project.write("pom.xml", POM.format(dependency=dependency))
    project.install()
    names = []
    for text in programs:
        (name,) = re.findall(r"^class (\w+)", text, re.MULTILINE)
        project.write(f"src/main/java/{name}.java", text)
        names.append(name)
    project.do("mvn", "--quiet", "--batch-mode", "--offline", "compile", "dependency:copy-dependencies")
    return [["java", *JAVA_OPTIONS, "-cp", "target/classes:target/dependency/*", name] for name in names]


def go(project: Project, programs: list[str]) -> list[Sequence[str | Path]]:
    project.set(GOTOOLCHAIN="local")
    project.do("go", "mod", "init", "example.com/project")
    for n, text in enumerate(programs):
        project.write(f"program{n}/main.go", text)
    project.install()
    project.do("go", "vet", "./...")
    project.do("go", "build", "-o", "bin/", "./...")
    return [[project.folder / "bin" / f"program{n}"] for n in range(len(programs))]


def csharp(project: Project, programs: list[str]) -> list[Sequence[str | Path]]:
    tools = project.folder.parent / "tools"
    tools.mkdir()
    dotnet = tools / "dotnet"
    dotnet.write_text(f'#!/bin/sh\nexec {project.language.folder / "dotnet"} "$@"\n')
    dotnet.chmod(0o755)
    project.path_begins_with(tools)
    project.write("project.csproj", CSPROJ)
    project.write("Start.cs", START)
    project.install()
    names = []
    for text in programs:
        (name,) = re.findall(r"^class (\w+)", text, re.MULTILINE)
        project.write(f"{name}.cs", text)
        names.append(name)
    project.do(dotnet, "build", "-nologo", "-o", "made")
    return [[dotnet, project.folder / "made" / "project.dll", name] for name in names]


Programs = list[Sequence[str | Path]]
MAKERS: Mapping[str, Callable[[Project, list[str]], Programs]] = {
    "python": python,
    "typescript": typescript,
    "php": php,
    "java": java,
    "go": go,
    "csharp": csharp,
}
"""Of each language, what installs its client in a project, makes programs of these texts there, and returns the command
of each."""
