"""What all pages of a process share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from babelgate.console.files import Assets
from babelgate.console.rendering import Templates
from babelgate.console.sessions import Sessions
from babelgate.gateway.gateway import Gateway
from babelgate.http.auth import Auth
from babelgate.http.body import RequestLimits
from babelgate.push.pushes import Pushes
from babelgate.tokens.tokens import Tokens


class ConsoleFrame:
    """``menu``: the address and the text of each link in the navigation."""

    def __init__(
        self,
        gateway: Gateway,
        auth: Auth,
        limits: RequestLimits,
        sessions: Sessions,
        *,
        prefix: str = "",
        read_only: bool = False,
        trace_url: str | None = None,
        report: Path | None = None,
        pushes: Pushes | None = None,
        tokens: Tokens | None = None,
    ) -> None:
        """``prefix``: the path prefix that browsers see before ``/console``. ``read_only``: nothing can be changed.
        ``trace_url``: the address of a trace in another program, with ``{trace_id}``. ``report`` None: there is
        no page of the pipeline's report, else its file. ``pushes`` None: there are no pages of pushes. ``tokens`` None:
        there is no page of tokens."""
        self.gateway = gateway
        self.auth = auth
        self.limits = limits
        self.sessions = sessions
        self.prefix = prefix.rstrip("/")
        self.read_only = read_only
        self.trace_url = trace_url
        self.report = report
        self.pushes = pushes
        self.tokens = tokens
        self.menu: Sequence[tuple[str, str]] = ()
        self.assets = Assets()
        self.templates = Templates()

    @property
    def has_sign_in(self) -> bool:
        """Whether users sign in with a token."""
        return self.auth.callers is not None
