"""Pushes: each message of a queue is posted to a webhook, and settled by the answer.

A caller of the gateway like the HTTP API: it receives, extends and settles, and has no engine of its own. Imported by
the configuration, which describes targets, and by what serves.
"""
