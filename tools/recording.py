"""Makes the recording of the README's quick start: ``make recording`` writes docs/images/quick-start.svg.

The commands are those of the README. They run against a real gateway on a free port, and the picture shows what they
print. It is an animated SVG, which forges show like any picture. Who asks for less motion sees all lines at once.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from tests.harness.console import console
from tests.harness.pages import blocks, shell

TARGET = Path(__file__).resolve().parents[1] / "docs/images/quick-start.svg"
COLUMNS = 100
_CHARACTER, _LINE, _MARGIN = 8.4, 21, 20
_TYPING_SECONDS, _ANSWER_SECONDS, _PAUSE_SECONDS, _END_SECONDS = 1.6, 0.4, 1.6, 6.0
_HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="title" \
font-family="ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="14">
<title id="title">A terminal in which the three commands of the quick start publish a message, receive it, \
and acknowledge it</title>
<style>
text {{white-space: pre; fill: #e6edf3}}
.command {{fill: #7ee787}}
.cover {{fill: #161b22}}
{rules}
@media (prefers-reduced-motion: reduce) {{text {{animation: none !important}} .cover {{display: none}}}}
</style>
<rect width="{width}" height="{height}" rx="10" fill="#161b22"/>
"""


class Row(NamedTuple):
    """One line of the terminal. ``at``: when it appears, in seconds; ``typing``: how long it is typed; 0: not."""

    text: str
    at: float
    typing: float = 0


def rows(commands: Sequence[str], answers: Sequence[str]) -> tuple[list[Row], float]:
    """The lines of the terminal, and when they end, in seconds."""
    found, now = [], 0.5
    for block, answer in zip(commands, answers, strict=True):
        for number, command in enumerate(block.splitlines()):
            for part in _wrapped(f"$ {command}"):
                typing = _TYPING_SECONDS * len(part) / COLUMNS
                found.append(Row(part, now, typing))
                now += typing
            now += _ANSWER_SECONDS if number == len(block.splitlines()) - 1 else 0.2
        found += [Row(part, now) for part in _wrapped(answer)]
        now += _PAUSE_SECONDS
    return found, now + _END_SECONDS


def drawn(lines: Sequence[Row], seconds: float) -> str:
    """The picture."""
    width, height = round(COLUMNS * _CHARACTER + 2 * _MARGIN), len(lines) * _LINE + 2 * _MARGIN
    rules, shapes = [], []
    for number, (text, at, typing) in enumerate(lines):
        begin, end = 100 * at / seconds, 100 * (at + typing) / seconds
        long, base = round(len(text) * _CHARACTER, 1), _MARGIN + number * _LINE + 15
        rules.append(
            f"@keyframes a{number} {{0%, {begin:.2f}% {{opacity: 0}} {begin + 0.01:.2f}%, 100% {{opacity: 1}}}}"
        )
        kind = ' class="command"' if typing else ""
        shown = f'style="animation: a{number} {seconds:.1f}s infinite"'
        shapes.append(
            f'<text{kind} x="{_MARGIN}" y="{base}" textLength="{long}" lengthAdjust="spacingAndGlyphs" {shown}>'
            f"{escape(text, quote=False)}</text>"
        )
        if typing:
            rules.append(
                f"@keyframes c{number} {{0%, {begin:.2f}% {{transform: none; animation-timing-function: "
                f"steps({len(text)})}} {end:.2f}%, 100% {{transform: translateX({width}px)}}}}"
            )
            shapes.append(
                f'<rect class="cover" x="{_MARGIN}" y="{base - 15}" width="{width - 2 * _MARGIN}" height="{_LINE}" '
                f'style="animation: c{number} {seconds:.1f}s infinite"/>'
            )
    return _HEAD.format(width=width, height=height, rules="\n".join(rules)) + "\n".join(shapes) + "\n</svg>\n"


def _wrapped(text: str) -> Iterator[str]:
    return (text[at : at + COLUMNS] for at in range(0, len(text), COLUMNS))


def main() -> None:
    """Run the commands, and write the picture."""
    commands = blocks("Quick start", "sh")
    with tempfile.TemporaryDirectory(prefix="babelgate-recording-") as folder, console(Path(folder)) as server:
        answers = shell(commands, server.url, Path(folder))
    TARGET.write_text(drawn(*rows(commands, answers)), "utf-8")
    print(f"{TARGET.name}: {TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
