"""Computes counts, rates, latencies and message lifecycles.

The packages ``report``, ``find`` and ``cli`` import it.
"""
