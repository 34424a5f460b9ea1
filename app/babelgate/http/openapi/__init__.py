"""The OpenAPI document. ``parts/`` has its words, examples and hand-written schemas as YAML; the modules here put them
together with what the code declares: routes, parameters, classes of bodies, and problems. Only ``http`` imports it.
"""
