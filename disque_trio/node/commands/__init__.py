"""The commands: one module a family, and the table that names them all.

A handler takes the node, the client and all arguments (the name first; arity was checked) and
puts its reply on ``client.out``, or raises ``CommandError``. No I/O.
"""
