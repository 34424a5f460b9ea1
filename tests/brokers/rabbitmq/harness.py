"""A real RabbitMQ server: one for a test session, or one of a test's own that it may kill, alarm and reconfigure."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pika
import pika.exceptions
import psutil
from pamqp.commands import Basic
from pika.adapters.blocking_connection import BlockingChannel

from app.brokers.rabbitmq.options import queue_of
from app.brokers.rabbitmq.profile import NativeMessage, Topology
from app.clock import now_ms
from tests.harness.broker import ServerBroker, Variant
from tests.harness.ci import missing
from tests.harness.local import certify, free_ports, suspend

if TYPE_CHECKING:
    from app.brokers.rabbitmq.binding import RabbitBinding

_READY_SECONDS = 240.0
_STOP_SECONDS = 120.0
_WATERMARK = "800MiB"
# Debian's programs in /usr/sbin change the user and the directory; those that they call do not.
_PROGRAMS = ("/usr/lib/rabbitmq/bin", "/usr/local/sbin", "/opt/homebrew/sbin")
# Idle schedulers sleep, because several servers share the cores: https://www.rabbitmq.com/docs/runtime#busy-waiting
# Modules are loaded when they are called, which takes a quarter off a start.
_ERLANG = (
    "+P 1048576 +t 5000000 +stbt db +zdbbl 128000 +S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none"
    " -mode interactive -kernel inet_dist_use_interface {127,0,0,1}"
)


ADVANCED = "[{rabbit, [{dead_letter_worker_publisher_confirm_timeout, 2000}]}]."
"""A message that moves to the next delay queue while that one still starts gets no confirm. The server then tries again
after two seconds instead of three minutes."""


class RabbitServer:
    """A ``rabbitmq-server`` on a directory, ports and an epmd of its own; the user is ``guest``.

    ``management`` loads that plugin, and a stop in good order then takes six seconds instead of one. ``tls`` adds a
    listener with a certificate for 127.0.0.1 signed by ``ca_file``. ``settings`` are lines of ``rabbitmq.conf``,
    ``advanced`` is an ``advanced.config``.
    """

    def __init__(
        self,
        directory: Path,
        *,
        management: bool = False,
        tls: bool = False,
        settings: Sequence[str] = (),
        advanced: str = ADVANCED,
    ) -> None:
        self.directory = directory
        self.port, self.tls_port, self.management_port, distribution, epmd = free_ports(5)
        self.ca_file = directory / "ca.crt"
        self._process: subprocess.Popen[bytes] | None = None
        lines = [
            f"listeners.tcp.1 = 127.0.0.1:{self.port}",
            "loopback_users = none",
            f"vm_memory_high_watermark.absolute = {_WATERMARK}",
            "disk_free_limit.absolute = 50MB",
            "log.console = true",
            "log.console.level = warning",
            "log.file = false",
            *settings,
        ]
        if management:
            lines += ["management.tcp.ip = 127.0.0.1", f"management.tcp.port = {self.management_port}"]
        if tls:
            certify(directory)
            lines += [f"listeners.ssl.1 = 127.0.0.1:{self.tls_port}", f"ssl_options.cacertfile = {self.ca_file}"]
            lines += [f"ssl_options.{kind}file = {directory}/server.{end}" for kind, end in _PAIR]
            lines += ["ssl_options.verify = verify_none", "ssl_options.fail_if_no_peer_cert = false"]
        (directory / "rabbitmq.conf").write_text("".join(f"{line}\n" for line in lines))
        (directory / "advanced.config").write_text(advanced)
        (directory / "enabled_plugins").write_text("[rabbitmq_management]." if management else "[].")
        self._environ = {name: value for name, value in os.environ.items() if not name.startswith("RABBITMQ_")} | {
            "HOME": str(directory),
            # The name is a part of the path of the data, and the port of the name's uniqueness.
            "RABBITMQ_NODENAME": f"test{self.port}@localhost",
            "RABBITMQ_MNESIA_BASE": str(directory / "data"),
            "RABBITMQ_LOG_BASE": str(directory),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(directory / "advanced.config"),
            "RABBITMQ_CONF_ENV_FILE": str(directory / "none.env"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
            "RABBITMQ_PID_FILE": str(directory / "pid"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(directory / "generated"),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_SERVER_ERL_ARGS": _ERLANG,
            "ERL_EPMD_PORT": str(epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }

    @property
    def _log(self) -> Path:
        return self.directory / "rabbitmq.log"

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process that was started; the virtual machine is its child."""
        assert self._process is not None
        return self._process.pid

    def url(self, vhost: str = "/", *, user: str = "guest", password: str = "guest") -> str:
        """The URL of a virtual host."""
        return f"amqp://{user}:{password}@127.0.0.1:{self.port}/{_path(vhost)}"

    def tls_url(self, vhost: str = "/", *, host: str = "127.0.0.1") -> str:
        """The same over TLS."""
        return f"amqps://guest:guest@{host}:{self.tls_port}/{_path(vhost)}"

    @property
    def management_url(self) -> str:
        """Where the management API is, without credentials."""
        return f"http://127.0.0.1:{self.management_port}"

    def start(self) -> None:
        """Start on what the directory holds; returns when the server takes connections."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [_program("rabbitmq-server")],
                env=self._environ,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + _READY_SECONDS
        while not self.answers():
            if not self.is_running or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"rabbitmq-server did not start:\n{self._log.read_text('utf-8', 'replace')[-3000:]}")
            time.sleep(0.02)

    def ensure(self) -> None:
        """Start it unless it runs: a test that failed may have left it in any state."""
        if not self.is_running:
            self.start()
        self.resume()
        if not self.answers():
            self.ctl("start_app")

    def stop(self) -> None:
        """SIGTERM: it ends in good order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to the virtual machine: what it had not written is gone."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """SIGSTOP: connections stay, answers stop."""
        for process in self._machine():
            suspend(process.pid)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """End it in whatever state it is, and the epmd that outlives it."""
        self.kill()
        epmd = shutil.which("epmd", path=f"{os.environ.get('PATH', '')}:/usr/lib/erlang/bin")
        if epmd is not None:
            # It refuses while it has not yet noticed that the server is gone.
            for _ in range(100):
                killed = subprocess.run([epmd, "-kill"], env=self._environ, capture_output=True)
                if b"living nodes" not in killed.stdout + killed.stderr:
                    break
                time.sleep(0.02)

    def settle_down(self) -> None:
        """Write the records of queues that RabbitMQ 3.10 writes up to a second late; what it has confirmed is written.

        A server that is killed before restarts without a classic queue, or with a quorum queue without a leader.
        """
        self.ctl("eval", "mnesia:sync_log(), [dets:sync(Table) || Table <- dets:all()].")

    def ctl(self, *arguments: str) -> str:
        """What ``rabbitmqctl`` prints; a call takes a second. Raises CalledProcessError."""
        command = [_program("rabbitmqctl"), "--quiet", *arguments]
        try:
            return subprocess.run(command, env=self._environ, check=True, capture_output=True, text=True).stdout
        except subprocess.CalledProcessError as error:
            error.add_note(f"{error.stdout}{error.stderr}")
            raise

    def queue_eval(self, queue: str, expression: str) -> str:
        """What an Erlang expression gives, in which ``Pid`` is the process of a queue of the virtual host ``/``."""
        found = f'{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"{queue}">>))'
        return self.ctl("eval", f"{found}, Pid = amqqueue:get_pid(Q), {expression}.")

    @contextmanager
    def alarm(self) -> Iterator[None]:
        """While it lasts the memory alarm is on: connections that publish are blocked."""
        self.ctl("set_vm_memory_high_watermark", "absolute", "1MiB")
        try:
            yield
        finally:
            self.ctl("set_vm_memory_high_watermark", "absolute", _WATERMARK)

    def answers(self) -> bool:
        """Whether it starts the protocol, with a frame of a method; it listens before it does."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as probe:
                probe.settimeout(2)
                probe.sendall(b"AMQP\x00\x00\x09\x01")
                return probe.recv(1) == b"\x01"
        except OSError:
            return False

    def _machine(self) -> list[psutil.Process]:
        """The virtual machine, a child of the script that was started."""
        if self._process is None or self._process.poll() is not None:
            return []
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(self._process.pid).children(recursive=True)
            return [child for child in children if "beam" in child.name()]
        return []

    def _signal(self, number: signal.Signals) -> None:
        for process in self._machine():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        if number is signal.SIGTERM:
            self.resume()
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_SECONDS)
        self._signal(signal.SIGKILL)
        if not self._machine():
            self._process.kill()
        self._process.wait(_STOP_SECONDS)
        self._process = None


