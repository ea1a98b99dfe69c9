"""The plan of one run: everything that is drawn once, from the seed and the mode."""

from dataclasses import dataclass
from random import Random

from disque_trio.node.core.queues.store import TOGETHER
from disque_trio.respserver.batches import SLICE
from tests.simulator.disk import ALWAYS, EVERYSEC, OFF
from tests.simulator.events import SECOND

SAFETY = "safety"  # faults of all kinds at random moments
LIVENESS = "liveness"  # a minority is cut off or dead; the majority must make progress
CALM = "calm"  # no faults
EXTENDED = "extended"  # as safety, with what C Disque does not have
# As extended, in a healthy network: nodes only stop, are killed, and start again. Clients do what
# they may do to a job, at whichever node, and it has to come in time, and not too often.
TIMELY = "timely"
MODES = (SAFETY, LIVENESS, CALM, EXTENDED, TIMELY)

STORM = "storm"  # many jobs, short retry times, late packets
MEMORY = "memory"  # small maxmemory
CRASHES = "crashes"
LEAVE = "leave"  # a node is taken out of the cluster

QUEUES = (b"a", b"b", b"c")
DEAD = b"dead"  # the dead-letter queue, in extended mode
# Topics and queues that are bound to them, in extended mode, and which queues get the jobs of which
# topic.
BINDINGS = ((b"news.*", b"a"), (b"news.new", b"a"), (b"#", b"b"), (b"*.new.#", b"c"))
TOPICS = {b"news.new": (b"a", b"b", b"c"), b"news.old": (b"a", b"b"), b"old.new.news": (b"b", b"c")}


@dataclass(slots=True)
class Plan:
    """See the module.

    Attributes:
        static: all nodes know each other from the start; otherwise they gossip.
        node_timeout: ms.
        temper: what occurs often; empty: nothing.
        policies, memories: of the append-only file, and maxmemory in bytes, for each node.
        rates: speed of the clocks, in millionths. offsets: how far they are ahead, in ms.
        tail, duplicates: chances that a packet is late, or comes twice.
        work: how long clients work and faults happen, in µs.
        faults: how many.
        producers, consumers: how many.
        think: µs between the actions of a producer, on average.
        leaving: index of the node that leaves; -1: none.
        careful: consumers acknowledge everything they get, soon and where they got it.
        retries: seconds of RETRY to choose from, besides 0.
        brief: the share of the jobs that live for some seconds only, unless clients are careful.
        drained_at: nodes from which the last consumers take what is left; jobs elsewhere have to
            move there.
        paging: whether queues lie on disk.
        lots_open: how long jobs are added to a lot, in ms for each second of retry time.
        slice: how many ids of a command are processed at once.
        attempts: deliveries until a job is dead, in extended and timely mode; otherwise 0.
        later_retry: seconds of RETRY of dead letters, and of jobs that are sent back.
        backoff: the bounds of pauses, ms; 0: none.
        active, rate: limits of each queue, in extended mode: jobs in hand, and a second; 0: none.
        groups: how each queue serves its groups, in extended mode; empty: it ignores them.
        group_active, group_rate: limits of each group.
        by_pattern: the last consumers take what is left by a pattern, in extended mode.
        polls: clients ask for jobs without waiting, too.
        hints: producers and consumers ask which node is best for a queue, and go there.
        gentle: extended mode without faults: only clients are careless.
        older: nodes that know neither SETTLED nor GIVEN, nor lots.
        minority: nodes that are cut off in liveness mode. minority_dies: they are dead, not cut
            off.
    """

    seed: int
    mode: str
    nodes: int
    static: bool
    node_timeout: int
    temper: str
    policies: list[str]
    memories: list[int]
    rates: list[int]
    offsets: list[int]
    tail: float
    duplicates: float
    work: int
    faults: int
    producers: int
    consumers: int
    think: int
    leaving: int
    careful: bool
    retries: tuple[int, ...]
    brief: float
    drained_at: list[int]
    slice: int
    paging: bool
    lots_open: int
    attempts: int
    later_retry: int
    backoff: tuple[int, int]
    active: int
    rate: int
    groups: str
    group_active: int
    group_rate: int
    by_pattern: bool
    polls: bool
    hints: bool
    gentle: bool
    older: list[int]
    minority: list[int]
    minority_dies: bool


def mode_of(seed: int) -> str:
    """The mode of a seed, unless another one is requested."""
    return (SAFETY, EXTENDED, CALM, SAFETY, SAFETY, LIVENESS, EXTENDED, SAFETY)[seed % 8]


