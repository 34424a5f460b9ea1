"""openapi-generator, pinned, and the jars that its Java clients are compiled with.

``python -m tests.harness.openapi_generator`` lets Maven fetch them once; the tests only read them.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

VERSION = "7.18.0"
_JAR = f"openapi-generator-cli-{VERSION}.jar"
_SHA256 = "35fdd19079f5fb37cf8074f48db825bdedc02c1b8264261bf283d9394d98a285"
_HOME = Path(__file__).resolve().parents[2] / ".brokers" / "openapi-generator"
_POM = Path(__file__).with_name("openapi_generator.pom.xml")
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
    """Write a client in ``language`` for the ``document`` (a URL) to ``directory``. Raises AssertionError."""
    command = ["java", "-jar", str(_HOME / _JAR), "generate", "-g", language, "-i", document, "-o", str(directory)]
    run = subprocess.run([*command, *options], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    # The generator logs some of its own faults and still ends with 0.
    assert "] ERROR " not in run.stdout + run.stderr, run.stdout + run.stderr
    return directory


if __name__ == "__main__":
    fetch()
