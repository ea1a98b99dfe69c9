"""The state machine of a node: jobs, queues and time. It does no I/O and has no clock or
randomness of its own.

``node.Node`` puts it together; each folder needs only those below it (docs/design.md draws them).
Whoever drives the node (the server, a test, a simulator) passes in the time and carries out the
effects.
"""
