"""Keeps the tokens that calls have made in a file, which all processes with one ``state_dir`` share.

Of two versions of a token a revocation counts, whenever it was made, and else the newer one. So processes agree as soon
as they have seen the same versions, in whatever order. The last version is remembered until each version has ended: a
process that was away and still has an older one learns the last one, or the older one has ended there, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from babelgate.gateway.authorization import Right
from babelgate.runtime.files import StateFile

REMEMBERED_MS = 86_400_000
"""How long a token is remembered after its end: the clocks of processes may differ by as much."""

Rights = dict[str, tuple[Right, ...]]
"""Rights by queue pattern."""


class PageBounds(Struct, frozen=True, omit_defaults=True):
    """What a token that is part of a web page may do: publish to ``queues``, patterns. See docs/browsers.md."""

    queues: tuple[str, ...]
    origins: tuple[str, ...]
    per_minute: int
    max_message_bytes: int


class MadeToken(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A version of a token. Its secrets are SHA-256 in lower-case hexadecimal; each ``…_at`` is in Unix ms.

    ``created_by``, ``by``: the names of the callers that made the token, and this version. ``at`` and ``change``, a
    random word, order the versions. ``old_sha256``: of the secret before the last rotation, valid until
    ``old_ends_at``. ``known_until``: the latest end of all versions. ``account``: the caller whose bound it counts
    for; empty: only the bound of all. ``page``: of a token in a web page, whose ``rights`` are empty: a gateway of a
    version that knows no pages lets it do nothing. A revoked token has neither secrets nor rights.
    """

    id: str
    name: str
    created_at: int
    created_by: str
    ends_at: int
    known_until: int
    at: int
    change: str
    by: str
    account: str = ""
    rights: Rights = {}
    sha256: str = ""
    old_sha256: str = ""
    old_ends_at: int = 0
    revoked: bool = False
    page: PageBounds | None = None

    @property
    def granted(self) -> Rights:
        """What it may do, by queue pattern."""
        return self.rights if self.page is None else {queue: (Right.SEND,) for queue in self.page.queues}

    def is_valid(self, now: int) -> bool:
        """Whether a caller can use it at ``now``."""
        return not self.revoked and now < self.ends_at

    def ends(self) -> Iterator[tuple[str, int]]:
        """Each secret, and its end."""
        if not self.revoked:
            yield self.sha256, self.ends_at
            if self.old_sha256:
                yield self.old_sha256, self.old_ends_at

    def rank(self) -> tuple[bool, int, str, bool]:
        """Of two versions the one with the greater rank counts. One that an older gateway has written lacks ``page``;
        the whole one counts."""
        return self.revoked, self.at, self.change, self.page is not None


Stored = dict[str, MadeToken]
"""By id."""

_stored = msgspec.json.Decoder(Stored)


class TokenFile(StateFile[Stored]):
    """``tokens/tokens.json`` in ``state_dir``: the last version of each token."""

    def __init__(self, state_dir: Path) -> None:
        super().__init__(state_dir / "tokens" / "tokens.json", _stored, dict)


def merged(stored: Stored, versions: Iterable[MadeToken], now: int) -> Stored:
    """``stored`` with those of ``versions`` that count, without what ended long before ``now``; ``stored`` itself if
    that changes nothing."""
    changed: Stored = {}
    for each in versions:
        if each.known_until + REMEMBERED_MS <= now:
            continue
        known = changed.get(each.id) or stored.get(each.id)
        if known is None:
            changed[each.id] = each
        elif (joined := _joined(known, each)) != known:
            changed[each.id] = joined
    gone = [name for name, each in stored.items() if each.known_until + REMEMBERED_MS <= now]
    if not changed and not gone:
        return stored
    found = stored | changed
    for name in gone:
        found.pop(name, None)
    return found


def digest_of(stored: Stored) -> str:
    """What two processes with the same versions have in common."""
    lines = (
        f"{each.id} {each.revoked} {each.at} {each.change} {each.known_until}{'' if each.page is None else ' page'}\n"
        for each in stored.values()
    )
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()


def _joined(one: MadeToken, other: MadeToken) -> MadeToken:
    newer = max(one, other, key=MadeToken.rank)
    return replace(newer, known_until=max(one.known_until, other.known_until))
