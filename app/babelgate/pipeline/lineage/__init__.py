"""OpenLineage events of the jobs: what each run read and wrote, sent by the official client.

The commands import it. It imports the client only where OpenLineage is configured, and no Spark.
"""
