"""Spark jobs over messages that passed through the gateway: validate bodies, measure the journal, send bodies again.

Packages, each importing only earlier ones: ``storage`` and ``spark``; ``validate`` and ``journal``; ``metrics`` and
``send``; ``report``, ``find`` and ``source``; ``lineage``; ``cli``. ``babelgate.cli`` and ``babelgate.demo`` import
this package. It uses the gateway's codec and the journal's record format, nothing else.

``cli`` loads neither Spark nor Arrow at import, so that ``--help`` is fast. Modules that Spark's Python workers import
load neither click nor rich, so an executor needs only Python, pyarrow and msgspec (httpx for jobs that send).
"""
