"""A demonstration of the pipeline with one day of a made-up shop: ``python -m app.demo``. Nothing imports it."""
