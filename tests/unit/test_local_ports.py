"""Ports that tests give to servers: nobody else's, also while the server has not started yet."""

from __future__ import annotations

import errno
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.brokers.rabbitmq.server import RabbitServer
from tests.harness.local import free_port, free_ports

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere ports are not kept")


@contextmanager
def listening(port: int) -> Iterator[socket.socket]:
    """As servers do, after a client of the one before has left a connection in TIME_WAIT."""
    with socket.create_server(("127.0.0.1", port)) as server:
        yield server


def test_a_server_takes_its_port_as_often_as_it_starts() -> None:
    port = free_port()
    for _ in range(2):
        with listening(port) as server, socket.create_connection(("127.0.0.1", port)):
            server.accept()[0].close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))


def test_nobody_who_wants_any_port_is_given_one_of_them() -> None:
    mine = set(free_ports(200))
    given = set()
    with ExitStack() as stack:
        for _ in range(400):
            given.add(stack.enter_context(listening(0)).getsockname()[1])
    assert len(mine) == 200
    assert not mine & given


def test_nor_one_that_asks_for_it_alone() -> None:
    with socket.socket() as alone, pytest.raises(OSError, match="in use") as refusal:
        alone.bind(("127.0.0.1", free_port()))
    assert refusal.value.errno == errno.EADDRINUSE


def test_whoever_answers_at_a_brokers_port_is_not_taken_for_the_broker(tmp_path: Path) -> None:
    server = RabbitServer(tmp_path)

    def answer(stranger: socket.socket) -> None:
        connection, _ = stranger.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with listening(server.port) as stranger:
        thread = threading.Thread(target=answer, args=[stranger])
        thread.start()
        assert not server.answers()
        thread.join()
