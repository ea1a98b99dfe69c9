"""The commands: one module per family, and the table that lists them all.

A handler takes the node, the client and all arguments (the name first; the arity is already
checked). It appends its reply to ``client.out`` or raises ``CommandError``. It does no I/O.
"""
