"""The recording of the quick start shows the commands of the README."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

from tests.harness.pages import blocks

IMAGE = Path(__file__).resolve().parents[2] / "docs/images/quick-start.svg"
_TEXT = "{http://www.w3.org/2000/svg}text"


def test_it_shows_the_commands_of_the_readme_and_their_answers() -> None:
    assert IMAGE.stat().st_size < 500_000
    lines = list(ElementTree.parse(IMAGE).iter(_TEXT))
    commands = "".join(line.text or "" for line in lines if line.get("class") == "command")
    written = "".join(f"$ {line}" for block in blocks("Quick start", "sh") for line in block.splitlines())
    assert commands == written, "run `make recording`"
    answers = "".join(line.text or "" for line in lines if line.get("class") is None)
    decoder, found = json.JSONDecoder(), []
    while answers:
        answer, end = decoder.raw_decode(answers)
        found.append(answer)
        answers = answers[end:]
    published, received, acked = found
    assert received["messages"][0]["envelope"]["meta"]["id"] == published["id"]
    assert acked["settled"] == 1
