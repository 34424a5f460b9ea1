"""The Binding protocol, the kit that all bindings share, and one package for each kind of broker.

``babelgate.leases`` and the packages above it may import the modules of this package; nothing outside imports a
binding's.
"""
