"""Random faults of every kind on a loaded cluster of real nodes, after which nothing may be lost.

    python -m tools.soak_cluster [--rounds 10] [--faults 8] [--nodes 5] [--seed N]

A round starts a cluster with a proxy in front of each bus port, adds and takes jobs at every node,
and meanwhile kills, stops, suspends, restarts and isolates nodes. Some jobs are added by many at
once and go to another node, where their only consumer is; some clients go to the best node; and
many jobs stay where they are until the end. Then all nodes are up again, and

- every job whose ADDJOB was answered with an id is delivered and can be acknowledged,
- each of the jobs that nobody took is soon in the queue of a single node,
- no job with RETRY 0 was delivered twice,
- no node holds any job in the end.

The exit status is 0, or 1 if that was not the case; the seed and the faults of each round are
shown.
"""

import argparse
import random
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.harness import HANG_SECONDS, wait_until
from tests.support.live_cluster import LiveCluster, live_cluster
from tests.support.live_load import ONCE, load_on

OPTIONS = ("--appendonly", "yes", "--appendfsync", "always")
DRAIN_SECONDS = 90.0
FAR = "far"  # its producer and its consumer are at different nodes
MET = ("met-0", "met-1", "met-2")  # those of each of these queues meet at the best node
IDLE = "idle"  # nobody takes its jobs until all faults are over
IDLE_JOBS = 500  # at each node
IDLE_SECONDS = 30.0
FAULTS = ("kill", "kill two", "term", "restart", "pause", "cut", "stall", "mute", "ring", "isolate")
DEATHS = {"kill": signal.SIGKILL, "kill two": signal.SIGKILL, "term": signal.SIGTERM}


def fault(cluster: LiveCluster, what: str, one: int, other: int, rng: random.Random) -> None:
    """Inject a fault into the node ``one``, or between it and ``other``, for up to 3 s."""
    proxy = cluster.proxy
    if what in DEATHS:
        victims = [cluster[one], *([cluster[other]] if what == "kill two" else [])]
        for victim in victims:
            victim.process.send_signal(DEATHS[what])
        for victim in victims:
            victim.process.wait(HANG_SECONDS)
        time.sleep(rng.uniform(0, 2.5))
        for victim in victims:
            victim.start()
    elif what == "restart":
        wire = cluster[one].wire()
        wire.send("RESTART")
        wire.closed()
        cluster[one].wait_ready()
    elif what == "pause":
        cluster[one].pause()
        time.sleep(rng.uniform(0, 3))
        cluster[one].resume()
    else:
        assert proxy is not None
        if what == "cut":
            proxy.cut(one, other)
        elif what == "stall":
            proxy.stall(one, other)
        elif what == "mute":
            proxy.mute(one)
        elif what == "ring":
            proxy.ring()
        else:
            proxy.isolate(one, stall=rng.random() < 0.5)
        time.sleep(rng.uniform(0, 3))
        proxy.heal()


def run_round(directory: Path, nodes: int, faults: int, rng: random.Random) -> str:
    """One round; returns a summary. Raises if a promise was broken."""
    with (
        live_cluster(directory, nodes, *OPTIONS, proxied=True, node_timeout=1000) as cluster,
        load_on(cluster) as load,
    ):
        idle = load.add(cluster, IDLE_JOBS, IDLE, "REPLICATE", min(nodes, 3), "RETRY", 2)
        load.consume(cluster)
        load.produce(cluster, "REPLICATE", 2, timeout=1000, pause=0.05)
        load.produce(cluster, "REPLICATE", 3, "DELAY", 1, timeout=1000, pause=0.05)
        load.produce(cluster, "REPLICATE", 2, "ASYNC", timeout=1000, pause=0.1)
        load.produce(cluster, queue=ONCE, pause=0.1)
        source, target = rng.sample(range(nodes), 2)
        load.produce([cluster[source]], "REPLICATE", 2, queue=FAR, pause=0.05, count=20)
        load.consume([cluster[target]], (FAR,), count=100)
        load.produce_at_best(2, MET)
        load.consume_at_best(3, MET)
        for _ in range(faults):
            one, other = rng.sample(range(nodes), 2)
            what = rng.choice(FAULTS)
            print(f"  {what} {one} {other}", flush=True)
            fault(cluster, what, one, other, rng)
            time.sleep(rng.uniform(0, 0.5))
        cluster.wait_joined()
        wait_until(lambda: queued(cluster, IDLE) == idle, IDLE_SECONDS)
        load.consume(cluster, (IDLE,))
        ledger = load.finish(DRAIN_SECONDS)
        again = ", ".join(f"{queue.decode()} {n}" for queue, n in sorted(ledger.again.items()))
        return f"{len(ledger.confirmed)} confirmed, none lost; delivered again: {again}"


def queued(cluster: LiveCluster, queue: str) -> int:
    """How many jobs of ``queue`` the nodes have queued."""
    lengths = [node.ask("QLEN", queue) for node in cluster]
    return sum(length for length in lengths if isinstance(length, int))


def run_rounds(
    argv: Sequence[str] | None,
    parser: argparse.ArgumentParser,
    run_round: Callable[[Path, int, int, random.Random], object],
) -> int:
    """Run ``run_round`` (directory, nodes, faults, rng) as often as ``argv`` says; ``parser`` has
    the defaults. Returns the exit status."""
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--faults", type=int, help="in a round")
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args(argv)
    rng = random.Random(options.seed)
    print(f"seed {options.seed}")
    for number in range(options.rounds):
        print(f"round {number}", flush=True)
        with tempfile.TemporaryDirectory() as directory:
            try:
                print(" ", run_round(Path(directory), options.nodes, options.faults, rng))
            except KeyboardInterrupt:
                raise
            except BaseException as problem:  # pytest's failures are not Exceptions
                print(f"BROKEN, seed {options.seed}: {problem}")
                return 1
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the rounds; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.soak_cluster", description=__doc__.split("\n")[0]
    )
    parser.set_defaults(rounds=10, faults=8, nodes=5)
    return run_rounds(argv, parser, run_round)
