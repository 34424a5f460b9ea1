"""The settings, from YAML, environment and command line. ``app.server``, ``app.cli`` and ``app.demo`` import them."""
