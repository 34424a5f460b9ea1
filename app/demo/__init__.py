"""A day in the life of a shop, to see what the pipeline makes of it: ``python -m app.demo``."""
