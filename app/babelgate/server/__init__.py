"""The server process: uvicorn, start-up checks, and the wiring of all parts. ``babelgate.cli`` and ``babelgate.demo``
import it."""
