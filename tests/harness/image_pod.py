"""Runs pods of a manifest as containers of the image, with podman and the flags that the manifest stands for.

``podman kube play`` of Debian's podman 4.3 ends with a panic at a volume of a Secret, and does not ask probes as a
kubelet does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.harness.image import LIMITS, TAG, Podman, environment
from tests.harness.pod import Network, Pod
from tools.helm import Document


class ImagePod(Pod):
    """A pod of ``workload``, which is a Deployment, a StatefulSet or a Pod of the rendered manifest ``found``."""

    def __init__(
        self,
        podman: Podman,
        network: Network,
        workload: Document,
        found: Sequence[Document],
        secrets: Mapping[str, Mapping[str, str]],
    ) -> None:
        self._podman = podman
        spec: dict[str, Any] = workload["spec"]
        claims = [each["metadata"]["name"] for each in spec.get("volumeClaimTemplates", ())]
        pod = spec["template"]["spec"] if "template" in spec else spec
        volumes = [*pod["volumes"], *({"name": name, "emptyDir": {}} for name in claims)]
        super().__init__(network, workload["kind"].lower(), {**pod, "volumes": volumes}, found, secrets)
        for name in claims:
            # A new file system belongs to root; fsGroup opens it.
            folder = self._home / "volumes" / name
            os.chown(folder, 0, pod["securityContext"]["fsGroup"])
            folder.chmod(0o2775)

    def hook(self, name: str) -> list[str]:
        (container,) = self.spec["containers"]
        return self._podman.command("exec", self.name, *container["lifecycle"][name]["exec"]["command"])

    def close(self) -> None:
        # The container does not end with the podman that started it.
        self._podman("rm", "--force", "--ignore", "--time", "0", self.name)
        super().close()

    def _command(self, container: Mapping[str, Any], arguments: Sequence[str]) -> list[str]:
        main = container in self.spec["containers"]
        name = self.name if main else f"{self.name}-{container['name']}"
        return self._podman.command("run", "--rm", "--name", name, *self._flags(container), TAG, *arguments)

    def _inside(self, container: Mapping[str, Any], *words: str) -> list[str]:
        program, *arguments = words
        return self._podman.command(
            "run", "--rm", "--name", self.name, *self._flags(container), "--entrypoint", program, TAG, *arguments
        )

    def _flags(self, container: Mapping[str, Any]) -> Iterator[str]:
        pod, own = self.spec["securityContext"], container["securityContext"]
        yield from ("--network", f"ns:/run/netns/{self.name}", *LIMITS)
        yield from ("--volume", f"{self._home / 'etc' / 'hosts'}:/etc/hosts:ro")
        yield from ("--user", f"{pod['runAsUser']}:{pod['runAsGroup']}")
        yield from ("--memory", container["resources"]["limits"]["memory"].replace("Mi", "m"))
        if own["readOnlyRootFilesystem"]:
            yield from ("--read-only", "--read-only-tmpfs=false")
        if not own["allowPrivilegeEscalation"]:
            yield from ("--security-opt", "no-new-privileges")
        for capability in own["capabilities"]["drop"]:
            yield from ("--cap-drop", capability)
        for each in container["volumeMounts"]:
            source, mode = self._home / "volumes" / each["name"], "ro" if each.get("readOnly") else "rw"
            yield from ("--volume", f"{source}:{each['mountPath']}:{mode}")
        yield from environment(self._environment(container))
