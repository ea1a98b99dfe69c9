"""What the store in a Redis does, as every store of events."""

from tests.support.banana_semantics import *  # noqa: F403
