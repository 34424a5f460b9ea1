"""The click commands of ``babelgate pipeline``. Only ``babelgate.cli`` and ``babelgate.demo`` import this package."""
