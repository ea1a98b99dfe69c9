"""Cluster membership: which nodes belong to it, which are alive, and how they find each other."""
