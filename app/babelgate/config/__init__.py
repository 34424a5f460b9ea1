"""The settings, from YAML, environment and command line. ``babelgate.server``, ``babelgate.cli`` and ``babelgate.demo``
import them."""
