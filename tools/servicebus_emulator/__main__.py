"""Runs the emulator: ``python -m tools.servicebus_emulator --port P --control C --data FILE``."""

from __future__ import annotations

import argparse
import asyncio
import gc
import signal
from pathlib import Path

import uvloop

from tools.servicebus_emulator import web
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
    await stopped.wait()
    described.close()
    server.close()
    broker.close()


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m tools.servicebus_emulator")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--control", type=int, required=True)
    parser.add_argument("--data", type=Path, required=True)
    arguments = parser.parse_args()
    uvloop.run(_serve(arguments.port, arguments.control, arguments.data))


if __name__ == "__main__":
    main()
