"""Jobs on Spark over what passed through the gateway: bodies are validated, journals become answers and repairs.

Of the gateway only the codec and the journal's record are used here, imported unchanged. Modules named ``cli`` hold
options and nothing else, so that ``--help`` loads neither Spark nor Arrow. What runs in Spark's Python workers stands
in modules of its own, which import neither the command line nor Spark: an executor needs Python, pyarrow and msgspec.
"""
