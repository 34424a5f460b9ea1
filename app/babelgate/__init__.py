"""babelgate: one HTTP service in front of every message broker."""

__version__ = "0.2.0"
