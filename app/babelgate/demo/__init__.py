"""A demonstration of the pipeline with one day of a made-up shop: ``python -m babelgate.demo``. Nothing imports it."""
