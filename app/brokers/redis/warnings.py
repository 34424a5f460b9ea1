"""What an operator should know about how a Redis server is set up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.brokers.redis.server import Server
from app.errors import BrokerRejected

_NO_AOF = (
    "The append-only file is off (appendonly no): a message is as durable as the last snapshot, "
    "and an accepted message can be lost."
)
_EVERYSEC = (
    "The append-only file is flushed once a second (appendfsync {policy}): a power failure may lose the last second. "
    "appendfsync always closes that gap."
)
_AOF_FAILS = "The last write to the append-only file failed: see the server's log."
_EVICTS = "maxmemory-policy {policy} may evict queues when memory runs out: noeviction refuses writes instead."


async def warnings_of(server: Server) -> list[str]:
    """Sentences on durability and eviction; none on what the server does not let us see."""
    facts = {**await _info(server, b"persistence"), **await _info(server, b"memory")}
    found = []
    if facts.get("aof_enabled") == "0":
        found.append(_NO_AOF)
    elif facts.get("aof_enabled") == "1":
        policy = await _setting(server, b"appendfsync")
        if policy is not None and policy != "always":
            found.append(_EVERYSEC.format(policy=policy))
        if facts.get("aof_last_write_status") == "err":
            found.append(_AOF_FAILS)
    policy = facts.get("maxmemory_policy", "noeviction")
    # The queues' keys have no time to live, so the volatile policies leave them alone.
    if policy.startswith("allkeys") and facts.get("maxmemory") != "0":
        found.append(_EVICTS.format(policy=policy))
    return found


async def _info(server: Server, section: bytes) -> Mapping[str, str]:
    text = await _allowed(server, b"INFO", section)
    if text is None:
        return {}
    return dict(line.split(":", 1) for line in text.decode("utf-8", "replace").splitlines() if ":" in line)


async def _setting(server: Server, name: bytes) -> str | None:
    pairs = await _allowed(server, b"CONFIG", b"GET", name)
    return pairs[1].decode("utf-8", "replace") if pairs else None


async def _allowed(server: Server, *command: bytes) -> Any:
    """The reply, or None where an access list forbids the command."""
    try:
        return await server.read(*command)
    except BrokerRejected:
        return None
