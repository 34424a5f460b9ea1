"""Streams over HTTP: the path ``messages:stream``, and the forms in which it sends events. Imported by the server."""
