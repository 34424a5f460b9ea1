"""Datasets as Delta Lake tables: their logs over the files of the current runs, and views for DuckDB.

The commands import it. It reads manifests through Arrow, and needs no Spark.
"""
