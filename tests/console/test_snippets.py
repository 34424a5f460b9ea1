"""The code that pages offer for copying: its literals, and the names that it uses of the clients."""

from __future__ import annotations

import json
import re

import msgspec
import pytest

from babelgate.console import bodies
from babelgate.console.snippets import curl, programs
from tests.architecture.sources import ROOT

CLIENTS = ROOT / "clients"
TEXT = "a\"b'c\\d\n\x01é😀$x`{y}"
USED = {
    "TypeScript": (
        "typescript/src",
        "*.ts",
        [r"async publish\(queue: string, job: string, data: Data", "traceId\\?: string", "url\\?: string"],
    ),
    "PHP": ("php/src", "*.php", [r"public function publish\(", r"\?string \$traceId", r"class Client\b"]),
    "Java": (
        "java/src/main/java/io/babelgate/client",
        "*.java",
        [
            r"Receipt publish\(String queue, Message message\)",
            r"Message of\(String job, Object data\)",
            r"Message traceId\(String",
            r"Builder url\(String",
        ],
    ),
    "C#": (
        "csharp/src",
        "*.cs",
        [
            r"PublishAsync\(",
            r"Message\(string job, object data\)",
            r"TraceId \{ get; set; \}",
            r"class BabelgateClient\b",
        ],
    ),
    "Go": (
        "go",
        "*.go",
        [
            r"func \(c \*Client\) Publish\(ctx context\.Context, queue string, ",
            r"\bTraceID +string",
            r"\bData +any",
            r"func New\(",
        ],
    ),
    "Python": (
        "python/src/babelgate_client",
        "*.py",
        [r"def publish\(\n\s+self,\n\s+queue: str,\n\s+job: str,\n\s+data", r"trace_id: str \| None"],
    ),
}
"""Where the hand-written part of a client is, and the declarations of what the code calls."""


def made(text=TEXT):
    draft = bodies.Draft(text, msgspec.Raw(json.dumps({"x": text}, ensure_ascii=False).encode()), text)
    return {each.label: each.code for each in programs("http://127.0.0.1:8080", "orders", draft)}


@pytest.mark.parametrize("label", USED)
def test_the_code_calls_what_the_client_has(label):
    folder, pattern, declarations = USED[label]
    files = [path for path in (CLIENTS / folder).glob(pattern) if "generated" not in path.parts]
    source = "\n".join(path.read_text("utf-8") for path in files)
    for declaration in declarations:
        assert re.search(declaration, source), declaration
    assert made().keys() == USED.keys()


@pytest.mark.parametrize("label", sorted(USED.keys() - {"PHP"}))
def test_literals_are_ascii_and_on_one_line(label):
    code = made()[label]
    assert code.isascii() and "\x01" not in code
    assert not re.search(r"\\ud[89ab]", code) or label in ("TypeScript", "Java", "C#")


def test_literals_of_php_end_where_they_should():
    text = "it's a \\ $x \\' \"é😀\""
    found = re.findall(r"'(?:[^'\\]|\\.)*'", made(text)["PHP"])
    read = [each[1:-1].replace("\\'", "'").replace("\\\\", "\\") for each in found]
    assert text in read and json.dumps({"x": text}, ensure_ascii=False) in read


def test_control_characters_are_escaped_in_php_because_a_browser_would_change_them():
    code = made('a\r\x00\x7f\u2028é"$x')["PHP"]
    assert r'"a\u{d}\u{0}\u{7f}\u{2028}é\"\$x"' in code
    assert all(line.isprintable() for line in code.splitlines())


def test_the_command_quotes_for_a_shell():
    code = curl("http://127.0.0.1:8080", "orders", '{"x": "it\'s $HOME"}', has_token=True)
    assert "'\"'\"'" in code and 'Bearer $BABELGATE_TOKEN"' in code
    assert "BABELGATE_TOKEN" not in curl("http://127.0.0.1:8080", "orders", "{}", has_token=False)
