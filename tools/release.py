"""``make release-check``: whether what is here can be released. Writes the packages and the SBOM to ``dist/``.

``--released`` also demands that the changelog has a section of this version.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from babelgate import __version__
from tests.harness.local import free_port
from tools.generated_docs import PAGES, ROOT, rendered
from tools.licences import forbidden, pinned
from tools.sbom import sbom

DIST = ROOT / "dist"
LOCKS: Mapping[str, str] = dict(
    re.findall(r"^\t\$\(LOCK\) pyproject\.toml (.*?) (?:-c \S+ )*-o (\S+)$", (ROOT / "Makefile").read_text(), re.M)
)
"""The options of ``make lock`` for each lock file of the project's own requirements."""
START_SECONDS = 240
_SECTION = re.compile(r"^## \[([^]]+)](?: - (\d{4}-\d{2}-\d{2}))?$", re.M)


def versions(changelog: str, version: str, *, released: bool) -> Iterator[str]:
    """What is wrong with the sections of the changelog, for a program of ``version``."""
    sections: list[tuple[str, str]] = _SECTION.findall(changelog)
    names = [name for name, _ in sections]
    if names[:1] != ["Unreleased"]:
        yield "CHANGELOG.md: the first section must be [Unreleased]"
    numbers = [tuple(map(int, name.split("."))) for name, _ in sections if re.fullmatch(r"\d+\.\d+\.\d+", name)]
    if len(numbers) != len([name for name in names if name != "Unreleased"]) or numbers != sorted(
        numbers, reverse=True
    ):
        yield "CHANGELOG.md: versions must be MAJOR.MINOR.PATCH, the newest first"
    yield from (f"CHANGELOG.md: [{name}] has no date" for name, day in sections if name != "Unreleased" and not day)
    own = tuple(map(int, version.split(".")))
    if numbers and numbers[0] > own:
        yield f"CHANGELOG.md: [{names[1]}] is newer than the program, {version}"
    if released and version not in names:
        yield f"CHANGELOG.md: there is no section [{version}]"


def stated_versions() -> Iterator[str]:
    """What states another version than the program."""
    api = yaml.safe_load((ROOT / "openapi" / "openapi.yaml").read_text())["info"]["version"]
    python = tomllib.loads((ROOT / "clients" / "python" / "pyproject.toml").read_text())["project"]["version"]
    typescript = json.loads((ROOT / "clients" / "typescript" / "package.json").read_text())["version"]
    for place, stated in (("openapi", api), ("clients/python", python), ("clients/typescript", typescript)):
        if stated != __version__:
            yield f"{place}: it states version {stated}, and the program is {__version__}"


def stale(lock: str, roots: Iterable[str], requires: Callable[[str], Iterable[str]]) -> Iterator[str]:
    """What a fresh lock file would have otherwise than the text ``lock``. ``roots``: the requirements that it is made
    from; ``requires``: returns those of a distribution."""
    pins = dict(re.findall(r"^([a-z0-9._-]+)==([^\s;]+)", lock, re.M))
    elsewhere = pins.keys() - pinned(lock).keys()
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [(each, frozenset[str]()) for each in roots]
    while waiting:
        text, extras = waiting.pop()
        wanted = Requirement(text)
        if wanted.marker is not None and not any(wanted.marker.evaluate({"extra": each}) for each in extras or {""}):
            continue
        name = canonicalize_name(wanted.name)
        if name not in pins:
            yield f"{name} is missing"
        elif (name, frozenset(wanted.extras)) not in seen:
            seen.add((name, frozenset(wanted.extras)))
            waiting += [(each, frozenset(wanted.extras)) for each in requires(name)]
        if name in pins and not wanted.specifier.contains(pins[name], prereleases=True):
            yield f"{name} {pins[name]} does not meet {wanted}"
    needed = {name for name, _ in seen}
    yield from (f"{name} is not needed" for name in pins if name not in needed | elsewhere)


