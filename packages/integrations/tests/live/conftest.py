"""A node for the tests of frameworks, which keep connections until their process ends."""

from tests.support.live_helpers import session_node, shared_node

# Not the fixtures of the parent directory: one that is overridden here would have its own node.
__all__ = ["session_node", "shared_node"]
