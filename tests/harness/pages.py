"""The examples of the documentation, and a shell that runs them as they are written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
_NAMES = ("README.md", "docs/api.md", "docs/configuration.md", "docs/local.md", "docs/redis.md")
PAGES = "\n".join((_ROOT / name).read_text("utf-8") for name in _NAMES)
GATEWAY_URL = "http://127.0.0.1:8080"
_NEXT = "=== next block ==="


def blocks(heading: str, language: str) -> list[str]:
    """The fenced blocks of one language in one section."""
    (section,) = (part for part in re.split(r"^## ", PAGES, flags=re.M) if part.startswith(heading + "\n"))
    found = [str(block) for block in re.findall(rf"^```{language}\n(.*?)^```$", section, re.M | re.S)]
    assert found, f"no {language} block under {heading!r}"
    return found


def shell(scripts: list[str], url: str, directory: Path, others: Mapping[str, str] | None = None) -> list[str]:
    """Run blocks in one shell against the gateway at ``url``; what each printed. A refused request fails.

    ``others``: further addresses of the pages, and those that stand for them.
    """
    (directory / ".curlrc").write_text("fail-with-body\n")
    (directory / "babelgate").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m babelgate "$@"\n')
    (directory / "babelgate").chmod(0o755)
    environ = os.environ | {
        "CURL_HOME": str(directory),
        "PATH": f"{directory}:{os.environ['PATH']}",
        "PYTHONPATH": str(_ROOT),
        "BABELGATE_URL": url,
    }
    text = f"\necho\necho '{_NEXT}'\n".join(scripts)
    for written, actual in {GATEWAY_URL: url, **(others or {})}.items():
        text = text.replace(written, actual)
    done = subprocess.run(
        ["sh", "-eu", "-c", text], cwd=directory, env=environ, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [part.strip() for part in done.stdout.split(_NEXT)]


def commands_work(commands: Sequence[str], directory: Path) -> None:
    """Run the commands for publish, receive and ack that ``serve`` prints, as they are printed."""

    def sh(command: str) -> dict[str, Any]:
        done = subprocess.run(["sh", "-c", command], check=True, capture_output=True, cwd=directory)
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    published = sh(commands[0])
    (message,) = sh(commands[1])["messages"]
    assert message["envelope"]["meta"]["id"] == published["id"]
    assert sh(commands[2])["settled"] == 1
