"""Copies of jobs on other nodes: where they go, and when a producer hears that they suffice."""
