"""What the parts of a node share that work on its jobs."""

from disque_trio.node.core.jobs.tombstones import Tombstones
from disque_trio.node.core.queues.aof_codec import AofCodec
from disque_trio.node.core.queues.bus_codec import BusCodec
from disque_trio.node.core.queues.paging import Paging
from disque_trio.node.core.queues.recovery import Recovery
from disque_trio.node.core.queues.store import JobStore
from disque_trio.node.core.rpc.services import Services


class Core:
    """Made once for a node, of its ``services`` and the ``store`` of its jobs.

    Attributes:
        policies: of the queues.
        recovery: places the jobs that are loaded.
        paging: moves jobs to disk and back.
        aof_codec: jobs to and from files. bus_codec: jobs to and from other nodes.
        tombstones: jobs that have ended.
        machine, peers, packets, rng, notices, settlements, rpc, timer: the ``services``.
    """

    def __init__(self, services: Services, store: JobStore) -> None:
        self.services = services
        self.machine = services.machine
        self.peers = services.peers
        self.packets = services.packets
        self.rng = services.rng
        self.notices = services.notices
        self.settlements = services.settlements
        self.rpc = services.rpc
        self.timer = services.timer
        self.store = store
        self.policies = store.policies
        self.recovery = Recovery(store, services.peers)
        self.paging = Paging(store)
        self.paging.ask_first = self.recovery.queue_again
        self.aof_codec = AofCodec(store, self.recovery, self.paging)
        self.bus_codec = BusCodec(store)
        self.tombstones = Tombstones(
            services.peers, services.packets, store.outcomes, store.trailers
        )
