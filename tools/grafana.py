"""Checks the dashboard against Grafana's own types: ``python -m tools.grafana``. Needs npm and its registry."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.harness.monitoring import DASHBOARD

PACKAGES = ("@grafana/schema@13.2.3", "typescript@5.9.3")
# JSON has the values of Grafana's enumerations where TypeScript wants their names.
_TYPES = """
import type { Dashboard } from "@grafana/schema";
type Json<T> = T extends string ? `${T}` : T extends object ? { [K in keyof T]: Json<T[K]> } : T;
export const dashboard: Json<Dashboard> = """
_OPTIONS = ("--strict", "--noEmit", "--skipLibCheck", "--module", "esnext", "--moduleResolution", "bundler")


def check(directory: Path) -> int:
    """The exit status of the compiler over the dashboard; it says what is wrong on standard output."""
    npm = shutil.which("npm")
    if npm is None:
        sys.exit("npm is missing")
    install = [npm, "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", *PACKAGES]
    subprocess.run(install, cwd=directory, check=True)
    (directory / "dashboard.ts").write_text(_TYPES + DASHBOARD.read_text())
    compiler = directory / "node_modules" / ".bin" / "tsc"
    return subprocess.run([compiler, *_OPTIONS, "dashboard.ts"], cwd=directory).returncode


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="babelgate-grafana-") as place:
        sys.exit(check(Path(place)))