def make_plan(seed: int, mode: str, membership: str = "any") -> Plan:
    """Draw a plan. ``membership``: static, gossip or any.

    Some safety runs have a temper: a fault or a load that is otherwise rare occurs often, since
        most bugs need two rare things at once.
    """
    rng = Random(f"plan {seed} {mode}")
    timely = mode == TIMELY
    extended = mode == EXTENDED or timely
    gentle = mode == EXTENDED and seed % 7 == 0
    calm = mode == CALM or gentle or timely
    nodes = (
        rng.choice((3, 3, 3, 4, 4, 5, 5, 6, 7)) if mode != LIVENESS else rng.choice((3, 5, 5, 7))
    )
    gossip = rng.random() < 0.12
    if membership != "any":
        gossip = membership == "gossip"
    if gossip:
        nodes = min(nodes, 5)
    faulty = mode in (SAFETY, EXTENDED) and not gentle
    if timely:
        nodes = rng.choice((1, 3, 3, 4, 5))
        if seed % 11 == 10:
            nodes = 7
    temper = rng.choice(("", "", "", STORM, MEMORY, CRASHES, LEAVE)) if faulty else ""
    policy = rng.choice((OFF, EVERYSEC, ALWAYS, "mixed"))
    policies = [
        rng.choice((OFF, EVERYSEC, ALWAYS)) if policy == "mixed" else policy for _ in range(nodes)
    ]
    if timely:  # they promise nothing without a file
        policies = [rng.choice((EVERYSEC, ALWAYS)) for _ in range(nodes)]
    memories = [0] * nodes
    if temper == MEMORY:
        low = rng.choice((6_000, 20_000))
        memories = [rng.choice((0, rng.randrange(low, 40_000))) for _ in range(nodes)]
    spread = 0 if calm else rng.choice((0, 1000, 20_000))
    minority = rng.sample(range(nodes), rng.randrange(1, max((nodes - 1) // 2, 1) + 1))
    leaving = rng.randrange(nodes) if temper == LEAVE else -1
    staying = [index for index in range(nodes) if index != leaving]
    everywhere = rng.random() < 0.5
    drained_at = (
        list(range(nodes)) if everywhere else rng.sample(staying, rng.randrange(1, max(nodes, 2)))
    )
    groups = ("", "fifo", "fair")[seed // 5 % 3] if extended else ""
    return Plan(
        seed=seed,
        mode=mode,
        nodes=nodes,
        static=not gossip,
        node_timeout=rng.choice((2000, 3000, 5000)),
        policies=policies,
        memories=memories,
        temper=temper,
        rates=[1_000_000 + rng.randrange(-spread, spread + 1) for _ in range(nodes)],
        offsets=[0 if calm else rng.choice((0, 0, 300, 5_000)) for _ in range(nodes)],
        tail=0.0 if calm else 0.1 if temper == STORM else rng.choice((0.0, 0.01, 0.05)),
        duplicates=0.0 if calm else rng.choice((0.0, 0.0, 0.1)),
        work=rng.randrange(*(15, 40) if temper == LEAVE else (4, 9) if timely else (6, 20))
        * SECOND,
        faults=seed % 3 * 2
        if timely
        else 0
        if not faulty
        else rng.randrange(1, 16 if temper in (STORM, CRASHES) else 9),
        producers=rng.randrange(1, 4),
        consumers=rng.randrange(2 if temper == STORM else 1, 4),
        think=50_000 if temper == STORM else rng.choice((100_000, 300_000, 1_000_000)),
        leaving=leaving,
        careful=mode not in (SAFETY, EXTENDED, TIMELY),
        retries=(2, 5, 60)
        if timely
        else (2, 3, 10, 60)
        if calm
        else (1, 2)
        if temper == STORM
        else (1, 2, 3, 5, 10),
        brief=0.1,
        drained_at=sorted(drained_at),
        slice=(2, SLICE)[seed % 2],
        paging=seed % 3 == 1,
        lots_open=(TOGETHER, 500)[seed // 2 % 2],
        attempts=1 + seed // 8 % 3 if extended else 0,
        later_retry=30 if timely else 3,
        backoff=((0, 0), (500, 4_000), (3_000, 3_000))[seed // 16 % 3],
        active=(0, 0, 5, 2)[seed // 24 % 4] if extended else 0,
        rate=(0, 20)[seed // 96 % 2] if mode == EXTENDED else 0,
        groups=groups,
        group_active=(0, 1, 2)[seed // 7 % 3] if mode == EXTENDED and groups else 0,
        group_rate=(0, 10)[seed // 11 % 2] if mode == EXTENDED and groups else 0,
        by_pattern=extended and seed // 3 % 2 == 1,
        polls=not timely or seed % 2 == 0,
        hints=seed // 3 % 2 == 1,
        gentle=gentle,
        older=[index for index in range(nodes) if index % 2 == seed // 5 % 2 and seed % 5 == 2],
        minority=sorted(minority),
        minority_dies=rng.random() < 0.5,
    )
