"""JSON Schemas of jobs: reads a directory of them, refuses what could stall a process, and checks data.

Every package above the envelope may import it. No HTTP, no broker, no event loop.
"""
