"""Process helpers without domain knowledge: turns of the event loop, background tasks, back-off, files and locks.

Every package but ``app.errors``, ``app.clock``, ``app.jsontext``, ``app.masking`` and ``app.pipeline`` may import it.
"""
