"""Observation: events, logs, metrics, traces and the journal. The broker layer and all layers above may import it."""
