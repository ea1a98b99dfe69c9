"""A node for the tests of frameworks, which keep connections until their process ends."""

from tests.support.live_helpers import session_node, shared_node
from tests.support.tls_front import certificates

__all__ = ["certificates", "session_node", "shared_node"]
