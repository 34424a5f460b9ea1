"""Every client installs as its README says, from a copy of its folder alone. It runs all programs of its README, and
the one that the console offers for a message.
"""

from __future__ import annotations

import html
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.clients.languages import MAVEN_OPTIONS, ROOT, Language
from tests.clients.programs import PATIENCE_SECONDS, each_language, until
from tests.harness.gateway import GatewayProcess
from tools.openapi_generator import JAVA_OPTIONS

LOCAL = "http://127.0.0.1:8080"
QUEUE = "emails"
LABELS = {"python": "Python", "typescript": "TypeScript", "php": "PHP", "java": "Java", "go": "Go", "csharp": "C#"}
"""What the console calls the languages."""
HOSTILE = "a\"b'c\\d\n\r\t\x01\x7f\u2028é😀 $x ${x} #{y} {z} %s `w` \\u0041 </pre>&amp;"
TRACE_ID = "0f6d1d9e-2f0a-4b9e-8a39-0a4f9a3a7d10"
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
    <StartupObject>$(Program)</StartupObject>
  </PropertyGroup>
</Project>
"""


def blocks(readme: str, kind: str) -> list[str]:
    """The blocks of code of this kind, as they stand."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)


class Project:
    """A project of a user in ``folder``, beside a checkout that has only the folder of one client."""

    def __init__(self, language: Language, folder: Path) -> None:
        self.language = language
        self.folder = folder / "project"
        self.readme = (language.folder / "README.md").read_text("utf-8")
        self.checkout = folder / "babelgate" / "clients" / language.name
        self._environment = {name: text for name, text in os.environ.items() if not name.startswith("BABELGATE_")}
        self.folder.mkdir(parents=True)
        tracked = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.run(tracked, cwd=language.folder, capture_output=True, text=True).stdout.splitlines():
            (self.checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(language.folder / name, self.checkout / name)

    def path_begins_with(self, folder: Path) -> None:
        self._environment["PATH"] = f"{folder}{os.pathsep}{self._environment['PATH']}"

    def set(self, **variables: str) -> None:
        self._environment |= variables

    def do(self, *command: str | Path) -> str:
        """Run a command to its end; return what it printed."""
        done = subprocess.run(command, cwd=self.folder, env=self._environment, capture_output=True, text=True)
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
                interruptible, cwd=self.folder, env=self._environment, stdout=out, stderr=subprocess.STDOUT
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
    project.install()
    commands: list[Sequence[str | Path]] = []
    for text in programs:
        (name,) = re.findall(r"^class (\w+)", text, re.MULTILINE)
        project.write(f"{name}.cs", text)
        commands.append([dotnet, project.folder / "made" / name / "project.dll"])
    for command in commands:
        built = Path(command[1]).parent
        project.do(dotnet, "build", "-nologo", "--no-incremental", f"-p:Program={built.name}", "-o", built)
    return commands


def published(gateway: GatewayProcess, queue: str) -> dict[str, Any]:
    """A message that is hard to spell in a program."""
    data: dict[str, Any] = {HOSTILE: [HOSTILE, {}, [], None, True, 12345678901, 0.5, ""]}
    draft = {"job": f"urn:shop:{HOSTILE}", "trace_id": TRACE_ID, "data": data}
    with gateway.client() as http:
        http.post(f"queues/{queue}/messages", json=draft).raise_for_status()
    return draft


def offered(gateway: GatewayProcess, queue: str, language: Language) -> str:
    """The program in ``language`` on the console's page of the message that is ready on ``queue``."""
    with gateway.client() as http:
        page = http.get(f"console/queues/{queue}").raise_for_status().text
        (key,) = set(re.findall(rf"queues/{queue}/messages/([0-9a-f]{{32}})", page))
        page = http.get(f"console/queues/{queue}/messages/{key}").raise_for_status().text
    codes = re.findall(r'<pre class="code block" id="code-\d+"[^>]* aria-label="([^"]+)">(.*?)</pre>', page, re.DOTALL)
    # A browser reads all line ends alike.
    return html.unescape(dict(codes)[html.escape(LABELS[language.name])]).replace("\r\n", "\n").replace("\r", "\n")


def is_done(process: subprocess.Popen[bytes], left: Callable[[], int]) -> bool:
    """Whether the consumer has handled all messages, or has ended."""
    return left() == 0 or process.poll() is not None


@each_language
def test_a_client_installs_from_its_folder_and_runs_its_readme_and_the_program_of_the_console(
    language: Language, gateway: GatewayProcess, queue: str, tmp_path: Path
) -> None:
    project = Project(language, tmp_path)
    texts = blocks(project.readme, language.name)
    assert len(texts) >= 3 and all(LOCAL in text for text in texts)
    sent = published(gateway, queue)
    program = offered(gateway, queue, language)
    # Only the address is another one.
    *commands, again = globals()[language.name](
        project, [*(text.replace(LOCAL, gateway.url) for text in texts), program]
    )
    output = tmp_path / "output"
    with gateway.client() as http:

        def left() -> int:
            stats: dict[str, int] = http.get(f"queues/{QUEUE}").json()["stats"]
            return stats["depth"] + stats["in_flight"] + stats["delayed"]

        for text, command in zip(texts, commands, strict=True):
            process = project.start(command, output)
            try:
                if "onsume" in text:
                    # It handles what the program before it has published.
                    assert left() > 0
                    until(partial(is_done, process, left), output.read_text)
                    process.send_signal(signal.SIGINT)
                # A JVM that a signal has ended says so.
                expected = (0, 130) if language.name == "java" else (0,)
                assert process.wait(PATIENCE_SECONDS) in expected, (text, output.read_text())
            finally:
                process.kill()
                process.wait()
            assert output.read_text().strip(), text
        assert left() == 0
        done = project.do(*again)
        read = http.post(f"queues/{queue}/messages:receive", json={"max_messages": 10, "wait_seconds": 1}).json()
        first, second = (message["envelope"] for message in read["messages"])
        for envelope in (first, second):
            assert {name: envelope[name] for name in sent} == sent
        assert first["meta"]["id"] != second["meta"]["id"] == done.strip()
        tokens = [message["ack_token"] for message in read["messages"]]
        acked = http.post(f"queues/{queue}/messages:ack", json={"ack_tokens": tokens}).raise_for_status().json()
        assert acked["settled"] == 2


@pytest.mark.parametrize("page", sorted((ROOT / "clients").glob("*/README.md")), ids=lambda page: page.parent.name)
def test_the_page_of_all_clients_has_the_commands_of_each(page: Path) -> None:
    (commands,) = blocks(page.read_text("utf-8"), "sh")
    every = (ROOT / "docs" / "clients.md").read_text("utf-8")
    assert commands in blocks(every, "sh")
