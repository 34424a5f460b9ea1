"""Runs pods of a manifest as processes: each with an address, a host name table and a file system of its own.

A pod is a network namespace on a bridge, and a mount namespace with the volumes at their paths. Its processes run with
the user, the environment and the arguments of the manifest, without capabilities, and cannot write to the root file
system. In place of the image's program they run this checkout, in this machine's system. Needs Linux and root.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx

from tests.harness.ci import missing
from tools.helm import ROOT, Document, only

_SECONDS = 240
_TMP = "/tmp"
_NEEDED = ("group", "host.conf", "ld.so.cache", "nsswitch.conf", "passwd")
"""Files of /etc that Python and the look-up of names use."""


def image_environment() -> dict[str, str]:
    """The variables that the image sets, but for the path of its programs."""
    text = (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    given = re.findall(r"^ENV (.*)$", text, re.M)[-1]
    found = dict(pair.split("=", 1) for pair in given.split())
    del found["PATH"]
    return found


class Network:
    """A bridge for pods, and the names that they know. ``address`` is this machine's in it; use it as a context."""

    def __init__(self, directory: Path) -> None:
        if sys.platform != "linux" or os.geteuid() or shutil.which("ip") is None:
            missing("a way to make pods", "run as root on Linux, with the system's package iproute2")
        number = os.getpid() % 250
        self.directory = directory
        self.bridge = f"pods{number}"
        # Nobody uses these addresses: https://www.rfc-editor.org/rfc/rfc2544#appendix-C.2.2
        self._prefix = f"198.18.{number}"
        self.address = f"{self._prefix}.1"
        self._free = itertools.count(11)
        self._names: dict[str, list[str]] = {}
        self._pods: list[Pod] = []
        self._stack = ExitStack()

    def __enter__(self) -> Network:
        _run("ip", "link", "add", self.bridge, "type", "bridge")
        self._stack.callback(_run, "ip", "link", "delete", self.bridge)
        _run("ip", "address", "add", f"{self.address}/24", "dev", self.bridge)
        _run("ip", "link", "set", self.bridge, "up")
        return self

    def __exit__(self, *_: object) -> None:
        for pod in list(self._pods):
            pod.close()
        self._stack.close()

    def addresses(self, count: int) -> list[str]:
        """Those of the next pods."""
        first = next(self._free)
        self._free = itertools.count(first)
        return [f"{self._prefix}.{first + index}" for index in range(count)]

    def name(self, name: str, addresses: Iterable[str]) -> None:
        """Let all pods know these addresses of a name, and no others."""
        self._names[name] = list(addresses)
        for pod in self._pods:
            pod.write_hosts(self.hosts())

    def hosts(self) -> str:
        """The table of names."""
        lines = ["127.0.0.1 localhost"]
        return "\n".join([*lines, *(f"{each} {name}" for name, several in self._names.items() for each in several), ""])

    def join(self, pod: Pod) -> str:
        """The address of a new pod."""
        self._pods.append(pod)
        return f"{self._prefix}.{next(self._free)}"

    def leave(self, pod: Pod) -> None:
        """The pod is gone."""
        self._pods.remove(pod)


