"""Fixtures of the tests that start real processes."""

from tests.support.live_helpers import session_node, shared_node, talk
from tests.support.redis_server import redis_port
from tests.support.tls_front import certificates

__all__ = ["certificates", "redis_port", "session_node", "shared_node", "talk"]
