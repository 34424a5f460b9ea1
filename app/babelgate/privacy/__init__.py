"""What people may see of bodies, and what a disk may: redaction by JSON pointers, and bodies encrypted at rest.

Pure: nothing here knows a queue or a broker. The gateway, the journal, bindings with files of their own, and the
configuration import it.
"""
