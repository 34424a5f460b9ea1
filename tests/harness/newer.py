"""A root of Debian's next release, whose servers and Python are newer than those of this machine. Needs Linux and root.

``python -m tests.harness.newer`` makes it in ``.brokers``, once for these packages and lock files: about 2 minutes on
an idle machine, and 2.3 GB. Programs run in it on the checkout of this machine.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.harness.ci import missing

ROOT = Path(__file__).resolve().parents[2]
RELEASE = "trixie"
PACKAGES = (
    *("rabbitmq-server", "redis-server", "valkey-server", "python3-venv"),
    # What tests call.
    *("ca-certificates", "e2fsprogs", "git", "haproxy", "iproute2", "openssl", "procps"),
    # Servers and official clients in Java and Node.js, which this machine has built.
    *("nodejs", "openjdk-21-jre-headless"),
    # The client of Artemis is built by a C compiler.
    *("gcc", "libc6-dev", "python3-dev"),
)
VALKEY = "/opt/valkey"
"""Here ``redis-server`` is that of Valkey."""
LOCKS = ("requirements.txt", "requirements-build.txt", "requirements-dev.txt")
PROGRAMS = ("mmdebstrap", "unshare", "setpriv", "chroot")
PATH = "/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_HOME = ROOT / ".brokers" / "newer"
_ROOT = _HOME / "root"
_CHECKOUT = "/srv/babelgate"
_VENV = "/opt/venv"
_AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"

_ENTER = """set -eu
root=$1 checkout=$2 inside=$3 tmp=$4 authorities=$5
shift 5
# Java asks on which mount a file is, which for the root of a chroot is none.
mount --bind "$root" "$root"
mkdir -p "$root$inside"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount --bind "$tmp" "$root/tmp"
mount --bind "$checkout" "$root$inside"
# A working tree of git has its repository in another place.
git=$(git -C "$checkout" rev-parse --path-format=absolute --git-common-dir)
mkdir -p "$root$git"
mount --bind "$git" "$root$git"
for file in /etc/hosts /etc/resolv.conf; do
    touch "$root$file"
    mount --bind "$file" "$root$file"
done
# The authorities that this machine trusts: a proxy may have one of its own.
mount --bind "$authorities" "$root/etc/ssl/certs/ca-certificates.crt"
chroot "$root" env --chdir="$inside" "$@"
exit $?
"""


def fetch() -> None:
    """Make the root, unless it is here and current. Without Linux, root or the programs nothing is made: the tests find
    it missing. Raises CalledProcessError."""
    if _lacks() is None:
        _HOME.mkdir(parents=True, exist_ok=True)
        with (_HOME / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with _once(_HOME / "made", RELEASE, *PACKAGES) as wanted:
                if wanted:
                    (_HOME / "installed").unlink(missing_ok=True)
                    _make()
            with _once(_HOME / "installed", *((ROOT / name).read_text("utf-8") for name in LOCKS)) as wanted:
                if wanted:
                    _install()


@contextmanager
def _once(stamp: Path, *depends: str) -> Iterator[bool]:
    """Whether the work is to do: not if it was done before with the same ``depends``."""
    digest = hashlib.sha256("\n".join(depends).encode()).hexdigest()
    wanted = not stamp.exists() or stamp.read_text() != digest
    if wanted:
        stamp.unlink(missing_ok=True)
    yield wanted
    stamp.write_text(digest)


def _make() -> None:
    shutil.rmtree(_ROOT, ignore_errors=True)
    options = ["--quiet", "--mode=root", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
    options.append(f'--customize-hook=mkdir "$1{VALKEY}" && ln -s /usr/bin/valkey-server "$1{VALKEY}/redis-server"')
    # The mirror that this machine itself uses.
    of_debian = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Label: Debian"]
    mirrors = subprocess.run(of_debian, check=True, capture_output=True, text=True).stdout.split()
    subprocess.run([*_apart(), "mmdebstrap", *options, RELEASE, str(_ROOT), *mirrors[:1]], check=True)


def _install() -> None:
    pip = [
        f"{_VENV}/bin/python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-cache-dir",
        "--no-compile",
    ]
    locked = [word for name in LOCKS for word in ("--requirement", name)]
    # Proxies and the index, but no folder, of this machine.
    kept = {name: value for name, value in os.environ.items() if name.lower().startswith(("pip_", "http", "no_proxy"))}
    environ = {name: value for name, value in kept.items() if not value.startswith("/")}
    for command in (
        ["python3", "-m", "venv", "--clear", _VENV],
        [*pip, "--require-hashes", *locked],
        [*pip, "--no-deps", "--no-build-isolation", "--editable", "."],
    ):
        with entered(*command, environ=environ | {"PIP_CERT": _AUTHORITIES}) as line:
            subprocess.run(line, check=True)


def _apart() -> list[str]:
    """The beginning of a command line. When the command ends, by itself or with this process or by a signal, Linux
    unmounts what was mounted there and kills what was started there."""
    return ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount-proc", "--pid", "--fork", "--kill-child"]


@contextmanager
def entered(*command: str, environ: Mapping[str, str]) -> Iterator[list[str]]:
    """The command line that runs ``command`` in the root: in the checkout, with the network and the devices of this
    machine, a temporary directory of its own, and ``environ`` alone."""
    authorities = os.environ.get("PIP_CERT", _AUTHORITIES)
    variables = {"PATH": PATH, "HOME": "/tmp", "LANG": "C.UTF-8", **environ}
    with TemporaryDirectory(prefix="babelgate-newer-", ignore_cleanup_errors=True) as tmp:
        Path(tmp).chmod(0o1777)
        places = [str(_ROOT), str(ROOT), _CHECKOUT, tmp, authorities]
        pairs = [f"{name}={value}" for name, value in variables.items()]
        yield [*_apart(), "sh", "-c", _ENTER, "sh", *places, "--ignore-environment", *pairs, *command]


def run(*command: str, environ: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command in the root to its end; what it prints is in one text."""
    need()
    with entered(*command, environ=environ or {}) as line:
        return subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")


def need() -> None:
    """End the test where there is no root: see :func:`tests.harness.ci.missing`."""
    if (program := _lacks()) is not None:
        missing(program, f"run as root on Linux, with the programs {', '.join(PROGRAMS)}")
    if not (_HOME / "installed").exists():
        missing(f"the root of Debian's {RELEASE}", "run `python -m tests.harness.newer`")


def _lacks() -> str | None:
    """What is missing on this machine."""
    if sys.platform != "linux" or os.geteuid():
        return "root"
    return next((program for program in PROGRAMS if shutil.which(program) is None), None)


if __name__ == "__main__":
    fetch()
