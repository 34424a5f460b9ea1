"""The pages, one module for each with its routes. ``babelgate.console.site`` imports them."""

from babelgate.console.pages import overview, queues, signing_in

ROUTES = (*overview.ROUTES, *queues.ROUTES, *signing_in.ROUTES)
"""In the order of the navigation."""
