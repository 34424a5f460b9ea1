"""The server process: uvicorn, start-up checks, and the wiring of all parts. ``app.cli`` and ``app.demo`` import it."""