class Pod:
    """One pod of ``found``, a rendered manifest, with the pod specification ``spec``.

    ``secrets``: data of Secrets by name, in base64, which the manifest does not have.
    """

    def __init__(
        self,
        network: Network,
        name: str,
        spec: Mapping[str, Any],
        found: Sequence[Document],
        secrets: Mapping[str, Mapping[str, str]],
    ) -> None:
        self.name = f"{network.bridge}-{name}"
        self.spec = spec
        self.log = network.directory / f"{name}.log"
        self._network = network
        self._home = network.directory / name
        self._process: subprocess.Popen[bytes] | None = None
        self._lay(found, secrets)
        self.address = network.join(self)
        self.write_hosts(network.hosts())
        _run("ip", "netns", "add", self.name)
        self._link = f"{network.bridge}.{self.address.rpartition('.')[2]}"
        _run("ip", "link", "add", self._link, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        _run("ip", "link", "set", self._link, "master", network.bridge, "up")
        for command in (f"address add {self.address}/24 dev eth0", "link set eth0 up", "link set lo up"):
            _run("ip", "-n", self.name, *command.split())

    def start(self) -> None:
        """Run the init containers, then start the container; return when its probes pass. Raises AssertionError."""
        for container in self.spec.get("initContainers", ()):
            done = self.run(container)
            assert done.returncode == 0, done.stderr
        (container,) = self.spec["containers"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(container, container["args"]), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + _SECONDS
        for probe in ("startupProbe", "readinessProbe"):
            while not self.passes(probe):
                assert self._process.poll() is None, self.log.read_text()
                assert time.monotonic() < deadline, self.log.read_text()
                time.sleep(0.05)

    def passes(self, probe: str) -> bool:
        """Whether a probe of the container passes, asked as a kubelet asks: by the pod's address."""
        (container,) = self.spec["containers"]
        get = container[probe]["httpGet"]
        (port,) = [each["containerPort"] for each in container["ports"] if each["name"] == get["port"]]
        with contextlib.suppress(httpx.TransportError):
            url = f"{get['scheme'].lower()}://{self.address}:{port}{get['path']}"
            # A kubelet does not verify a certificate.
            return httpx.get(url, timeout=container[probe].get("timeoutSeconds", 1), verify=False).is_success
        return False

    def hook(self, name: str) -> list[str]:
        """The command of a hook of the container, such as ``preStop``, as this machine runs it."""
        (container,) = self.spec["containers"]
        return self._inside(container, *container["lifecycle"][name]["exec"]["command"])

    def stop(self) -> int:
        """Send SIGTERM; the exit status. A pod that outlives its grace period is killed: -9."""
        assert self._process is not None
        self._process.terminate()
        try:
            return self._process.wait(self.spec["terminationGracePeriodSeconds"])
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def close(self) -> None:
        """Remove it in whatever state it is."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        # A namespace lives on while a connection in it ends.
        _run("ip", "link", "delete", self._link)
        _run("ip", "netns", "delete", self.name)
        self._network.leave(self)

    def run(self, container: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
        """Run a container to its end."""
        words = container.get("command") or container["args"]
        command = self._inside(container, *words) if "command" in container else self._command(container, words)
        return subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)

    def write_hosts(self, text: str) -> None:
        """Replace the content of /etc/hosts; the file stays the same."""
        (self._home / "etc" / "hosts").write_text(text)

    def _command(self, container: Mapping[str, Any], arguments: Sequence[str]) -> list[str]:
        return self._inside(container, sys.executable, "-m", "babelgate", *arguments)

    def _inside(self, container: Mapping[str, Any], *words: str) -> list[str]:
        """The command that runs ``words`` in the namespaces of the pod, with the environment of a container."""
        user = self.spec["securityContext"]["runAsUser"]
        group = self.spec["securityContext"]["runAsGroup"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        environ = image_environment() | self._environment(container)
        environ |= {"PATH": f"{self._home / 'bin'}:/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
        state = environ["BABELGATE_STATE_DIR"]
        # What is below /run and /var/lib are mount points that this machine need not have.
        steps = [
            f"mount --bind {self._home / 'etc'} /etc",
            *(f"mount -t tmpfs tmpfs {each}" for each in ("/run", "/var/lib")),
        ]
        steps.append(f"mkdir {state}")
        for each in container["volumeMounts"]:
            if each["mountPath"] != _TMP:
                source = self._home / "volumes" / each["name"]
                steps.append(f"mkdir -p {each['mountPath']} && mount --bind {source} {each['mountPath']}")
        steps += [*self._show(), "mount -o remount,bind,ro /", f"cd {state}"]
        dropped = f"--reuid {user} --regid {group} --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all"
        steps.append(f"exec setpriv {dropped} env -i {_words(f'{k}={v}' for k, v in environ.items())} {_words(words)}")
        return ["ip", "netns", "exec", self.name, "sh", "-euc", "\n".join(steps)]

    def _environment(self, container: Mapping[str, Any]) -> dict[str, str]:
        """The variables of the manifest."""
        return {
            each["name"]: each["value"] if "value" in each else self._field(each["valueFrom"])
            for each in container["env"]
        }

    def _field(self, source: Mapping[str, Any]) -> str:
        if "secretKeyRef" in source:
            reference = source["secretKeyRef"]
            return base64.b64decode(self._secrets[reference["name"]][reference["key"]]).decode()
        assert source == {"fieldRef": {"fieldPath": "status.podIP"}}
        return self.address

    def _show(self) -> Iterator[str]:
        """Mount the pod's /tmp, and let its user reach Python and this checkout: below that, and below folders that are
        closed to others."""
        places: dict[str, list[str]] = {_TMP: []}
        for path in map(Path.resolve, (Path(sys.base_prefix), Path(sys.prefix), ROOT, self._home / "bin")):
            closed = [each for each in reversed(path.parents) if not each.stat().st_mode & 0o001]
            folder = Path(_TMP) if path.is_relative_to(_TMP) else next(iter(closed), None)
            if folder is not None:
                places.setdefault(str(folder), []).append(str(path))
        for number, (target, sources) in enumerate(places.items()):
            shown = self._home / ("volumes/tmp" if target == _TMP else f"shown-{number}")
            for source in sources:
                place = shown / Path(source).relative_to(target)
                yield f"mkdir -p {place} && mount --rbind {source} {place}"
            yield f"mount --rbind {shown} {target}"

    def _lay(self, found: Sequence[Document], secrets: Mapping[str, Mapping[str, str]]) -> None:
        """Write the volumes."""
        made = {each["metadata"]["name"]: each["data"] for each in found if each["kind"] == "Secret"}
        self._secrets = {**made, **secrets}
        (self._home / "etc" / "babelgate").mkdir(parents=True)
        for name in _NEEDED:
            path = Path("/etc", name)
            if path.is_file():
                (self._home / "etc" / name).write_bytes(path.read_bytes())
        program = self._home / "bin" / "babelgate"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m babelgate "$@"\n')
        for volume in self.spec["volumes"]:
            folder = self._home / "volumes" / volume["name"]
            folder.mkdir(parents=True)
            if "configMap" in volume:
                for key, text in only(found, "ConfigMap", volume["configMap"]["name"])["data"].items():
                    (folder / key).write_text(text)
            elif "secret" in volume:
                data = self._secrets[volume["secret"]["secretName"]]
                items = volume["secret"].get("items") or [{"key": key, "path": key} for key in data]
                for item in items:
                    (folder / item["path"]).write_bytes(base64.b64decode(data[item["key"]]))
            else:
                # The folder has no limit of its size.
                assert volume["emptyDir"].keys() <= {"sizeLimit"}, volume
                folder.chmod(0o777)
        # The folders above are of pytest, and closed; a bind mount leads to these directly.
        for path in (self._home, *self._home.rglob("*")):
            if path.name not in ("state", "tmp"):
                path.chmod(0o755)


def _words(words: Iterable[str]) -> str:
    return " ".join(map(shlex.quote, words))


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, (command, done.stderr)
