"""Shared by pressure's tests: keys as other clients see them, and processes that are killed."""
