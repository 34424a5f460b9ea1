"""What the Makefile installs, and what pages tell people to install."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from babelgate.brokers import registry
from tests.architecture.sources import ROOT

FROM_AN_INDEX = re.compile(
    r"""(pip|pipx|uv|poetry)\ [^`\n]*\b(install|add)\ [^`\n]*(?<![\w./@-])babelgate(-client)?(?![\w/.-])
    | npm\ (install|i|add)\ [^`\n]*(?<![\w./@-])babelgate-client(?![\w/.-])
    | dotnet\ add\ package\ Babelgate
    | helm\ install\ [^`\n]*\ (oci://|https://|babelgate/)""",
    re.VERBOSE,
)
"""No index, registry or chart repository has anything of this project yet: a command names a path."""
PACKAGES = {
    "artemis": {"openjdk-17-jre-headless", "maven"},
    "kafka": {"openjdk-17-jre-headless", "maven"},
    "pulsar": {"openjdk-17-jre-headless", "maven"},
    "rabbitmq": {"rabbitmq-server"},
    "redis": {"redis-server"},
    "servicebus": set(),
    "sqlite": set(),
    "sqs": {"openjdk-17-jre-headless", "maven"},
}
LANGUAGES = {
    "csharp": {"nodejs", "npm"},
    "go": {"golang-go"},
    "java": {"openjdk-17-jdk-headless", "maven"},
    "php": {
        *("composer", "php-cli", "php-curl", "php-guzzlehttp-guzzle", "php-mbstring"),
        *("openjdk-17-jdk-headless", "maven"),
    },
    "python": set(),
    "typescript": {"nodejs", "npm"},
}


def commands(*arguments: str) -> str:
    """What make would do."""
    done = subprocess.run(["make", "-n", "--no-print-directory", *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def installed(text: str) -> set[str]:
    """Debian's packages that these commands install where they are missing, beside those of a new ``.venv``."""
    words = {word for line in re.findall(r"\.ci/packages ([^\n|&]+)", text) for word in line.split()}
    found = {name for word in words for name in word.rpartition("=")[2].split(",")}
    return found - {"python3-venv", "gcc", "libc6-dev", "python3-dev"}


@pytest.mark.parametrize("kind", PACKAGES)
def test_up_local_installs_the_brokers_that_are_asked_for(kind: str) -> None:
    text = commands("up-local", f"ARGS={kind} --port 9000")
    assert installed(text) == PACKAGES[kind] | {"prometheus"}
    fetched = re.findall(r"-m tests\.harness\.archives (\w+)", text)
    assert fetched == ([kind] if kind in ("artemis", "kafka", "pulsar", "sqs") else [])


def test_what_the_tests_need_is_installed_at_once() -> None:
    """While pip installs Python's packages, one run of apt is followed by Maven's."""
    first, jobs, *_ = commands("test-deps").splitlines()
    assert ".ci/packages" in first and "cc=gcc,libc6-dev,python3-dev" in first and installed(first) == set()
    assert " --jobs 2 .classes-of-artemis .classes-of-kafka .classes-of-pulsar .classes-of-sqs .conformance" in jobs
    rest, fetching = commands(".fetched-brokers").splitlines()
    assert installed(rest) == set().union(*PACKAGES.values()) | {
        "openssl",
        "curl",
        "jq",
        "haproxy",
        "nginx",
        "iproute2",
    }
    assert fetching.endswith("-m tests.harness.archives artemis kafka pulsar sqs")


@pytest.mark.parametrize(
    ("given", "lacks"),
    [
        ("a-package", "a-package"),
        ("id=nothing a-program=a-package,another tr=nothing", "a-package another"),
        ("id=nothing tr=nothing", None),
    ],
)
def test_a_package_is_installed_where_its_program_is_missing(given: str, lacks: str | None, tmp_path: Path) -> None:
    """Without apt-get its name is only said."""
    for program in ("id", "tr"):
        (tmp_path / program).symlink_to(shutil.which(program) or "")
    command = ["/bin/sh", ".ci/packages", *given.split()]
    ran = subprocess.run(command, cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert ran.returncode == 0
    assert ran.stderr == (f"Missing here: {lacks}. Install with: sudo apt-get install {lacks}\n" if lacks else "")


def test_without_names_all_brokers_are_installed() -> None:
    assert set(PACKAGES) <= {driver.kind for driver in registry.SCHEMES.values()}
    every = set().union(*PACKAGES.values())
    assert installed(commands("broker-deps", "ARGS=redis")) == every
    assert installed(commands("up-local", "ARGS=")) == every | {"prometheus"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_clients_installs_what_the_named_language_needs(language: str) -> None:
    text = commands("clients", f"ARGS={language}")
    assert installed(text) == LANGUAGES[language]
    assert ("tools.dotnet" in text) == (language == "csharp")
    assert ("tools.openapi_generator" in text) == (language in ("java", "php"))


def test_without_names_all_clients_are_made() -> None:
    assert set(LANGUAGES) == {folder.name for folder in (ROOT / "clients").iterdir() if (folder / "generate").exists()}
    assert installed(commands("clients", "ARGS=")) == set().union(*LANGUAGES.values())


def test_no_page_installs_from_where_nothing_is_published() -> None:
    pages = ["README.md", "CONTRIBUTING.md", *(f"{folder}/**/*" for folder in ("docs", "clients", "helm", ".github"))]
    names = subprocess.run(["git", "ls-files", *pages], cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    texts = {
        name: (ROOT / name).read_text("utf-8") for name in names if name.endswith((".md", ".txt", ".yaml", ".yml"))
    }
    assert len(texts) > 40
    found = [(name, each[0]) for name, text in texts.items() for each in FROM_AN_INDEX.finditer(text)]
    assert found == []


@pytest.mark.parametrize(
    ("command", "is_one"),
    [
        ("pip install 'babelgate[redis]'", True),
        ("pip install babelgate", True),
        ("pip install babelgate-client", True),
        ("npm install babelgate-client", True),
        ("pip install '.[redis]'", False),
        ("pip install ../babelgate/clients/python", False),
        ('pip install "babelqueue[redis]"', False),
        ("npm install ../babelgate/clients/typescript", False),
        ("helm install babelgate ./helm/babelgate", False),
    ],
)
def test_what_installs_from_an_index(command: str, is_one: bool) -> None:
    assert bool(FROM_AN_INDEX.search(command)) == is_one
