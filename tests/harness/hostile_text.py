"""Text that tries to control the terminal which shows it."""

from __future__ import annotations

import re

_CONTROLS = "".join(map(chr, (*range(1, 0x20), *range(0x7F, 0xA0))))
_FORMATS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029\u200b\ufeff\U000e0001"
FORGED = "a-forged-line"
HOSTILE = f"[red]x[/red]\x1b[8;5m\x1b]0;title\x07\x9b2J{_CONTROLS}{_FORMATS}\n{FORGED}"
"""Sequences that hide text, set the title and clear the screen; every control character except NUL; characters that
change the direction of text or end a line; markup of rich; and a line of its own."""

_BY_RICH = re.compile(r"\r?\x1b\[(?:[0-9;]*m|\?25[lh]|1A|2K)")
"""Styles, and what a progress bar needs to draw over itself."""


def assert_harmless(written: bytes) -> None:
    """Assert that ``written``, the output of a program to which all its input was HOSTILE, shows text only."""
    text = written.decode()
    for sequence in ("\x1b[8;5m", f"\n{FORGED}"):
        assert sequence not in text, text
    shown = _BY_RICH.sub("", text).replace("\r\n", "\n").replace("\n", "")
    assert shown.isprintable(), sorted({each for each in shown if not each.isprintable()})
