"""Tokens that the gateway makes: bearer tokens with an end, which calls make, rotate and revoke.

They are beside those of the configuration, and known to all processes that share a ``state_dir`` or are peers. Imported
by the calls between peers, which carry them, by the API and by what serves.
"""
