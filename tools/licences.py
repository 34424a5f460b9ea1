"""The licences of the distributions that the lock files name, from their installed metadata."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata

ALLOWED = frozenset(
    {
        "0BSD",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "BSL-1.0",
        "CC0-1.0",
        "HPND",
        "ISC",
        "MIT",
        "MIT-0",
        "MPL-2.0",
        "PSF-2.0",
        "Python-2.0",
        "Unlicense",
        "ZPL-2.1",
        "Zlib",
    }
)
"""SPDX identifiers: permissive licences, and the MPL, whose conditions end at its own files."""

_SPELLINGS: Mapping[str, str] = {
    "apache": "Apache-2.0",
    "apache 2": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license v2.0": "Apache-2.0",
    "apache license version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "apache software license 2.0": "Apache-2.0",
    "bsd": "BSD-3-Clause",
    "bsd license": "BSD-3-Clause",
    "3-clause bsd license": "BSD-3-Clause",
    "bsd 3-clause": "BSD-3-Clause",
    "new bsd": "BSD-3-Clause",
    "isc license": "ISC",
    "isc license iscl": "ISC",
    "mit license": "MIT",
    "mozilla public license 2.0 mpl 2.0": "MPL-2.0",
    "python software foundation license": "PSF-2.0",
    "the unlicense unlicense": "Unlicense",
}
"""What metadata calls a licence that is not stated as SPDX does."""


def pinned(lock: str) -> dict[str, str]:
    """The versions in the text of a lock file, by name, without those that only other systems need: they have a marker
    and are not installed."""
    found = re.findall(r"^([a-z0-9._-]+)==([^\s;]+)( ;)?", lock, re.M)
    return {name: version for name, version, marker in found if not marker or _installed(name) == version}


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _titles(name: str) -> list[str]:
    """The first lines of the licences that an installed distribution carries as files."""
    found = metadata.distribution(name)
    names = found.metadata.get_all("License-File", ())
    texts = (found.read_text(f"{folder}{each}") for each in names for folder in ("licenses/", ""))
    return [text.strip().partition("\n")[0].strip() for text in texts if text]


def licence(name: str) -> str:
    """The licence of an installed distribution as an SPDX expression, or the words of its metadata."""
    facts = metadata.metadata(name)
    for stated in facts.get_all("License-Expression", ()):
        return str(stated)
    classified = [
        each.rpartition(" :: ")[2] for each in facts.get_all("Classifier", ()) if each.startswith("License :: ")
    ]
    # A distribution may put the whole text into the field, whose first line is its name.
    lines = [line.strip() for line in "\n".join(facts.get_all("License", ())).splitlines() if line.strip()]
    words = [*lines[:1], *classified] or _titles(name)
    found = sorted({known for each in words if (known := _spdx(each)) is not None})
    return " OR ".join(found) if found else "; ".join(words) or "unknown"


def _spdx(words: str) -> str | None:
    if words in ALLOWED:
        return words
    return _SPELLINGS.get(re.sub(r"[^a-z0-9.-]+", " ", words.lower()).strip())


def forbidden(names: Iterable[str]) -> Iterator[str]:
    """The distributions without a licence that is allowed: each AND part of an expression needs one OR part that is."""
    for name in sorted(set(names)):
        try:
            stated = licence(name)
        except metadata.PackageNotFoundError:
            yield f"{name}: it is not installed, so that its licence is not known"
            continue
        if not is_allowed(stated):
            yield f"{name}: the licence {stated!r} is not one that is allowed"


def is_allowed(expression: str) -> bool:
    """Whether the conditions of an SPDX expression can be met with allowed licences only."""
    parts = re.split(r"\s+AND\s+", re.sub(r"[()]", "", expression))
    return all(any(each.split(" WITH ")[0] in ALLOWED for each in re.split(r"\s+OR\s+", part)) for part in parts)
