"""The settings, from YAML, environment and command line. ``app.server`` and ``app.cli`` import them."""
