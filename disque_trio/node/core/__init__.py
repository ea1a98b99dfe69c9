"""The state machine of a node: jobs, queues and time. No I/O, no clock, no randomness of its own.

``node.Node`` is the whole; whoever drives it (the server, a test, a simulator) passes the time
in and carries the effects out.
"""
