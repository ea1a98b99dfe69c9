"""Benchmarks: the cost of commands and jobs, compared with redis-server and others.

Start with ``python -m tools.bench --help``; docs/performance.md explains the figures.
"""
