"""Interfaces between the engine and its surroundings: settings, record file, links to other nodes.

A program without other nodes uses plain ``Links``, one that keeps nothing ``NoFile``.
"""

from collections.abc import Sized
from typing import Protocol

from disque_trio.config import OutputBufferLimit
from disque_trio.config.memory_limit import MemoryLimit
from disque_trio.native import mypyc_attr


class Limits(Protocol):
    """The settings that limit clients."""

    max_commands_per_turn: int
    proto_max_bulk_len: int
    proto_inline_max_size: int
    client_query_buffer_limit: int
    client_output_buffer_limit: OutputBufferLimit
    requirepass: str
    acllog_max_len: int
    auth_failures_per_minute: int
    protected_mode: bool
    timeout: int
    tcp_keepalive: int
    maxclients: int
    maxclients_per_ip: int
    hz: int
    tls_port: int
    tls_auth_clients: str
    maxmemory: int
    maxmemory_clients: MemoryLimit
    slowlog_max_len: int
    slowlog_log_slower_than: int
    latency_monitor_threshold: int


class RecordFile(Protocol):
    """The file that the journal is written to.

    Attributes:
        storing: a thread is writing records; the engine's ``stored`` is called when it has ended.
    """

    @property
    def storing(self) -> bool: ...

    def turn(self) -> bool:
        """Write the node's records to the file. False: they are not there or, if ``storing``, not
        yet."""

    def begin_group(self) -> None:
        """Called when a group begins to run in slices; before ``end_group``, its records are not
        complete."""

    def end_group(self) -> None:
        """Called when the group is over; its records are still to be written."""


class NoFile:
    """The record file of a program that keeps nothing."""

    storing = False

    def turn(self) -> bool:
        return True

    def begin_group(self) -> None:
        pass

    def end_group(self) -> None:
        pass


class Members(Protocol):
    """The other nodes of the cluster."""

    config_changed: bool


@mypyc_attr(allow_interpreted_subclasses=True)
class Links:
    """Interface to the connections to other nodes; by itself, there are none.

    Attributes:
        broken: links that broke since the last ``tell_broken``.
        dirty: those with something to send.
        behind: those with something that could not be sent.
        membership: the other nodes.
        config_changed: never, since this membership has only one node.
        stirred: packets about jobs have arrived, or a node can be reached again, since the engine
            reset it.
    """

    def __init__(self) -> None:
        self.broken: Sized = ()
        self.dirty: Sized = ()
        self.behind: Sized = ()
        self.config_changed = False
        self.stirred = False
        self.membership: Members = self

    def membership_changed(self) -> None:
        """Called at the end of a turn when ``membership.config_changed``."""

    def tell_broken(self, now: int) -> None:
        """Tell the membership which links were lost."""

    def handle(self, fd: int, mask: int, now: int) -> None:
        """Handle an event of the socket ``fd``; an unknown one was closed in this turn."""

    def roll_back(self) -> None:
        """Discard this turn's packets about jobs, because its records are not on disk."""

    def hold(self) -> None:
        """Neither send nor accept packets about jobs before ``release`` and ``take_held``: the
        turn's records are being written."""

    def release(self) -> None:
        """Allow packets to be sent again."""

    def take_held(self, now: int) -> None:
        """Handle the packets that arrived meanwhile; from now on, handle each as it arrives."""

    def flush(self) -> None:
        """Send this turn's packets."""

    def close_all(self) -> None:
        """Close all links, silently."""
