"""DuckDB in place of Spark, for small local lakes. It reads the same files, as the same manifests name them."""
