"""What the engine asks of the program around it: settings, and connections to other nodes.

A program that is alone has `NoLinks`.
"""

import select
from collections.abc import Callable
from typing import Protocol

from disque_trio.config import OutputBufferLimit


class Limits(Protocol):
    """The settings that matter to those who serve clients."""

    max_commands_per_turn: int
    proto_max_bulk_len: int
    proto_inline_max_size: int
    client_query_buffer_limit: int
    client_output_buffer_limit: OutputBufferLimit
    requirepass: str
    protected_mode: bool
    timeout: int
    tcp_keepalive: int
    maxclients: int
    hz: int
    maxmemory: int
    slowlog_max_len: int
    slowlog_log_slower_than: int
    latency_monitor_threshold: int


class Members(Protocol):
    """Who else there is."""

    config_changed: bool


class Links(Protocol):
    """The connections to them."""

    @property
    def membership(self) -> Members: ...
    @property
    def broken(self) -> object:
        """Whether it is to be told of some that broke."""
        ...

    @property
    def dirty(self) -> object:
        """Whether something is to be sent."""
        ...

    @property
    def behind(self) -> object:
        """Whether something could not be sent yet."""
        ...

    def join(self, epoll: select.epoll, ask_turn: Callable[[], None]) -> None: ...
    def tell_broken(self, now: int) -> None: ...
    def handle(self, fd: int, mask: int, now: int) -> None: ...
    def stop_reading(self) -> None: ...
    def revoke(self) -> None: ...
    def flush(self) -> None: ...
    def close_all(self) -> None: ...


class NoLinks:
    """Of a program that is alone."""

    config_changed = False
    broken = dirty = behind = False

    @property
    def membership(self) -> Members:
        return self

    def join(self, epoll: select.epoll, ask_turn: Callable[[], None]) -> None:
        pass

    def tell_broken(self, now: int) -> None:
        pass

    def handle(self, fd: int, mask: int, now: int) -> None:
        """A descriptor that nobody knows was closed in this turn."""

    def stop_reading(self) -> None:
        pass

    def revoke(self) -> None:
        pass

    def flush(self) -> None:
        pass

    def close_all(self) -> None:
        pass
