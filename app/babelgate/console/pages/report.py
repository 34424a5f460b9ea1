"""The report of the pipeline: one page that ``babelgate pipeline report`` has made, as it is."""

from __future__ import annotations

import asyncio
from pathlib import Path

from babelgate.console.answers import HTML, PageAnswer
from babelgate.console.routes import PageRoute
from babelgate.console.visits import REPORT, ROOT, Visit
from babelgate.errors import Forbidden
from babelgate.http.problems import NotFound

MAX_BYTES = 33_554_432
"""Largest report that is shown. It is in memory while it is sent."""
_POLICY = b"default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
"""The report has its styles in it, and no scripts."""


async def show(visit: Visit) -> PageAnswer:
    """The file, with figures of all queues. Raises Forbidden, NotFound."""
    path = visit.frame.report
    if path is None:
        raise NotFound(f"{ROOT}/{REPORT}", "Set `console.report` to the file of the report.")
    if not visit.sees_all_queues:
        raise Forbidden(reason="The report needs the right 'observe' or 'manage' on the queues '*'.")
    body = await asyncio.to_thread(_read, path)
    return PageAnswer(200, body, HTML, [(b"content-security-policy", _POLICY)])


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            body = file.read(MAX_BYTES + 1)
    except OSError as error:
        hint = f"There is no report yet: {path}: {error.strerror}. `babelgate pipeline report` makes it."
        raise NotFound(f"{ROOT}/{REPORT}", hint) from None
    if len(body) > MAX_BYTES:
        hint = f"The report has more than {MAX_BYTES} bytes. Make one of fewer days by --from."
        raise NotFound(f"{ROOT}/{REPORT}", hint)
    return body


ROUTES = (PageRoute(method="GET", path=REPORT, handler=show, menu="Report"),)
