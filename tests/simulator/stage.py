"""A cluster that a test drives by hand: the same machines and network, without its own clients and
faults. For scenarios, where a seed would have to be found again after every change."""

from disque_trio.protocol.bus import NEEDJOBS
from tests.simulator.events import SECOND
from tests.simulator.machine import Machine
from tests.simulator.plan import CALM, make_plan
from tests.simulator.session import Session
from tests.simulator.world import World


class Wire:
    """A client of one node.

    Attributes:
        got: the replies.
        broken: the node closed the connection.
    """

    def __init__(self, stage: "Stage", machine: Machine) -> None:
        self.got: list[object] = []
        self.broken = False
        self._stage = stage
        session = machine.connect(self._replied, self._closed)
        assert session is not None, "the node is down"
        self._session: Session = session

    def send(self, *args: bytes | str | int) -> None:
        """Send a request."""
        words = [arg if isinstance(arg, bytes) else str(arg).encode() for arg in args]
        if words[0] == b"ADDJOB":
            # The oracle knows jobs by their number.
            words[2] = b"%d" % self._stage.world.oracle.new_job(words[1], 1, 1, 0, 1, True).token
        self._session.send(words)

    def close(self) -> None:
        """Hang up."""
        self._session.close()

    def _replied(self, request: list[bytes], reply: object) -> None:
        self.got.append(reply)

    def _closed(self) -> None:
        self.broken = True


class Stage:
    """``count`` nodes that know each other.

    Args:
        policy: of the append-only files: off, everysec or always.
        seed: of delays and of what the nodes choose at random.
    """

    def __init__(self, count: int, policy: str = "always", seed: int = 1) -> None:
        plan = make_plan(seed, CALM, "static")
        plan.mode = "scenario"
        plan.nodes = count
        plan.policies = [policy] * count
        plan.memories = [0] * count
        plan.rates = [1_000_000] * count
        plan.offsets = [0] * count
        plan.leaving = -1
        self.world = World(plan, trace=True)
        self.world.boot()
        assert self.world.joined()

    @property
    def machines(self) -> list[Machine]:
        return self.world.machines

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.world.loop.run_until(self.world.loop.now + int(seconds * SECOND))

    def wire(self, index: int) -> Wire:
        """A client of the node ``index``."""
        return Wire(self, self.machines[index])

    def ask(self, index: int, *args: bytes | str | int, seconds: float = 1.0) -> object:
        """The reply of the node ``index`` to one request, which comes within ``seconds``."""
        wire = self.wire(index)
        wire.send(*args)
        end = self.world.loop.now + int(seconds * SECOND)
        while not wire.got and self.world.loop.now < end:
            self.run(0.001)
        wire.close()
        assert len(wire.got) == 1, wire.got
        return wire.got[0]

    def add(self, index: int, *options: str | int, queue: str = "q") -> bytes:
        """ADDJOB on the node ``index``; returns the id."""
        id = self.ask(index, "ADDJOB", queue, "", 0, *options)
        assert isinstance(id, bytes), id
        return id

    def get(self, index: int, queue: str = "q") -> list[bytes]:
        """The ids of all jobs that the node ``index`` delivers now."""
        reply = self.ask(index, "GETJOB", "NOHANG", "COUNT", 1000, "FROM", queue)
        return [entry[1] for entry in reply] if isinstance(reply, list) else []

    def move(self, source: int, target: int, queue: str = "q") -> None:
        """Let the node ``target`` ask ``source`` for a job of ``queue``, as if a client waited."""
        asks = self.machines[target]
        packet = asks.node.packets.about_queue(NEEDJOBS, queue.encode(), 1)
        asks.post(lambda now: asks.node.peers.send(self.machines[source].id, packet))
        self.run(0.1)

    def holders(self, id: bytes) -> list[int]:
        """The nodes that have the job."""
        return [machine.index for machine in self.machines if machine.holds(id)]

    def queued_on(self, id: bytes) -> list[int]:
        """The nodes that have the job in a queue."""
        return [index for index in self.holders(id) if self._state(index, id) == b"queued"]

    def _state(self, index: int, id: bytes) -> object:
        reply = self.ask(index, "SHOW", id)
        assert isinstance(reply, list)
        return dict(zip(reply[::2], reply[1::2], strict=True))[b"state"]

    def kill(self, *indexes: int) -> None:
        """kill -9."""
        for index in indexes:
            self.machines[index].kill(0, machine=False)

    def start(self, *indexes: int, skew: int = 0) -> None:
        """Start nodes that are down; their clocks have gone forward by ``skew`` ms meanwhile."""
        for index in indexes:
            machine = self.machines[index]
            machine.clock.change(self.world.loop.now, machine.clock.rate, skew)
            machine.start()
        self.run(1)

    def cut_off(self, index: int) -> None:
        """Lose all packets between the node ``index`` and the others."""
        others = [other for other in range(len(self.machines)) if other != index]
        self.world.fabric.cut_paths([(index, other) for other in others])
        self.world.fabric.cut_paths([(other, index) for other in others])

    def repair(self) -> None:
        """Repair all paths, and wait until all links are up."""
        self.world.fabric.mend_paths(sorted(self.world.fabric.cut))
        self.run(12)
