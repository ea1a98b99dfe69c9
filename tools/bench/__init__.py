"""The benchmark: what a command costs a node, beside redis-server doing the same job.

``python -m tools.bench --help`` is the way in; docs/performance.md explains the figures.
"""
