"""Every client installs as its README says, from a copy of its folder alone. It runs all programs of its README, and
the one that the console offers for a message. The error of a message that violates its schema has the places.
"""

from __future__ import annotations

import html
import re
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.clients.languages import ROOT, Language
from tests.clients.programs import PATIENCE_SECONDS, each_language, until
from tests.clients.projects import MAKERS, Project, blocks
from tests.clients.violations import PRINTED
from tests.clients.violations import program as violating
from tests.harness.gateway import GatewayProcess

LOCAL = "http://127.0.0.1:8080"
QUEUE = "emails"
LABELS = {"python": "Python", "typescript": "TypeScript", "php": "PHP", "java": "Java", "go": "Go", "csharp": "C#"}
"""What the console calls the languages."""
HOSTILE = "a\"b'c\\d\n\r\t\x01\x7f\u2028é😀 $x ${x} #{y} {z} %s `w` \\u0041 </pre>&amp;"
TRACE_ID = "0f6d1d9e-2f0a-4b9e-8a39-0a4f9a3a7d10"


def published(gateway: GatewayProcess, queue: str) -> dict[str, Any]:
    """A message that is hard to spell in a program."""
    data: dict[str, Any] = {HOSTILE: [HOSTILE, {}, [], None, True, 12345678901, 0.5, ""]}
    draft = {"job": f"urn:shop:{HOSTILE}", "trace_id": TRACE_ID, "data": data}
    with gateway.client() as http:
        http.post(f"queues/{queue}/messages", json=draft).raise_for_status()
    return draft


def offered(gateway: GatewayProcess, queue: str, language: Language) -> str:
    """The program in ``language`` on the console's page of the message that is ready on ``queue``."""
    with gateway.client() as http:
        page = http.get(f"console/queues/{queue}").raise_for_status().text
        (key,) = set(re.findall(rf"queues/{queue}/messages/([0-9a-f]{{32}})", page))
        page = http.get(f"console/queues/{queue}/messages/{key}").raise_for_status().text
    codes = re.findall(r'<pre class="code block" id="code-\d+"[^>]* aria-label="([^"]+)">(.*?)</pre>', page, re.DOTALL)
    # A browser reads all line ends alike.
    return html.unescape(dict(codes)[html.escape(LABELS[language.name])]).replace("\r\n", "\n").replace("\r", "\n")


def is_done(process: subprocess.Popen[bytes], left: Callable[[], int]) -> bool:
    """Whether the consumer has handled all messages, or has ended."""
    return left() == 0 or process.poll() is not None


@each_language
def test_a_client_installs_from_its_folder_and_runs_its_readme_and_the_program_of_the_console(
    language: Language, gateway: GatewayProcess, queue: str, tmp_path: Path
) -> None:
    project = Project(language, tmp_path)
    texts = blocks(project.readme, language.name)
    assert len(texts) >= 3 and all(LOCAL in text for text in texts)
    sent = published(gateway, queue)
    program = offered(gateway, queue, language)
    # Only the address is another one.
    written = [text.replace(LOCAL, gateway.url) for text in texts]
    made = MAKERS[language.name](project, [*written, program, violating(language.name, gateway.url)])
    *commands, again, refused = made
    output = tmp_path / "output"
    with gateway.client() as http:

        def left() -> int:
            stats: dict[str, int] = http.get(f"queues/{QUEUE}").json()["stats"]
            return stats["depth"] + stats["in_flight"] + stats["delayed"]

        for text, command in zip(texts, commands, strict=True):
            process = project.start(command, output)
            try:
                if "onsume" in text:
                    # It handles what the program before it has published.
                    assert left() > 0
                    until(partial(is_done, process, left), output.read_text)
                    process.send_signal(signal.SIGINT)
                # A JVM that a signal has ended says so.
                expected = (0, 130) if language.name == "java" else (0,)
                assert process.wait(PATIENCE_SECONDS) in expected, (text, output.read_text())
            finally:
                process.kill()
                process.wait()
            assert output.read_text().strip(), text
        assert left() == 0
        assert sorted(project.do(*refused).splitlines()) == sorted(PRINTED)
        done = project.do(*again)
        read = http.post(f"queues/{queue}/messages:receive", json={"max_messages": 10, "wait_seconds": 1}).json()
        first, second = (message["envelope"] for message in read["messages"])
        for envelope in (first, second):
            assert {name: envelope[name] for name in sent} == sent
        assert first["meta"]["id"] != second["meta"]["id"] == done.strip()
        tokens = [message["ack_token"] for message in read["messages"]]
        acked = http.post(f"queues/{queue}/messages:ack", json={"ack_tokens": tokens}).raise_for_status().json()
        assert acked["settled"] == 2


@pytest.mark.parametrize("page", sorted((ROOT / "clients").glob("*/README.md")), ids=lambda page: page.parent.name)
def test_the_page_of_all_clients_has_the_commands_of_each(page: Path) -> None:
    (commands,) = blocks(page.read_text("utf-8"), "sh")
    every = (ROOT / "docs" / "clients.md").read_text("utf-8")
    assert commands in blocks(every, "sh")
