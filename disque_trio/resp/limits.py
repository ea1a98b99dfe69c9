"""Limits for what a client may send."""

from typing import Final

MAX_ARGS: Final = 1024 * 1024
MAX_BULK: Final = 512 * 1024 * 1024
MAX_INLINE: Final = 64 * 1024
MAX_QUERY: Final = 1024 * 1024 * 1024

# Limits for a client that has not authenticated, so that strangers cannot make the node hold much
# (Redis has the same).
UNAUTHENTICATED_MAX_ARGS: Final = 10
UNAUTHENTICATED_MAX_BULK: Final = 16 * 1024

PLAIN_LINE: Final = 11  # bytes of the longest line with a count or length, without its line end,
# that the fast path takes
