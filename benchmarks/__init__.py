"""Compares with other queues, frameworks and brokers, and measures what seldom changes.

Start with ``python -m benchmarks --help``; README.md says what is needed.
"""
