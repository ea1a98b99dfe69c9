"""Shared by bananaq's tests: daemons, stores, the semantics that all stores pass, and models."""
