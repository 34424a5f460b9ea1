"""openapi-generator, pinned, and the jars that its Java clients are compiled with.

``python -m tools.openapi_generator`` lets Maven fetch them once; the tests only read them.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

VERSION = "7.18.0"
_JAR = f"openapi-generator-cli-{VERSION}.jar"
_SHA256 = "35fdd19079f5fb37cf8074f48db825bdedc02c1b8264261bf283d9394d98a285"
_HOME = Path(__file__).resolve().parents[1] / ".brokers" / "openapi-generator"
_POM = Path(__file__).with_name("openapi_generator.pom.xml")
_OF_ITSELF = (
    "OpenAPI 3.1 support is still in beta",
    # It makes examples of answers in application/json only; a problem is application/problem+json.
    "No application/json content media type found in response",
    # Names nothing. It comes with schemas that have both open objects and maps, and every model is complete.
    "Failed to get the schema name: null",
    # The parameter `error` of lists of dead letters: where a language has the word, the client has another one.
    "error (reserved word) cannot be used as",
    "Error (model name matches existing language type) cannot be used as",
)
"""Warnings that say something about the generator, not about the document."""
JAVA_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""For programs that run some seconds: they take half of the CPU time when Java optimizes little. clients/*/generate has
them, too."""
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def fetch() -> None:
    """Copy the jars out of Maven's cache, unless they are here. Raises RuntimeError for another generator.

    Without Maven nothing is fetched: the tests find the jars missing.
    """
    if is_here() or shutil.which("mvn") is None:
        return
    command = ["mvn", "--quiet", "--batch-mode", "--file", str(_POM), _COPY, f"-DoutputDirectory={_HOME}"]
    subprocess.run(command, check=True)
    if not is_here():
        raise RuntimeError(f"{_JAR} has another SHA-256 than {_SHA256}")


def is_here() -> bool:
    """Whether the jars were fetched."""
    jar = _HOME / _JAR
    return jar.is_file() and hashlib.sha256(jar.read_bytes()).hexdigest() == _SHA256


def classpath() -> str:
    """What a generated Java client is compiled with."""
    return ":".join(str(jar) for jar in sorted(_HOME.glob("*.jar")) if jar.name != _JAR)


def generate(language: str, document: str, directory: Path, *options: str) -> Path:
    """Write a client in ``language`` for the ``document`` (a path or a URL) to ``directory``.

    Raises AssertionError, also for a warning.
    """
    said = _run("generate", "-g", language, "-i", document, "-o", str(directory), *options)
    # The generator logs some of its own faults and still ends with 0.
    faults = [line for line in said.splitlines() if "] ERROR " in line or "] WARN " in line]
    assert [line for line in faults if not any(text in line for text in _OF_ITSELF)] == []
    return directory


def validate(document: Path) -> str:
    """What the generator says of ``document``, with its recommendations. Raises AssertionError for an invalid one."""
    return _run("validate", "--recommend", "-i", str(document))


def _run(*arguments: str) -> str:
    command = ["java", *JAVA_OPTIONS, "-jar", str(_HOME / _JAR), *arguments]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout + run.stderr


if __name__ == "__main__":
    fetch()
