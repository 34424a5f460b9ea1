"""Metrics: the catalogue, the instruments of one process and their export. The gateway and layers above import it."""
