"""The store that keeps bananaq's events in a Redis."""
