"""A checked right of a caller on a queue."""

from __future__ import annotations

from msgspec import Struct

from babelgate.gateway.authorization import Caller, Right
from babelgate.gateway.routing import ROUTE_BYTES, Route

ACCESSES_BYTES = 32 * 1024 * 1024
ACCESS_BYTES = 600 + ROUTE_BYTES
"""Most bytes of a remembered access, its key, and its route, which may be remembered here alone."""


class Access(Struct, frozen=True, eq=False):
    """A checked right of ``caller`` on a queue, and the route of that queue. Made by the gateway's ``access``."""

    caller: Caller
    right: Right
    route: Route
