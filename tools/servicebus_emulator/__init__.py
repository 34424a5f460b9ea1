"""An emulator of Azure Service Bus: AMQP 1.0 on qpid-proton's engine, with a durable store.

``python -m tools.servicebus_emulator`` starts it; ``docs/servicebus.md`` says what of the service it follows.
"""

from __future__ import annotations

from urllib.parse import quote


def connection_string(port: int) -> str:
    """A connection string of the SDK for the emulator at ``port`` of this machine."""
    keys = "SharedAccessKeyName=R;SharedAccessKey=K"
    return f"Endpoint=sb://127.0.0.1:{port};{keys};UseDevelopmentEmulator=true"


def broker_url(port: int, control: int) -> str:
    """The URL of the broker in a gateway's configuration; ``control``: the port of the HTTP API."""
    connection, admin = quote(connection_string(port), safe=""), quote(f"http://127.0.0.1:{control}/", safe="")
    return f"servicebus://?connection_string={connection}&admin_url={admin}"
