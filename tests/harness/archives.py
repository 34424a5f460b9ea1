"""Brokers that Maven fetches into ``.brokers``, once: ``python3 -m tests.harness.archives kafka pulsar``.

It needs Python's standard library alone, so that it can run while packages are being installed. A broker that cannot be
fetched is a line on standard error: its tests find it missing.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

_TESTS = Path(__file__).resolve().parents[1]
BROKERS = _TESTS.parent / ".brokers"
"""Programs of brokers, a folder for each: the tests only read them."""
ARTEMIS, ELASTICMQ, KAFKA, PULSAR = (BROKERS / name for name in ("artemis", "elasticmq", "kafka", "pulsar"))

KEYCLOAK = BROKERS / "keycloak"
"""An issuer of tokens."""

_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
_PULSAR = "org.apache.pulsar:pulsar-server-distribution:4.0.8:tar.gz:bin"
_KEYCLOAK = "org.keycloak:keycloak-quarkus-dist:26.3.5:zip"
_ARTEMIS_MAIN = _TESTS / "brokers" / "artemis" / "ArtemisMain.java"
_JAVAC = ("java", "--module", "jdk.compiler/com.sun.tools.javac.Main")
"""The compiler is in what Debian calls a runtime environment; the program of that name is not."""


def fetch_jars(pom: Path, home: Path) -> None:
    """Let Maven copy the jars that ``pom`` names, and theirs, to ``home``; nothing where that was done before."""
    kept = home / "pom.xml"
    if not kept.exists() or kept.read_bytes() != pom.read_bytes():
        shutil.rmtree(home, ignore_errors=True)
        _maven("copy-dependencies", "--file", str(pom), "-DincludeScope=runtime", f"-DoutputDirectory={home}")
        shutil.copyfile(pom, kept)


def fetch(kind: str) -> bool:
    """Whether a kind of broker is here; it is fetched where it is not."""
    try:
        _FETCHES[kind]()
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"{kind} cannot be fetched: {error}", file=sys.stderr)
        return False
    return True


def _maven(goal: str, *arguments: str) -> None:
    subprocess.run(["mvn", "--quiet", "--batch-mode", f"{_PLUGIN}:{goal}", *arguments], check=True)


def _fetch_jars_of(kind: str, home: Path) -> None:
    fetch_jars(_TESTS / "brokers" / kind / "pom.xml", home)


def _fetch_artemis() -> None:
    """Fetch its jars, and compile the program that starts it to a jar: Java archives no classes of a folder."""
    _fetch_jars_of("artemis", ARTEMIS)
    kept, jar = ARTEMIS / _ARTEMIS_MAIN.name, ARTEMIS / "ArtemisMain.jar"
    if not jar.exists() or not kept.exists() or kept.read_bytes() != _ARTEMIS_MAIN.read_bytes():
        jars = ":".join(map(str, ARTEMIS.glob("*.jar")))
        with tempfile.TemporaryDirectory(dir=ARTEMIS) as folder:
            subprocess.run([*_JAVAC, "-cp", jars, "-d", folder, str(_ARTEMIS_MAIN)], check=True)
            with zipfile.ZipFile(jar, "w") as made:
                made.write(Path(folder) / "ArtemisMain.class", "ArtemisMain.class")
        shutil.copyfile(_ARTEMIS_MAIN, kept)


def _fetch_pulsar() -> None:
    """Fetch its distribution, and unpack it."""
    if (PULSAR / "lib").exists():
        return
    BROKERS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BROKERS) as directory:
        _maven("copy", f"-Dartifact={_PULSAR}", f"-DoutputDirectory={directory}")
        (archive,) = Path(directory).iterdir()
        unpacked = Path(directory) / "unpacked"
        unpacked.mkdir()
        # Python's own way to unpack an archive with care came with 3.11.4; Debian 12 has 3.11.2.
        subprocess.run(["tar", "--extract", "--no-same-owner", "--file", archive, "--directory", unpacked], check=True)
        (found,) = unpacked.iterdir()
        shutil.rmtree(PULSAR, ignore_errors=True)
        shutil.move(os.fspath(found), PULSAR)


def keycloak_environment() -> dict[str, str]:
    """The variables of its programs, with options of Java by which a start takes less CPU time."""
    return os.environ | {"JAVA_OPTS_APPEND": "-XX:-UseG1GC -XX:+UseSerialGC -XX:TieredStopAtLevel=1"}


def build_keycloak(home: Path) -> None:
    """Let the distribution in ``home`` compile itself, for ``kc.sh start --optimized``; nothing where that was done.

    Takes 15 s of CPU time. https://www.keycloak.org/server/configuration#_optimize
    Raises CalledProcessError.
    """
    stamp = home / "built"
    if not stamp.exists():
        subprocess.run([home / "bin" / "kc.sh", "build", "--db=dev-file"], env=keycloak_environment(), check=True)
        stamp.touch()


@contextmanager
def _lock() -> Iterator[None]:
    """Hold the lock of all processes on the folder of brokers; blocks until it is free."""
    BROKERS.mkdir(exist_ok=True)
    descriptor = os.open(BROKERS, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def copy_keycloak(home: Path) -> bool:
    """Copy the distribution to ``home``, compiled. False: it was not fetched. Raises CalledProcessError."""
    with _lock():
        if not KEYCLOAK.exists():
            return False
        shutil.copytree(KEYCLOAK, home)
    # It may have been fetched by an older checkout.
    build_keycloak(home)
    return True


def _fetch_keycloak() -> None:
    """Fetch its distribution, unpack it, and let it compile itself. One of before is replaced by a copy, compiled."""
    with _lock(), tempfile.TemporaryDirectory(dir=BROKERS) as directory:
        if (KEYCLOAK / "built").exists():
            return
        made = Path(directory) / "made"
        if KEYCLOAK.exists():
            shutil.copytree(KEYCLOAK, made)
            build_keycloak(made)
            KEYCLOAK.rename(Path(directory) / "before")
        else:
            _unpack_keycloak(Path(directory), made)
            build_keycloak(made)
        made.rename(KEYCLOAK)


def _unpack_keycloak(directory: Path, home: Path) -> None:
    """Fetch the distribution to ``directory``, and unpack it to ``home``."""
    _maven("copy", f"-Dartifact={_KEYCLOAK}", f"-DoutputDirectory={directory}")
    (archive,) = directory.iterdir()
    unpacked = directory / "unpacked"
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(unpacked)
    (found,) = unpacked.iterdir()
    # ZipFile leaves modes out.
    (found / "bin" / "kc.sh").chmod(0o755)
    found.rename(home)


_FETCHES: Mapping[str, Callable[[], None]] = {
    "artemis": _fetch_artemis,
    "keycloak": _fetch_keycloak,
    "kafka": partial(_fetch_jars_of, "kafka", KAFKA),
    "pulsar": _fetch_pulsar,
    "sqs": partial(_fetch_jars_of, "sqs", ELASTICMQ),
}
"""By kind of broker. One after the other: they share Maven's repository."""


if __name__ == "__main__":
    for each in sys.argv[1:] or _FETCHES:
        fetch(each)
