"""Asks peers a question whose answer is missing if a peer has none: there are other peers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Generic, Literal, NamedTuple, TypeVar

import msgspec

from babelgate.cluster.client import Address, NotAPeer, PeerClient, PeerGone, PeerSilent, PeerUnreachable
from babelgate.cluster.discovery import all_peers
from babelgate.cluster.signing import ANYBODY, Signer
from babelgate.cluster.sockets import SocketDirectory
from babelgate.cluster.wire import Told, encode_told
from babelgate.gateway.spreading import Change, Heard
from babelgate.observe.logs import get_logger

log = get_logger(__name__)

EXCHANGE_SECONDS = 1.0
"""How long a peer has to answer an exchange: it writes at most one small file before."""

Answer = TypeVar("Answer")


class Asked(NamedTuple, Generic[Answer]):
    """The answer of a peer, or None and why there is none.

    ``state``: a peer that is ``gone`` needs no answer: its process has ended. What a ``silent`` one knows is
    missing.
    """

    answer: Answer | None
    state: Literal["up", "gone", "silent"]
    reason: str = ""


async def ask(
    client: PeerClient,
    address: Address,
    method: str,
    path: str,
    target: str,
    body: bytes,
    decode: Callable[[bytes], Answer],
    seconds: float,
) -> Asked[Answer]:
    """Call the peer as :meth:`PeerClient.call` does, within ``seconds``, and ``decode`` its answer in a thread.

    ``decode`` raises msgspec.MsgspecError or ValueError for an answer that is of no use. A socket where no process
    listens is that of a killed one. At an address that is configured, something should listen. Another process that
    answers for ``target`` has taken its place; what answers for ANYBODY is a peer of another version, or no peer.
    """
    try:
        async with asyncio.timeout(seconds):
            text = await client.call(address, method, path, target, body)
        return Asked(await asyncio.to_thread(decode, text), "up")
    except PeerGone:
        return Asked(None, "silent" if address.port else "gone", "nothing listens there")
    except NotAPeer as error:
        return Asked(None, "silent" if target == ANYBODY else "gone", str(error))
    except TimeoutError:
        return Asked(None, "silent", f"no answer within {seconds:g} s")
    except (PeerUnreachable, PeerSilent, msgspec.MsgspecError, ValueError) as error:
        return Asked(None, "silent", str(error))


class AllPeers:
    """Asks all peers at once what each of them alone knows. It connects when it asks."""

    def __init__(
        self, signer: Signer, directory: SocketDirectory, addresses: Sequence[Address], seconds: float, about: str
    ) -> None:
        """``addresses``: the peers on other hosts, and maybe this process; a host name stands for all its IP
        addresses. ``seconds``: the time of a peer to answer. ``about``: what is asked for, for the log."""
        self.has_addresses = bool(addresses)
        self._directory = directory
        self._addresses = tuple(addresses)
        self._client = PeerClient(signer, seconds)
        self._seconds = seconds
        self._about = about
        self._silent: frozenset[str] = frozenset()
        """The peers that gave no answer last time, so that each silence is logged once."""

    async def ask(
        self, method: str, path: str, body: bytes, decode: Callable[[bytes], Answer]
    ) -> tuple[list[Answer], list[str]]:
        """The answers, and the names of the peers that gave none: the address, or the name of the socket. Never raises.

        Resolves host names, for at most 2 s, and then waits for at most ``seconds``. A socket on which no process
        listens is that of a killed process, and no peer. A peer of a version that cannot answer is silent.
        """
        names, silent = await all_peers(self._directory, self._addresses)
        answers = await asyncio.gather(
            *(ask(self._client, each, method, path, ANYBODY, body, decode, self._seconds) for each in names)
        )
        reasons = {name: a.reason for name, a in zip(names.values(), answers, strict=True) if a.state == "silent"}
        reasons |= dict.fromkeys(silent, "not resolved")
        for name in reasons.keys() - self._silent:
            log.warning("a peer gave no answer", peer=name, about=self._about, reason=reasons[name])
        self._silent = frozenset(reasons)
        return [asked.answer for asked in answers if asked.answer is not None], list(reasons)

    async def close(self) -> None:
        """Close the connections; idempotent."""
        await self._client.close()


class Exchanging(Generic[Change]):
    """Tells all peers at once what has changed, and hears what they know: pauses, or tokens."""

    def __init__(
        self,
        incarnation: str,
        peers: AllPeers,
        path: str,
        decode: Callable[[bytes], Told[Change]],
    ) -> None:
        """``incarnation``: of this process. ``path``: of the call."""
        self._incarnation = incarnation
        self._peers = peers
        self._path = path
        self._decode = decode
        self.has_addresses = peers.has_addresses

    async def exchange(self, changes: Sequence[Change], digest: str = "") -> Heard[Change]:
        """See :class:`babelgate.gateway.spreading.OtherProcesses`."""
        body = encode_told(Told(self._incarnation, changes, digest))
        answers, silent = await self._peers.ask("POST", self._path, body, self._decode)
        # Two addresses may lead to one gateway, and one of them to this process.
        heard = {answer.incarnation: answer.changes for answer in answers}
        heard.pop(self._incarnation, None)
        return Heard(list(chain.from_iterable(heard.values())), len(heard), silent)

    async def close(self) -> None:
        """Close the connections; idempotent."""
        await self._peers.close()
