"""The command ``babelgate``. Only ``app.__main__`` imports it."""
