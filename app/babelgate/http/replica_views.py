"""The answer of the list of replicas, as FastAPI validates and documents it."""

from __future__ import annotations

from pydantic import Field

from babelgate.http.views import View


class ReplicaView(View):
    """A process that serves: a gateway, or one of its workers."""

    incarnation: str
    """Identifies the process; random at each start."""
    node: str
    """Its name in logs and journals, mostly that of its host; empty for one of an older version."""
    gateway: str
    """The same for all workers of one gateway; empty for one of an older version."""
    pid: int
    """Its process id on its host; 0 for one of an older version."""
    version: str
    """The version that it runs; empty for one of an older version."""
    started_at: int = Field(description="When it started, Unix milliseconds UTC; 0 for one of an older version.")


class ReplicaListView(View):
    """The processes that serve, and the peers that do not answer."""

    processes: list[ReplicaView]
    """The processes, by node and gateway, at most 10 seconds old."""
    silent: list[str]
    """Peers that gave no answer within a second: their addresses, or the names of their sockets."""
    own: str
    """The incarnation of the process that answers."""
    has_port: bool
    """`false`: the process has no private port for peers, so that it finds no other."""
