"""The leases of a queue, wherever they are kept: by its broker, or by this process for deliveries of a connection.

``babelgate.gateway`` may import ``factory``, ``manager`` and ``table``: it sees one :class:`LeaseManager
<babelgate.leases.manager.LeaseManager>`, and does not ask which kind.
"""
