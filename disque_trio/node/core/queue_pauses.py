"""Which queues are paused, by PAUSE.

A pause with BCAST concerns all nodes: they share it (see ``versions``), so that a node that was
away, or joins later, learns of it as well, and of its end. C nodes are told at once, as by C
Disque, and never again. A pause without BCAST, or one that a C node tells, concerns this node. It
lasts until the next one, with BCAST or without.
"""

from functools import partial
from typing import Final

from disque_trio.node.core.federation.federation import Federation
from disque_trio.node.core.queues.core import Core
from disque_trio.node.core.shared.sharing import SharedMaps, Sharing
from disque_trio.node.core.shared.versions import (
    MAX_NAME,
    Shared,
    SharedError,
    Versions,
    name_in,
    number_in,
)
from disque_trio.protocol import bus
from disque_trio.protocol.fields import Field, pack_number
from disque_trio.respserver.client import Client

MAX_PAUSES: Final = 10_000  # that clients may set
MAX_SIZE: Final = 4 * 1024 * 1024  # bytes of all that clients may set
_PAUSED: Final = 20  # type of the field of a pause
_BITS: Final = 3


class QueuePause(Shared):
    """A pause of the queue ``name`` on all nodes.

    Attributes:
        paused: PAUSED_IN and PAUSED_OUT bits.
    """

    def __init__(self, name: bytes, paused: int) -> None:
        super().__init__()
        self.name = name
        self.paused = paused

    def problem(self) -> str:
        return ""  # each of its bits may be set

    def fields(self) -> list[Field]:
        return [(_PAUSED, pack_number(self.paused))]


class KnownPauses(Versions[QueuePause]):
    """The pauses of queues that a node knows; a queue that is not paused any more is deleted.

    Attributes:
        local: the bits of queues that were set for this node after the shared ones, by name.
    """

    def __init__(self) -> None:
        super().__init__(frozenset((_PAUSED,)))
        self.local: dict[bytes, int] = {}

    def bits(self, name: bytes) -> int:
        """Those that all nodes share."""
        pause = self.named(name)
        return 0 if pause is None else pause.paused

    def check(self, name: bytes, value: QueuePause, grows: int) -> None:
        if self.named(name) is None and self.count >= MAX_PAUSES:
            raise SharedError(f"{MAX_PAUSES} queues are paused already, the maximum")
        if grows > 0 and self.size + grows > MAX_SIZE:
            raise SharedError(f"all pauses together would have more than {MAX_SIZE} bytes")

    def clear(self) -> None:
        self.local.clear()
        super().clear()

    def read(self, values: dict[int, bytes]) -> QueuePause:
        bits = number_in(values, _PAUSED, 0)
        pause = QueuePause(name_in(values), bits & _BITS)
        if bits & ~_BITS:
            pause.unknown.append((_PAUSED, values[_PAUSED]))
        return pause


class QueuePauses:
    """Pauses the queues of one node.

    Args:
        federation: pauses a queue, and hears of pauses from other nodes.
        shared_maps: what all nodes share.

    Attributes:
        known: the pauses that all nodes share.
        sharing: shares them with other nodes.
    """

    def __init__(self, core: Core, federation: Federation, shared_maps: SharedMaps) -> None:
        known = self.known = KnownPauses()
        self.sharing = Sharing("pauses", bus.PAUSES, core.services, known, shared_maps)
        self.sharing.on_change = self._on_change
        federation.paused_elsewhere = self.set_here
        self._queues = core.store.queues
        self._federation = federation
        self._replicas = core.store.replicas
        self._peers = core.peers

    def state(self, name: bytes) -> int:
        """The pause bits of the queue ``name`` on this node."""
        queue = self._queues.by_name.get(name)
        return 0 if queue is None else queue.paused

    def _apply(self, name: bytes, paused: int) -> None:
        if paused or name in self._queues.by_name:
            self._federation.pause(name, paused)

    def set_here(self, name: bytes, paused: int) -> None:
        """Set the pause bits of the queue ``name`` on this node."""
        self._apply(name, paused)
        if name in self.known.entries and self.known.local.get(name) != paused:
            self.known.local[name] = paused
            self.sharing.changed([name])

    def set_everywhere(self, client: Client, name: bytes, paused: int, reply: bytes) -> None:
        """Set the pause bits of the queue ``name`` on all nodes; ``client`` gets ``reply``, at the
        end of the turn.

        Raises:
            SharedError: it is refused.
        """
        if not 0 < len(name) <= MAX_NAME:  # it cannot be shared
            self._apply(name, paused)
            self._tell(name, paused, 0)
            client.out.append(reply)
            return
        undone = partial(self._undone, name, self.state(name), self.known.local.get(name))
        value = QueuePause(name, paused) if paused else None
        self.sharing.set(client, name, value, reply=reply, undone=undone)
        self._tell(name, paused, bus.SHARED)

    def _tell(self, name: bytes, paused: int, flags: int) -> None:
        everyone = self._peers.everyone()
        self._replicas.tell_of_queue(everyone, bus.PAUSE, name, paused, flags)

    def _on_change(self, names: list[bytes]) -> None:
        """Pause the queues ``names`` as all nodes do now."""
        for name in names:
            self.known.local.pop(name, None)
            if name in self.known.entries:
                self._apply(name, self.known.bits(name))

    def _undone(self, name: bytes, paused: int, local: int | None) -> None:
        """Pause the queue ``name`` as before a change that could not be written to disk: by the
        bits ``paused``, of which ``local`` were set for this node."""
        if local is not None:
            self.known.local[name] = local
        self._apply(name, paused)
        self._tell(name, paused, bus.SHARED)

    def resume(self) -> None:
        """Pause the queues as the file of pauses says, after a start."""
        for name in self.known.entries:
            paused = self.known.local.get(name, self.known.bits(name))
            if paused != self.state(name):
                self._apply(name, paused)

    def flush(self) -> None:
        """Note that this node has forgotten its queues, and which of them are paused."""
        names = [name for name in self.known.entries if self.known.bits(name)]
        for name in [*names, *self.known.local]:
            self.known.local[name] = 0
        if names:
            self.sharing.changed(names)
