"""The audit trail: who managed what, who was refused, and who signed in, as chained JSON lines.

The gateway notes facts in it, ``http`` and ``console`` record requests, ``server`` builds it, and ``cli`` checks it.
"""
