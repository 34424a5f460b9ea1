"""Sends stored bodies to a gateway, each once, and keeps a ledger of them. ``source`` and ``cli`` import it."""
