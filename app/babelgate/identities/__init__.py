"""Callers by the signed tokens (JWT) of issuers. Verifies a token once, and remembers its caller until it ends.

:mod:`babelgate.server` builds it from the settings, and the HTTP layer asks it about tokens that it does not know.
"""
