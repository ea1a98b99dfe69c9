"""Shared by the tests of integrations: programs of the frameworks, databases, and spans."""
