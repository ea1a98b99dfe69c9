"""What a client may send."""

from typing import Final

MAX_ARGS: Final = 1024 * 1024
MAX_BULK: Final = 512 * 1024 * 1024
MAX_INLINE: Final = 64 * 1024
MAX_QUERY: Final = 1024 * 1024 * 1024

# What a client may send before it has given the password, so that strangers cannot make the
# node hold much (the numbers are Redis's).
UNAUTHENTICATED_MAX_ARGS: Final = 10
UNAUTHENTICATED_MAX_BULK: Final = 16 * 1024

PLAIN_LINE: Final = 11  # bytes of the longest line with a count or length, without its end, that
# is cut without care
