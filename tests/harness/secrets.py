"""Looks for planted secrets in files and outputs, however they are spelled there."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from tests.harness.journal import unpacked


def forms(secret: str) -> list[bytes]:
    """The secret as it may stand in a file: as it is, escaped, in an address, and in base64 at any offset."""
    raw = secret.encode()
    found = [raw, json.dumps(secret)[1:-1].encode(), quote(secret).encode()]
    # Of each offset, the characters that depend on the secret alone.
    found += [b64encode(b"\0" * at + raw)[-(-at * 4 // 3) : len(raw) // 3 * 4] for at in (0, 1, 2)]
    assert all(len(form) > 12 for form in found)
    return found


def found_in(texts: Iterable[tuple[str, bytes]], *secrets: str) -> list[str]:
    """The names of the texts with any form of a secret."""
    wanted = [form for secret in secrets for form in forms(secret)]
    return sorted({name for name, text in texts if any(form in text for form in wanted)})


def files(directory: Path) -> list[tuple[str, bytes]]:
    """Every file below the directory, with the text of compressed ones."""
    found = []
    for path in directory.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            found.append((path.name, content))
            if path.suffix in (".zst", ".gz"):
                found.append((f"text of {path.name}", unpacked(content, path.name)))
    return found
