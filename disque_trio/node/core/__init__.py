"""The state machine of a node: jobs, queues and time. It does no I/O and has no clock or
randomness of its own.

``node.Node`` puts it together. Whoever drives it (the server, a test, a simulator) passes in the
time and carries out the effects.
"""
