"""Finds one message or trace in the ingested journal and prints it. Only ``cli`` imports this package."""
