"""A real RabbitMQ server: one for a test session, or one of a test's own that it may kill, alarm and reconfigure."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import psutil

from tests.harness.ci import missing
from tests.harness.local import certify, free_ports, suspend

_APP_SECONDS = 20
"""After this time without a connection the broker is stopped and started again, in its virtual machine."""
_READY_SECONDS = 240.0
_STOP_SECONDS = 120.0
_WATERMARK = "800MiB"
# Debian's programs in /usr/sbin change the user and the directory; those that they call do not.
_PROGRAMS = ("/usr/lib/rabbitmq/bin", "/usr/local/sbin", "/opt/homebrew/sbin")
_ERLANG_PATH = f"{os.environ.get('PATH', '')}:/usr/lib/erlang/bin"
_OWN_PLUGINS = ("rabbitmq_prelaunch-", "rabbitmq_management-", "rabbitmq_management_agent-", "rabbitmq_web_dispatch-")
_ACTOR = '<<"tests">>'
# Idle schedulers sleep, because several servers share the cores: https://www.rabbitmq.com/docs/runtime#busy-waiting
# Modules are loaded when they are called, which takes a quarter off a start.
_ERLANG = (
    "+P 1048576 +t 5000000 +stbt db +zdbbl 128000 +S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none"
    " -mode interactive -kernel inet_dist_use_interface {127,0,0,1}"
)

# A message that moves to the next delay queue while that one still starts gets no confirm. The server then tries again
# after two seconds instead of three minutes. The management plugin reads statistics every second instead of every five.
_ADVANCED = """[
    {rabbit, [{dead_letter_worker_publisher_confirm_timeout, 2000}]},
    {rabbitmq_management_agent, [
        {sample_retention_policies, [{global, [{60, 1}]}, {basic, [{60, 1}]}, {detailed, [{60, 1}]}]}
    ]}
].
"""

# RabbitMQ 4 reads some settings at its start alone, and keeps them in persistent terms.
_CONFIGURE = (
    "lists:foreach(fun({{Name, {{ok, Value}}}}) -> application:set_env(rabbit, Name, Value),"
    " [persistent_term:put(Name, Value) || persistent_term:get(Name, none) =/= none];"
    " ({{Name, undefined}}) -> application:unset_env(rabbit, Name) end, {})"
)


class RabbitServer:
    """A ``rabbitmq-server`` on a directory, ports and an epmd of its own; the user is ``guest``.

    It has a second listener with TLS, whose certificate for 127.0.0.1 is signed by ``ca_file``.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port, self.tls_port, self._management_port, distribution, epmd = free_ports(5)
        self.ca_file = directory / "ca.crt"
        self._process: subprocess.Popen[bytes] | None = None
        lines = [
            f"listeners.tcp.1 = 127.0.0.1:{self.port}",
            f"listeners.ssl.1 = 127.0.0.1:{self.tls_port}",
            f"ssl_options.cacertfile = {self.ca_file}",
            f"ssl_options.certfile = {directory}/server.crt",
            f"ssl_options.keyfile = {directory}/server.key",
            "ssl_options.verify = verify_none",
            "ssl_options.fail_if_no_peer_cert = false",
            "management.tcp.ip = 127.0.0.1",
            f"management.tcp.port = {self._management_port}",
            "loopback_users = none",
            f"vm_memory_high_watermark.absolute = {_WATERMARK}",
            "disk_free_limit.absolute = 50MB",
            *("log.console = true", "log.console.level = warning", "log.file = false"),
        ]
        (directory / "rabbitmq.conf").write_text("".join(f"{line}\n" for line in lines))
        (directory / "advanced.config").write_text(_ADVANCED)
        self._enable()
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
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._plugins),
            "RABBITMQ_PLUGINS_DIR": str(self._offered_plugins),
            "RABBITMQ_PID_FILE": str(directory / "pid"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(directory / "generated"),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_SERVER_ERL_ARGS": _ERLANG,
            "ERL_EPMD_PORT": str(epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }

    def __getstate__(self) -> Mapping[str, Any]:
        """The server for another process, which uses it and does not end it."""
        return vars(self) | {"_process": None}

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
        return f"http://127.0.0.1:{self._management_port}"

    @property
    def _plugins(self) -> Path:
        return self.directory / "enabled_plugins"

    def _enable(self, *plugins: str) -> None:
        self._plugins.write_text(f"[{', '.join(plugins)}].")

    @property
    def _offered_plugins(self) -> Path:
        return self.directory / "plugins"

    def _prepare(self) -> None:
        """Make the certificate, and a directory of the plugins that the server and its management need.

        At each start the server reads what every plugin of its directory says of itself, which takes a fifth of the
        time if all are there.
        """
        certify(self.directory)
        self._offered_plugins.mkdir()
        for plugin in (Path(_program("rabbitmq-server")).resolve().parent.parent / "plugins").iterdir():
            if not plugin.name.startswith("rabbitmq_") or plugin.name.startswith(_OWN_PLUGINS):
                (self._offered_plugins / plugin.name).symlink_to(plugin)

    def start(self) -> None:
        """Start on what the directory holds; returns when the server takes connections."""
        if not self._offered_plugins.exists():
            self._prepare()
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
            self.start_app()

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
        epmd = shutil.which("epmd", path=_ERLANG_PATH)
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
        self.evaluate("mnesia:sync_log(), [dets:sync(Table) || Table <- dets:all()]")

    def stop_app(self) -> None:
        """End the broker, its connections and ports, as ``rabbitmqctl stop_app`` does; the virtual machine stays."""
        self.evaluate("ok = rabbit:stop()")

    def start_app(self) -> None:
        """Start the broker again, which takes a fifth of the time of a virtual machine; returns when it takes
        connections. A start beside the end of a stop may be one that listens on no port."""
        deadline = time.monotonic() + _READY_SECONDS
        while True:
            self.evaluate("ok = rabbit:start()")
            again = time.monotonic() + _APP_SECONDS
            while time.monotonic() < again:
                if self.answers():
                    return
                time.sleep(0.02)
            if not self.is_running or time.monotonic() > deadline:
                raise RuntimeError(f"the broker did not start:\n{self._log.read_text('utf-8', 'replace')[-3000:]}")
            self.stop_app()

    def add_vhost(self, name: str) -> None:
        """Make a virtual host in which ``guest`` may do everything."""
        self.evaluate(f"ok = rabbit_vhost:add({_binary(name)}, {_ACTOR})")
        self.permit("guest", name, ".*", ".*", ".*")

    def delete_vhost(self, name: str) -> None:
        """Delete a virtual host with all that is in it."""
        self.evaluate(f"rabbit_vhost:delete({_binary(name)}, {_ACTOR})")

    def delete_queues(self, prefix: str) -> None:
        """Delete the queues of the virtual host ``/`` whose names begin so; one that cannot be deleted stays."""
        named = f"<<{_text(prefix)}, _/binary>> <- [element(4, amqqueue:get_name(Queue))]"
        deletion = f"(catch rabbit_amqqueue:delete(Queue, false, false, {_ACTOR}))"
        self.evaluate(f'length([{deletion} || Queue <- rabbit_amqqueue:list(<<"/">>), {named}])')

    def add_user(self, name: str, password: str) -> None:
        """Make a user without permissions."""
        self.evaluate(f"ok = rabbit_auth_backend_internal:add_user({_binary(name)}, {_binary(password)}, {_ACTOR})")

    def delete_user(self, name: str) -> None:
        """Delete a user."""
        self.evaluate(f"ok = rabbit_auth_backend_internal:delete_user({_binary(name)}, {_ACTOR})")

    def permit(self, user: str, vhost: str, configure: str, write: str, read: str) -> None:
        """Set the permissions of a user in a virtual host, each as a regular expression."""
        given = ", ".join(_binary(each) for each in (user, vhost, configure, write, read))
        self.evaluate(f"ok = rabbit_auth_backend_internal:set_permissions({given}, {_ACTOR})")

    def set_policy(self, name: str, pattern: str, definition: str) -> None:
        """Set a policy of queues in the virtual host ``/``; ``definition`` is JSON."""
        given = ", ".join(_binary(each) for each in ("/", name, pattern, definition, "0", "queues"))
        self.evaluate(f"ok = rabbit_policy:parse_set({given}, {_ACTOR})")

    @contextmanager
    def configured(self, **settings: int) -> Iterator[None]:
        """While it lasts these settings of the application ``rabbit`` have other values.

        Only those take effect that RabbitMQ reads for each new connection or channel.
        """
        before = [f"{{{name}, application:get_env(rabbit, {name})}}" for name in settings]
        kept = self.evaluate(f"[{', '.join(before)}]")
        given = ", ".join(f"{{{name}, {{ok, {value}}}}}" for name, value in settings.items())
        self.evaluate(_CONFIGURE.format(f"[{given}]"))
        try:
            yield
        finally:
            self.evaluate(_CONFIGURE.format(kept))

    @contextmanager
    def management(self) -> Iterator[None]:
        """While it lasts the management plugin runs, with statistics that are about a second late.

        That takes a tenth of the time of a server with the plugin, which would also take seconds to stop.
        """
        ensure = f'{{ok, _, _}} = rabbit_plugins:ensure("{self._plugins}")'
        with self.configured(collect_statistics_interval=200, quorum_tick_interval=200):
            self._enable("rabbitmq_management")
            # The server takes connections a moment before it takes plugins.
            self.evaluate(f"ok = rabbit:await_startup(), {ensure}")
            try:
                yield
            finally:
                self._enable()
                self.evaluate(ensure)

    def evaluate(self, expression: str) -> str:
        """What an Erlang expression gives in the virtual machine, as Erlang writes it.

        ``erl_call`` belongs to Erlang and takes ten milliseconds; where it is missing, ``rabbitmqctl`` starts a virtual
        machine for each call.
        """
        erl_call = shutil.which("erl_call", path=_ERLANG_PATH)
        if erl_call is None:
            return self.ctl("eval", f"{expression}.")
        # The server refuses a caller with the name of one that it still takes to be connected.
        command = [erl_call, "-h", f"call{uuid4().hex}", "-sname", self._environ["RABBITMQ_NODENAME"], "-e"]
        told = subprocess.run(command, env=self._environ, input=f"{expression}.\n", capture_output=True, text=True)
        answer = told.stdout.strip()
        if told.returncode or not (answer.startswith("{ok,") and answer.endswith("}")):
            raise RuntimeError(f"{expression} failed: {answer}{told.stderr}")
        return answer.removeprefix("{ok,").removesuffix("}").strip()

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
        found = f'{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, {_binary(queue)}))'
        return self.evaluate(f"{found}, Pid = amqqueue:get_pid(Q), {expression}")

    @contextmanager
    def alarm(self) -> Iterator[None]:
        """While it lasts the memory alarm is on: connections that publish are blocked."""
        limit = 'ok = vm_memory_monitor:set_vm_memory_high_watermark({{absolute, "{}"}})'
        # The process that tells the connections answers a call after it has told them.
        self.evaluate(f"{limit.format('1MiB')}, [_ | _] = rabbit_alarm:get_alarms()")
        try:
            yield
        finally:
            self.evaluate(limit.format(_WATERMARK))

    def answers(self) -> bool:
        """Whether it starts the protocol, with a frame of a method; it listens before it does. TLS comes last."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as probe:
                probe.settimeout(2)
                probe.sendall(b"AMQP\x00\x00\x09\x01")
                if probe.recv(1) != b"\x01":
                    return False
            socket.create_connection(("127.0.0.1", self.tls_port), 1).close()
            return True
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


def _path(vhost: str) -> str:
    return "" if vhost == "/" else quote(vhost, safe="")


def _text(text: str) -> str:
    """A text in the syntax of Erlang's binaries, written in ASCII."""
    escaped = (each if each.isascii() and each not in '"\\' else f"\\x{{{ord(each):x}}}" for each in text)
    return f'"{"".join(escaped)}"/utf8'


def _binary(text: str) -> str:
    """A text as an Erlang binary."""
    return f"<<{_text(text)}>>"


def _program(name: str) -> str:
    found = shutil.which(name, path=os.pathsep.join((*_PROGRAMS, os.environ.get("PATH", ""))))
    if found is None:
        missing(name, "install the system's package rabbitmq-server")
    return found


@contextmanager
def rabbit_server() -> Iterator[RabbitServer]:
    """A running server in a directory that goes with it."""
    with tempfile.TemporaryDirectory(prefix="babelgate-rabbitmq-", ignore_cleanup_errors=True) as directory:
        server = RabbitServer(Path(directory))
        try:
            server.start()
            yield server
        finally:
            server.close()
