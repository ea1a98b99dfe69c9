"""A node for the tests of frameworks, which keep connections for as long as their process lives."""

from tests.support.live_helpers import session_node, shared_node

# Not those of the folder above: a fixture that is found here, too, has a node of its own.
__all__ = ["session_node", "shared_node"]
