"""``python -m tools.servicebus_emulator`` runs the emulator until SIGTERM or Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import gc
import signal
from pathlib import Path

import uvloop

from tools.servicebus_emulator import broker_url, connection_string, web
from tools.servicebus_emulator.broker import Broker
from tools.servicebus_emulator.connection import Connection
from tools.servicebus_emulator.control import Control


async def _serve(port: int, control: int, data: Path) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    broker = Broker(data)
    gc.freeze()
    server = await loop.create_server(lambda: Connection(broker), "127.0.0.1", port, reuse_address=True, backlog=1024)
    described = await web.serve(control, Control(broker).answer)
    print(f"connection string  {connection_string(port)}")
    print(f"for a gateway      {broker_url(port, control)}", flush=True)
    await stopped.wait()
    described.close()
    server.close()
    broker.close()


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.servicebus_emulator",
        description="An emulator of Azure Service Bus on 127.0.0.1. It accepts any key and creates queues by use.",
    )
    parser.add_argument("--port", type=int, default=5672, help="of AMQP; default: %(default)s")
    parser.add_argument("--control", type=int, default=5300, help="of the HTTP API; default: %(default)s")
    file = Path("servicebus-emulator.sqlite")
    parser.add_argument("--data", type=Path, default=file, help="the file of the messages; default: %(default)s")
    arguments = parser.parse_args()
    uvloop.run(_serve(arguments.port, arguments.control, arguments.data))


if __name__ == "__main__":
    main()
