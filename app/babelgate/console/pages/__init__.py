"""The pages, one module for each with its routes. ``babelgate.console.site`` imports them."""

from babelgate.console.pages import (
    dead_letters,
    find,
    letter,
    messages,
    overview,
    pausing,
    publishing,
    pushing,
    queue,
    queues,
    receiving,
    redrives,
    report,
    signing_in,
    tokens,
)

ROUTES = (
    *overview.ROUTES,
    *queues.ROUTES,
    *queue.ROUTES,
    *pausing.ROUTES,
    *messages.ROUTES,
    *publishing.ROUTES,
    *receiving.ROUTES,
    *pushing.ROUTES,
    *dead_letters.ROUTES,
    *redrives.ROUTES,
    *letter.ROUTES,
    *find.ROUTES,
    *report.ROUTES,
    *tokens.ROUTES,
    *signing_in.ROUTES,
)
"""In the order of the navigation."""
