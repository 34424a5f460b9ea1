"""The pages, one module for each with its routes. ``babelgate.console.site`` imports them."""

from babelgate.console.pages import messages, overview, publishing, queue, queues, receiving, signing_in

ROUTES = (
    *overview.ROUTES,
    *queues.ROUTES,
    *queue.ROUTES,
    *messages.ROUTES,
    *publishing.ROUTES,
    *receiving.ROUTES,
    *signing_in.ROUTES,
)
"""In the order of the navigation."""
