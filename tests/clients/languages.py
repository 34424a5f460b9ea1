"""The clients in ``clients/``: how each is made, and how its conformance program is run.

``python -m tests.clients.languages [LANGUAGE…]`` is ``make clients``: it makes the generated part, builds, packages;
nothing of a client that it has made of the same files before.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.openapi_generator import JAVA_OPTIONS

ROOT = Path(__file__).parents[2]
PYTHON = str(ROOT / ".brokers" / "client-python" / "bin" / "python")
"""An environment of its own, in which the built wheel is installed."""
_UNPACKED = "conformance/node_modules/babelgate-client"
"""Where the package of TypeScript is, as npm would install it: it depends on nothing."""
_JARS = "target/babelgate-client-0.2.0.jar:target/libraries/*"
_OF_JAVAC = " ".join(f"-J{option}" for option in JAVA_OPTIONS)
_JAVAC = f"javac {_OF_JAVAC} -Xlint:all,-processing -Werror --release 17 -cp '{_JARS}'"
MAVEN_OPTIONS = " ".join([*JAVA_OPTIONS, os.environ.get("MAVEN_OPTS", "")])
"""The value of MAVEN_OPTS."""
_MADE_OF = (
    Path(__file__),
    *(ROOT / name for name in ("openapi/openapi.yaml", "tools/dotnet.py", "tools/openapi_generator.py")),
)
"""What each client is made of beside its own files."""


@dataclass(frozen=True)
class Language:
    """One client. Commands run in ``clients/<name>``, after ``./generate``.

    ``programs``: what must be on the PATH. ``build``: commands that compile the client, package it as ``package`` (a
    pattern), and make its conformance program. ``run``: the start of the command of that program.
    """

    name: str
    programs: Sequence[str]
    build: Sequence[Sequence[str]]
    package: str
    run: Sequence[str]

    @property
    def folder(self) -> Path:
        """The folder of the client."""
        return ROOT / "clients" / self.name

    def missing(self) -> list[str]:
        """The programs that are not here."""
        return [program for program in self.programs if shutil.which(program) is None]

    def make(self) -> bool:
        """Generate, build and package, unless the same files were made before; whether it was done.

        Raises CalledProcessError.
        """
        built = self.folder / ".built"
        if self._is_here() and built.is_file() and built.read_text() == self._digest():
            return False
        built.unlink(missing_ok=True)
        environ = os.environ | {"MAVEN_OPTS": MAVEN_OPTIONS}
        for command in (["./generate"], *self.build):
            subprocess.run(command, cwd=self.folder, env=environ, check=True, stdout=subprocess.DEVNULL)
        built.write_text(self._digest())
        return True

    def _is_here(self) -> bool:
        """Whether there are a package and a conformance program."""
        program = self.run[0]
        return bool(self.packages()) and ((self.folder / program).is_file() or shutil.which(program) is not None)

    def _digest(self) -> str:
        """A hash of all that the client is made of, and of its generated part; another one each time without git."""
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=self.folder,
            capture_output=True,
            text=True,
        )
        if listed.returncode:
            return uuid.uuid4().hex
        found = hashlib.sha256()
        for path in [*(self.folder / name for name in sorted(listed.stdout.splitlines())), *_MADE_OF]:
            if path.is_file():
                found.update(f"{path} ".encode() + hashlib.sha256(path.read_bytes()).digest())
        return found.hexdigest()

    def packages(self) -> list[Path]:
        """What users install, once it is built."""
        return sorted(self.folder.glob(self.package))


LANGUAGES = [
    Language(
        "python",
        programs=["python3"],
        build=[
            ["rm", "-rf", "dist"],
            [sys.executable, "-m", "mypy", "--config-file", "mypy.ini"],
            [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--wheel-dir", "dist", "."],
            [sys.executable, "-m", "venv", str(Path(PYTHON).parents[1])],
            ["sh", "-c", f"{PYTHON} -m pip --quiet --disable-pip-version-check install --force-reinstall dist/*.whl"],
        ],
        package="dist/*.whl",
        run=[PYTHON, "conformance/conformance.py"],
    ),
    Language(
        "typescript",
        programs=["node", "npm"],
        build=[
            ["rm", "-rf", "build", "dist", _UNPACKED],
            ["mkdir", "-p", "build", _UNPACKED],
            ["node_modules/.bin/tsc"],
            ["npm", "pack", "--silent", "--pack-destination", "build"],
            ["sh", "-c", f"tar -xzf build/*.tgz --strip-components=1 -C {_UNPACKED}"],
            ["node_modules/.bin/tsc", "--project", "conformance"],
        ],
        package="build/*.tgz",
        run=["node", "conformance/dist/conformance.js"],
    ),
    Language(
        "php",
        programs=["php", "composer", "java"],
        build=[
            ["sh", "-c", "find src generated conformance/*.php -name '*.php' -print0 | xargs -0 -n 1 -P 2 php -l"],
            ["composer", "validate", "--no-interaction", "--strict", "--quiet"],
            ["rm", "-rf", "dist", "conformance/vendor"],
            ["composer", "archive", "--quiet", "--format=tar", "--dir=dist", "--file=babelgate-client"],
            ["mkdir", "-p", "conformance/vendor/babelgate/client"],
            ["tar", "-xf", "dist/babelgate-client.tar", "-C", "conformance/vendor/babelgate/client"],
        ],
        package="dist/*.tar",
        run=["php", "conformance/conformance.php"],
    ),
    Language(
        "csharp",
        programs=["npm"],
        build=[
            # NuGet keeps a version that it once unpacked.
            ["rm", "-rf", "dist", "conformance/obj/packages"],
            # What builds it in a project of a user may be a newer compiler, whose warnings are none of the user's.
            ["./dotnet", "pack", "src", "-nologo", "-warnaserror", "-c", "Release", "-o", "dist"],
            ["./dotnet", "build", "conformance", "-nologo", "-warnaserror", "-c", "Release", "-o", "conformance/bin"],
        ],
        package="dist/*.nupkg",
        run=["./dotnet", "conformance/bin/Conformance.dll"],
    ),
    Language(
        "java",
        programs=["java", "javac", "mvn"],
        build=[
            ["mvn", "--quiet", "--batch-mode", "package"],
            # Warnings are errors in what is written by hand.
            ["sh", "-c", f"{_JAVAC} -d target/checked src/main/java/io/babelgate/client/*.java"],
            ["sh", "-c", f"{_JAVAC} -d target/conformance conformance/Conformance.java"],
        ],
        package="target/*.jar",
        run=[
            "java",
            *JAVA_OPTIONS,
            "-cp",
            f"target/conformance:{_JARS}",
            "Conformance",
        ],
    ),
    Language(
        "go",
        programs=["go"],
        build=[
            ["sh", "-c", 'test -z "$(gofmt -l . | tee /dev/stderr)"'],
            ["go", "vet", "./..."],
            ["go", "build", "-o", "bin/conformance", "./conformance"],
        ],
        # A module is its sources.
        package="go.mod",
        run=["bin/conformance"],
    ),
]


def main(names: Sequence[str]) -> None:
    """Make the clients of these languages; all without names."""
    if unknown := set(names) - {language.name for language in LANGUAGES}:
        known = ", ".join(language.name for language in LANGUAGES)
        sys.exit(f"no such client: {', '.join(sorted(unknown))}; there are {known}")
    for language in LANGUAGES:
        if names and language.name not in names:
            continue
        if missing := language.missing():
            sys.exit(f"clients/{language.name} needs {', '.join(missing)}: `make clients-deps` installs it")
        started = time.monotonic()
        made = language.make()
        print(f"clients/{language.name}: {f'made in {time.monotonic() - started:.0f} s' if made else 'is up to date'}")


if __name__ == "__main__":
    main(sys.argv[1:])
