"""Datasets, schemas, input files and locks.

Every package of the pipeline may import it; it imports none of them.
"""
