"""Ingests, compacts and reads the journal.

The packages ``metrics``, ``report``, ``send``, ``find``, ``source`` and ``cli`` import it.
"""
