"""The event log of a node: what happens to jobs, as JSON lines in files that rotate.

The node passes events in batches through a pipe (``feed``, ``recorder``) to a separate process
(``python -m disque_trio.eventlog``: ``child``), which converts them to lines (``lines``) and
manages the files (``segments``, ``closing``). docs/eventlog.md describes the events.
"""
