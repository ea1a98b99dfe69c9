"""Measures a node during development: beside redis-server and C Disque, and against its own past.

Start with ``python -m tools.bench --help``; docs/performance.md explains the figures. Comparisons
with other queues, and all that is measured seldom, are in ``benchmarks``.
"""
