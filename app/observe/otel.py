"""What OpenTelemetry's standard variables ask for: exporters, and the resource that all signals tell of.

The variables and their defaults: https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/.
One default is not the standard's: nothing is sent unless a variable names an exporter or an endpoint, because a
collector that nobody runs would cost every process a thread and a line in the log for each attempt.
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

from app import __version__
from app.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

Signal = Literal["traces", "metrics"]

FLUSH_SECONDS = 3.0
"""What is left unsent at the end of a process may take so long; then it is lost."""

_KNOWN = ("otlp", "console", "none")
_PROTOCOLS = {"http/protobuf": "http", "grpc": "grpc"}
_MODULES = {"traces": "trace_exporter", "metrics": "metric_exporter"}
_CLASSES = {"traces": "OTLPSpanExporter", "metrics": "OTLPMetricExporter"}


def exporters_for(signal: Signal, environ: Mapping[str, str] = os.environ) -> list[str]:
    """The exporters for ``signal``, each ``otlp`` or ``console``; none: it is off.

    Raises ConfigError, which names the variable, for one that is unknown or whose packages are not installed.
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
    """The OTLP exporter for ``signal``, which reads the variables of its own. Raises ConfigError."""
    with as_config_errors("OTEL_EXPORTER_OTLP_…"):
        return _exporter_class(signal, f"OTEL_{signal.upper()}_EXPORTER", environ)()


@contextlib.contextmanager
def as_config_errors(variable: str) -> Iterator[None]:
    """Raise what the SDK refuses of its variables as ConfigError, naming the one in its text, else ``variable``."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        # Whatever its class: those of the gRPC exporter have no ancestor of their own.
        named = re.search(r"OTEL_[A-Z_]+", str(error))
        raise ConfigError(key=named[0] if named else variable, reason=str(error).rstrip(".")) from None


def resource(environ: Mapping[str, str] = os.environ) -> Resource:
    """What tells this process from others: ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES`` win over our own."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    own = {"service.name": "babelgate", "service.version": __version__, "service.instance.id": str(uuid.uuid4())}
    return Resource.create({**own, **OTELResourceDetector().detect().attributes})


async def bounded(shutdown: Callable[[], object], seconds: float = FLUSH_SECONDS) -> None:
    """Run ``shutdown``, which may block, for at most ``seconds``: a collector that hangs does not keep the process."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def run() -> None:
        try:
            shutdown()
        finally:
            with contextlib.suppress(RuntimeError):  # who waited is gone, and its loop with it
                loop.call_soon_threadsafe(done.set)

    # A thread of an executor would be waited for at the end of the process.
    threading.Thread(target=run, name="otel-shutdown", daemon=True).start()
    try:
        async with asyncio.timeout(seconds):
            await done.wait()
    except TimeoutError:
        return


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
        raise ConfigError(key=variable, reason="OTLP is not installed: pip install 'babelgate[otlp]'") from None
    return getattr(module, _CLASSES[signal])
