"""The pages that explain: their commands and programs run as they are written."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.harness.gateway import gateway
from tests.harness.pages import GATEWAY_URL, shell

DOCS = Path(__file__).resolve().parents[2] / "docs"


def _blocks(name: str, kind: str) -> list[str]:
    text = (DOCS / f"{name}.md").read_text("utf-8")
    return [str(found) for found in re.findall(rf"^```{kind}\n(.*?)^```$", text, re.M | re.S)]


def test_at_least_once(tmp_path: Path) -> None:
    """The program pays once, although it crashes before its first ack."""
    (program,) = _blocks("at-least-once", "python")
    with gateway(tmp_path) as process:
        (tmp_path / "pay.py").write_text(program.replace(GATEWAY_URL, process.url))
        (printed,) = shell(_blocks("at-least-once", "sh"), process.url, tmp_path)
        with process.client() as client:
            assert client.get("/queues/payments").json()["stats"]["depth"] == 0
    assert printed.split("\n") == ["it will come again", "1|40"]


def test_batches(tmp_path: Path) -> None:
    with gateway(tmp_path) as process:
        (printed,) = shell(_blocks("batches", "sh"), process.url, tmp_path)
    accepted, settled = printed.split("\n")
    assert json.loads(accepted) == {"accepted": 500, "failed": 0}
    assert settled == "100"
