"""The journal: a record of every event of every message, as files.

The gateway's gauges and the server import it; readers such as the pipeline import only ``record``.
"""
