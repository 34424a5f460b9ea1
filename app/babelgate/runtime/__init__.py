"""Process helpers without domain knowledge: turns of the event loop, background tasks, back-off, files and locks.

Every package but ``babelgate.errors``, ``babelgate.clock``, ``babelgate.jsontext``, ``babelgate.masking`` and
``babelgate.pipeline`` may import it.
"""
