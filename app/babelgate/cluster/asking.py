"""Asks a peer a question whose answer is missing if the peer has none: there are other peers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, Literal, NamedTuple, TypeVar

import msgspec

from babelgate.cluster.client import Address, NotAPeer, PeerClient, PeerGone, PeerSilent, PeerUnreachable
from babelgate.cluster.signing import ANYBODY

Answer = TypeVar("Answer")


class Asked(NamedTuple, Generic[Answer]):
    """The answer of a peer, or None and why there is none.

    ``state``: a peer that is ``gone`` is missed by nobody: its process has ended. What a ``silent`` one knows is
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
