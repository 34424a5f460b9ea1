"""Client of babelgate: publish messages, and consume them safely."""

from babelgate_client.calls import VERSION as __version__
from babelgate_client.clients import AsyncClient, Client
from babelgate_client.consumer import Consumer
from babelgate_client.dead_letters import AsyncDeadLetters, DeadLetters
from babelgate_client.errors import (
    BabelgateError,
    LeaseLostError,
    ProblemError,
    Reject,
    Retry,
    UnreachableError,
)
from babelgate_client.messages import Delivery, Message

__all__ = [
    "AsyncClient",
    "AsyncDeadLetters",
    "BabelgateError",
    "Client",
    "Consumer",
    "DeadLetters",
    "Delivery",
    "LeaseLostError",
    "Message",
    "ProblemError",
    "Reject",
    "Retry",
    "UnreachableError",
    "__version__",
]
