"""The click commands of ``babelgate pipeline``. Only ``app.cli`` and ``app.demo`` import this package."""
