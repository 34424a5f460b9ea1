"""The console: pages for people, made on the server and served at ``/console``. It calls the gateway's own operations
with the rights of its user. ``babelgate.server`` imports it."""
