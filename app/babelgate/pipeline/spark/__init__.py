"""Starts Spark sessions and shows the progress of jobs. The jobs and ``cli`` import it."""