def stale_locks() -> Iterator[str]:
    """What is stale in any lock file."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras: Mapping[str, list[str]] = project["optional-dependencies"]
    for options, file in LOCKS.items():
        named = re.findall(r"--extra (\w+)", options)
        roots = [*project["dependencies"], *(each for extra in named for each in extras[extra])]
        own = [each for each in roots if Requirement(each).name == "babelgate"]
        roots = [each for each in roots if each not in own]
        roots += [each for root in own for extra in Requirement(root).extras for each in extras[extra]]
        found = stale((ROOT / file).read_text(), roots, lambda name: metadata.requires(name) or ())
        yield from (f"{file}: {each}; run `make lock`" for each in found)


def stale_pages() -> Iterator[str]:
    """The generated files that are not current."""
    made = subprocess.run([sys.executable, "-m", "babelgate.http.openapi"], cwd=ROOT, check=True, capture_output=True)
    if (ROOT / "openapi" / "openapi.yaml").read_bytes() != made.stdout:
        yield "openapi/openapi.yaml is not current: run `make openapi`"
    for page in PAGES:
        if (ROOT / page).read_text("utf-8") != rendered(page):
            yield f"{page} is not current: run `make docs`"


def build() -> tuple[Path, Path]:
    """Build the wheel and the sdist in ``dist/``; return their paths."""
    code = "import sys; from pdm.backend import *; print(build_wheel(sys.argv[1])); print(build_sdist(sys.argv[1]))"
    command = [sys.executable, "-c", code, str(DIST)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    wheel, sdist = done.stdout.split()
    return DIST / wheel, DIST / sdist


def installed(packages: Iterable[Path]) -> None:
    """Install each of ``packages`` in a new environment with the locked dependencies, and run what was installed."""
    with tempfile.TemporaryDirectory(prefix="babelgate-release-") as folder:
        home = Path(folder)
        venv.create(home / "venv", with_pip=True)
        python = home / "venv" / "bin" / "python"
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
        locks = (f"--requirement={ROOT / name}" for name in ("requirements.txt", "requirements-build.txt"))
        subprocess.run([*pip, "--require-hashes", *locks], check=True)
        for package in packages:
            options = ["--no-deps", "--no-build-isolation", "--force-reinstall"]
            subprocess.run([*pip, *options, str(package)], check=True)
            _run(home / "venv" / "bin" / "babelgate", home / package.name)


def _run(program: Path, state: Path) -> None:
    """Serve, publish and receive with the installed ``program``. Raises AssertionError, CalledProcessError."""
    state.mkdir()
    # Nothing of the checkout may be found.
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("BABELGATE_", "PYTHON"))}
    url = f"http://127.0.0.1:{free_port()}"
    environ |= {"BABELGATE_STATE_DIR": str(state), "BABELGATE_URL": url}

    def run(*arguments: str, **more: Any) -> str:
        command = [str(program), *arguments]
        done = subprocess.run(command, cwd=state, env=environ, check=True, capture_output=True, text=True, **more)
        return done.stdout

    assert run("--version").split() == ["babelgate,", "version", __version__]
    serve = [str(program), "serve", "--quiet", "--port", url.rpartition(":")[2]]
    log = state / "log"
    with log.open("wb") as file, subprocess.Popen(serve, cwd=state, env=environ, stdout=file, stderr=file) as process:
        try:
            deadline = time.monotonic() + START_SECONDS
            while b"Application startup complete" not in log.read_bytes():
                assert process.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)
            run("publish", "q", input='{"job": "urn:babel:release:check", "data": {"n": 1}}')
            assert "urn:babel:release:check" in run("receive", "q", "--ack", "--wait", "10")
        finally:
            process.terminate()
        assert process.wait(START_SECONDS) == 0, log.read_text()


def main(released: bool) -> int:
    """Check everything, and print what was found; return the exit status."""
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    checks: Mapping[str, Callable[[], Iterable[str]]] = {
        "versions": lambda: [*versions(changelog, __version__, released=released), *stated_versions()],
        "lock files": stale_locks,
        "licences": lambda: forbidden(name for file in LOCKS.values() for name in pinned((ROOT / file).read_text())),
        "generated pages": stale_pages,
    }
    bad = 0
    for name, check in checks.items():
        found = list(check())
        bad += len(found)
        print(f"{name}: {'ok' if not found else ''}", *found, sep="\n  " if found else "", flush=True)
    if bad:
        return 1
    DIST.mkdir(exist_ok=True)
    document = DIST / f"babelgate-{__version__}.cdx.json"
    document.write_text(json.dumps(sbom((ROOT / "requirements.txt").read_text()), indent=2) + "\n")
    packages = build()
    for made in (document, *packages):
        print(f"{made.relative_to(ROOT)}: {made.stat().st_size:,} bytes", flush=True)
    installed(packages)
    print(f"installed and run: {', '.join(package.name for package in packages)}")
    return 0


if __name__ == "__main__":
    sys.exit(main("--released" in sys.argv[1:]))
