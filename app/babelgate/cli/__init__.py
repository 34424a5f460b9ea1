"""The command ``babelgate``. ``babelgate.__main__`` and ``babelgate.demo`` import it."""
