"""The queues of a node: making them, pausing them, and forgetting those that nobody uses."""

from disque_trio.core.events import EventSource
from disque_trio.core.queue import QUEUE_OVERHEAD, Queue
from disque_trio.core.registry import Registry


class Queues(EventSource):
    """All queues of one node.

    Args:
        maxmemory: bytes of jobs and queues, 0: no limit.

    Attributes:
        ready: queues that may have both jobs and waiting clients.
    """

    def __init__(self, maxmemory: int) -> None:
        super().__init__()
        self.memory.set_limit(maxmemory)
        self.queues: dict[bytes, Queue] = {}
        self.queue_index: Registry[Queue] = Registry()
        self.ready: list[Queue] = []
        self._idle_cursor = 0

    def create_queue(self, name: bytes) -> Queue:
        """Make the queue ``name``, which must not exist."""
        queue = self.queues[name] = Queue(name, self.now)
        self.queue_index.put(name, queue)
        self.memory.used += QUEUE_OVERHEAD + len(name)
        return queue

    def destroy_queue(self, queue: Queue) -> None:
        """Forget ``queue``, which must be empty and have no client waiting."""
        del self.queues[queue.name]
        self.queue_index.drop(queue.name)
        self.memory.used -= QUEUE_OVERHEAD + len(queue.name)

    def pause(self, name: bytes, paused: int) -> None:
        """Set the pause bits of the queue ``name``, which is made if need be."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self.create_queue(name)
        queue.paused = paused
        queue.atime = self.now
        if queue.waiters:
            self.ready.append(queue)

    def evict_idle_queues(self, now: int, steps: int = 200) -> int:
        """Forget queues that are empty, unpaused, unwatched and idle; visits about ``steps``.

        Idle means 300 s, 10 s above 75% of the memory, 2 s above 95%. Goes on while at least one
        in ten goes. Returns how many went.
        """
        self.now = now
        gone = 0
        while True:
            level = self.memory.level()
            idle = 300_000 if level == 0 else 10_000 if level == 1 else 2_000
            self._idle_cursor, queues = self.queue_index.scan(self._idle_cursor, steps)
            here = 0
            for queue in queues:
                if self._is_idle(queue, idle):
                    self.destroy_queue(queue)
                    here += 1
            gone += here
            if here * 10 < steps:
                return gone

    def _is_idle(self, queue: Queue, idle: int) -> bool:
        return (
            queue.length == 0
            and not queue.waiters
            and not queue.paused
            and self.now - queue.atime >= idle
        )
