"""Asks the nodes, and writes down who did what."""
