"""The event log of a node: what happens to jobs, as JSON lines in files that rotate.

The node hands events in batches through a pipe (``feed``, ``recorder``) to a process of its own
(``python -m disque_trio.eventlog``: ``child``), which makes lines of them (``lines``) and keeps the
files (``segments``, ``closing``). docs/eventlog.md tells what is in them.
"""
