"""Creates exporters and the resource from OpenTelemetry's standard environment variables.

The variables and their defaults: https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/.
One default differs from the standard: nothing is sent unless a variable names an exporter or an endpoint. A missing
collector would cost every process a thread, and a log line for each attempt.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from babelgate import __version__
from babelgate.errors import ConfigError
from babelgate.extras import how_to_install

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

Signal = Literal["traces", "metrics"]

FLUSH_SECONDS = 3.0
"""Maximum time to send remaining data at the end of a process; after that the data is lost."""

_KNOWN = ("otlp", "console", "none")
_PROTOCOLS = {"http/protobuf": "http", "grpc": "grpc"}
_MODULES = {"traces": "trace_exporter", "metrics": "metric_exporter"}
_CLASSES = {"traces": "OTLPSpanExporter", "metrics": "OTLPMetricExporter"}


def exporters_for(signal: Signal, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the exporters for ``signal``, each ``otlp`` or ``console``; an empty list means off.

    Raises ConfigError naming the variable, if an exporter is unknown or its packages are not installed.
    """
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    variable = f"OTEL_{signal.upper()}_EXPORTER"
    given = environ.get(variable, "").strip()
    if not given:
        endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
        variable = next((name for name in endpoints if environ.get(name, "").strip()), "")
        given = "otlp" if variable else "none"
    names = list(dict.fromkeys(name.strip() for name in given.split(",") if name.strip()))
    for name in names:
        if name not in _KNOWN:
            raise ConfigError(key=variable, reason=f"must be one of {', '.join(_KNOWN)}")
    wanted = [name for name in names if name != "none"]
    if "otlp" in wanted:
        _exporter_class(signal, variable, environ)
    return wanted


def otlp_exporter(signal: Signal, environ: Mapping[str, str] = os.environ) -> Any:
    """Return the OTLP exporter for ``signal``, which reads its own variables. Raises ConfigError."""
    with as_config_errors("OTEL_EXPORTER_OTLP_…"):
        return _exporter_class(signal, f"OTEL_{signal.upper()}_EXPORTER", environ)()


@contextlib.contextmanager
def as_config_errors(variable: str) -> Iterator[None]:
    """Translate errors of the SDK to ConfigError, naming the variable in the error's text, else ``variable``."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        # Any class: the errors of the gRPC exporter have no common base class.
        named = re.search(r"OTEL_[A-Z_]+", str(error))
        raise ConfigError(key=named[0] if named else variable, reason=str(error).rstrip(".")) from None


def resource(environ: Mapping[str, str] = os.environ) -> Resource:
    """Return the attributes of this process; ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES`` override them."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    own = {"service.name": "babelgate", "service.version": __version__, "service.instance.id": str(uuid.uuid4())}
    return Resource.create({**own, **OTELResourceDetector().detect().attributes})


async def bounded(shutdown: Callable[[], object], seconds: float = FLUSH_SECONDS) -> bool:
    """Run the blocking ``shutdown`` for at most ``seconds``, so that a hanging collector cannot keep the process.

    Returns whether it has ended.
    """
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def run() -> None:
        try:
            shutdown()
        finally:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(done.set)

    # The interpreter waits for the threads of an executor at exit, but not for a daemon thread.
    threading.Thread(target=run, name="otel-shutdown", daemon=True).start()
    try:
        async with asyncio.timeout(seconds):
            await done.wait()
    except TimeoutError:
        return False
    return True


def _exporter_class(signal: Signal, variable: str, environ: Mapping[str, str]) -> Any:
    for name in (f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        protocol = environ.get(name, "").strip()
        if protocol:
            break
    package = _PROTOCOLS.get(protocol or "http/protobuf")
    if package is None:
        raise ConfigError(key=name, reason=f"must be one of {', '.join(_PROTOCOLS)}")
    try:
        module = importlib.import_module(f"opentelemetry.exporter.otlp.proto.{package}.{_MODULES[signal]}")
    except ModuleNotFoundError:
        reason = f"OTLP is not installed: {how_to_install('otlp')}"
        raise ConfigError(key=variable, reason=reason, extra="otlp") from None
    return getattr(module, _CLASSES[signal])
