"""The command ``babelgate``. ``app.__main__`` and ``app.demo`` import it."""
