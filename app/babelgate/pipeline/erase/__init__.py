"""Erases bodies of messages from the lake. The commands import it. It needs no Spark."""
