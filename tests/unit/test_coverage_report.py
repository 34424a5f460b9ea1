"""What ``make coverage`` measures and prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.architecture.sources import ROOT
from tools.coverage_report import by_package, lines, package


def test_each_broker_is_a_package_of_its_own():
    paths = {
        "app/babelgate/clock.py": "babelgate",
        "app/babelgate/gateway/settle.py": "gateway",
        "app/babelgate/brokers/redis/layouts/list.py": "brokers/redis",
        "app/babelgate/brokers/cursor.py": "brokers",
    }
    assert {path: package(path) for path in paths} == paths


def test_packages_add_up():
    def file(statements: int, covered: int, branches: int, taken: int) -> dict[str, object]:
        counts = (statements, covered, branches, taken)
        names = ("num_statements", "covered_lines", "num_branches", "covered_branches")
        return {"summary": dict(zip(names, counts, strict=True))}

    files = {
        "app/babelgate/http/a.py": file(600, 500, 100, 100),
        "app/babelgate/http/b.py": file(1400, 1400, 0, 0),
        "app/babelgate/cli/a.py": file(0, 0, 0, 0),
    }
    assert [line.split() for line in lines(by_package(files))] == [
        ["package", "statements", "branches", "covered"],
        ["cli", "0", "0", "0.0%"],
        ["http", "2,000", "100", "95.2%"],
        ["all", "2,000", "100", "95.2%"],
    ]


def test_processes_and_their_forks_are_measured(tmp_path: Path):
    """As a test starts gateways: one process, and one that is forked from it and ends by os._exit."""
    files = ["app/babelgate/masking.py", "app/babelgate/jsontext.py"]
    child = (
        "import os\n"
        "if not os.fork():\n"
        "    import babelgate.masking\n"
        "    os._exit(0)\n"
        "else:\n"
        "    os.wait()\n"
        "    import babelgate.jsontext\n"
    )
    script = tmp_path / "starts.py"
    script.write_text(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], check=True)")
    environment = {**os.environ, "COVERAGE_FILE": str(tmp_path / "data"), "PYTHONPATH": str(ROOT / "app")}
    environment = {name: value for name, value in environment.items() if not name.startswith("COVERAGE_PROCESS")}

    def coverage(*arguments: str) -> None:
        command = [sys.executable, "-m", "coverage", *arguments]
        subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)

    coverage("run", str(script))
    coverage("combine", "--quiet")
    coverage("json", "--quiet", "-o", str(tmp_path / "report.json"), f"--include={','.join(files)}")
    report = json.loads((tmp_path / "report.json").read_text("utf-8"))["files"]
    assert {path: report[path]["summary"]["covered_lines"] > 0 for path in files} == dict.fromkeys(files, True)
