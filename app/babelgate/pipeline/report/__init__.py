"""Renders the measured datasets as HTML, JSON or CSV. Only ``cli`` imports this package."""
