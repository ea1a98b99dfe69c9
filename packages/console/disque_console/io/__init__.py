"""Talks to the nodes, and writes the audit."""
