"""disque-trio: a distributed job queue that speaks the Redis protocol."""

from disque_trio.version import VERSION as __version__

__all__ = ["__version__"]