_PAIR = (("cert", "crt"), ("key", "key"))


def _path(vhost: str) -> str:
    return "" if vhost == "/" else quote(vhost, safe="")


def _program(name: str) -> str:
    found = shutil.which(name, path=os.pathsep.join((*_PROGRAMS, os.environ.get("PATH", ""))))
    if found is None:
        missing(name, "install the system's package rabbitmq-server")
    return found


@contextmanager
def rabbit_server(
    *, management: bool = False, tls: bool = False, settings: Sequence[str] = (), advanced: str = ADVANCED
) -> Iterator[RabbitServer]:
    """A running server in a directory that goes with it."""
    with tempfile.TemporaryDirectory(prefix="babelgate-rabbitmq-", ignore_cleanup_errors=True) as directory:
        server = RabbitServer(Path(directory), management=management, tls=tls, settings=settings, advanced=advanced)
        try:
            server.start()
            yield server
        finally:
            server.close()


@contextmanager
def client(url: str) -> Iterator[BlockingChannel]:
    """A channel of another client library, as a foreign program or an operator would use; publishes are confirmed."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel
    finally:
        with contextlib.suppress(pika.exceptions.AMQPError):
            connection.close()


def count(url: str, queue: str) -> int:
    """How many messages are ready on ``queue``, which must exist."""
    with client(url) as channel:
        ready: int = channel.queue_declare(queue, passive=True).method.message_count
        return ready


def browse(url: str, queue: str) -> list[tuple[pika.BasicProperties, bytes]]:
    """All that is ready on ``queue``, oldest first, and put back; nothing where there is no such queue."""
    found: list[tuple[pika.BasicProperties, bytes]] = []
    with contextlib.suppress(pika.exceptions.ChannelClosedByBroker), client(url) as channel:
        while True:
            method, properties, body = channel.basic_get(queue)
            if method is None:
                break
            found.append((properties, body))
        # A quorum queue has it back only later, and keeps no more than 32 at once in order.
        for last in sorted({*range(32, len(found), 32), len(found)} - {0}):
            channel.basic_nack(last, multiple=True)
            deadline = time.monotonic() + 2
            while channel.queue_declare(queue, passive=True).method.message_count < last:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.002)
    return found


def declare(channel: BlockingChannel, topology: Topology) -> None:
    """What a foreign program would have to declare to share a queue with the gateway."""
    for exchange in topology.exchanges:
        channel.exchange_declare(exchange.name, exchange.kind, durable=True)
    for queue in topology.queues:
        # The gateway leaves out a limit of -1 before RabbitMQ 4, where it would mean: at once.
        version = channel.connection._impl.server_properties["version"]
        arguments = {
            k: v for k, v in queue.arguments.items() if not (version < "4" and (k, v) == ("x-delivery-limit", -1))
        }
        channel.queue_declare(queue.name, durable=True, arguments=arguments or None)
    for bound in topology.bindings:
        bind = channel.exchange_bind if bound.to_exchange else channel.queue_bind
        bind(bound.destination, bound.exchange, bound.routing_key)


@asynccontextmanager
async def binding(url: str, options: Mapping[str, Any] | None = None) -> AsyncIterator[RabbitBinding]:
    """An open binding, as one process has it."""
    from app.brokers.rabbitmq.binding import connect

    opened = connect("rabbit", url, options or {}, now_ms)
    try:
        await opened.open()
        yield opened
    finally:
        await opened.close()


class RabbitBroker(ServerBroker):
    """A server; ``queue_options`` are those of its routes."""

    kind = "rabbitmq"
    sample = "amqp://127.0.0.1/"
    name = "rabbit"
    untold = frozenset({"in_flight", "delayed"})
    purges_delayed = False
    server: RabbitServer

    def __init__(self, server: RabbitServer, queue_options: Mapping[str, Any] | None = None) -> None:
        super().__init__(server, queue_options)
        self.header_options = self.queue_options

    @staticmethod
    def serve(directory: Path, *, durable: bool = False) -> AbstractContextManager[RabbitServer]:
        return rabbit_server()

    async def kill(self) -> None:
        await asyncio.to_thread(self.server.settle_down)
        self.server.kill()
        await asyncio.to_thread(self.server.start)

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        """The broker ends, with its connections and ports, and its virtual machine waits: that starts in a third of the
        time."""
        await asyncio.to_thread(self.server.ctl, "stop_app")
        try:
            yield
        finally:
            await asyncio.to_thread(self.server.ctl, "start_app")

    async def inject(self, queue: str, *bodies: bytes) -> None:
        await asyncio.to_thread(self._inject, queue, bodies)

    def _inject(self, queue: str, bodies: Sequence[bytes]) -> None:
        profile = queue_of(queue, self.queue_options).profile
        with client(self.url) as channel:
            declare(channel, profile.topology)
            for body in bodies:
                channel.basic_publish("", profile.queue, body, pika.BasicProperties(delivery_mode=2))

    async def dead(self, queue: str) -> Sequence[bytes]:
        profile = queue_of(queue, self.queue_options).profile
        return [body for _, body in await asyncio.to_thread(browse, self.url, profile.dead_queue)]


class OjsBroker(RabbitBroker):
    """A server, with routes whose messages are jobs."""

    async def dead(self, queue: str) -> Sequence[bytes]:
        """The records made of the jobs in the dead-letter queue."""
        profile = queue_of(queue, self.queue_options).profile
        records = []
        for found, body in await asyncio.to_thread(browse, self.url, profile.dead_queue):
            properties = Basic.Properties(found.content_type, headers=found.headers)
            records.append(profile.read_dead(NativeMessage(body, properties, "", "", False)).body)
        return records


_OJS = {"profile": "ojs"}
_QUORUM = {"queue_type": "quorum"}
VARIANTS = (
    Variant("rabbitmq", RabbitBroker, {}, "RabbitMQ"),
    Variant("rabbitmq-quorum", RabbitBroker, _QUORUM, lost_replies=False, replicas=False),
    Variant("rabbitmq-ojs", OjsBroker, _OJS, "RabbitMQ, OJS profile", lost_replies=False),
    Variant("rabbitmq-ojs-quorum", OjsBroker, _OJS | _QUORUM, lost_replies=False, replicas=False),
)
