"""Observation: events, logs, metrics, traces and the journal. The broker layer and all layers above may import it."""

import sys

# structlog loads rich (5 MiB, 0.1 s) where it is installed, for tracebacks that no log line has. A module that is None
# cannot be imported.
if "rich" not in sys.modules:
    sys.modules["rich"] = None  # type: ignore[assignment]
    import structlog as structlog

    del sys.modules["rich"]
