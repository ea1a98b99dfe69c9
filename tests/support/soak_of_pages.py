"""Random faults on a loaded cluster whose queues are longer than memory, after which nothing may be
lost.

    python -m tools.soak_paging [--rounds 10] [--faults 12] [--nodes 3] [--seed N]

A round is like one of ``soak_cluster.py``, with so little memory that most jobs lie on disk, in
small segments, on small file systems of their own. Nobody takes jobs during the first half of the
faults, and some of these are about the files: a disk is full for a while, files are lost or
damaged, settings change, and the append-only file is rewritten. Who may not mount file systems
runs nothing, and is told so.
"""

import argparse
import os
import random
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.support.harness import wait_until
from tests.support.live_cluster import LiveCluster, Member
from tests.support.live_load import ONCE, load_on
from tests.support.small_disk import small_disk
from tests.support.soak_of_clusters import DRAIN_SECONDS, FAULTS, fault, run_rounds

MEMORY = "2mb"
LESS = "1500kb"
DISK = 24  # MB
LEAST = 2_000  # jobs on disk before the first fault
RETRY = 5  # s
OPTIONS = ("--appendonly", "yes", "--appendfsync", "everysec", "--maxmemory", MEMORY)
ABOUT_FILES = ("full", "lose", "damage", "off", "less", "rewrite")


def pages_of(node: Member) -> Path:
    """The directory of the node's jobs on disk."""
    return node.directory / "pages"


def fault_of_files(node: Member, what: str, rng: random.Random) -> None:
    """Inject a fault into the files of ``node`` or its settings, for up to 3 s."""
    pages = pages_of(node)
    pause = rng.uniform(0, 3)
    if what == "full":
        filler = pages / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(100_000))
        time.sleep(pause)
        filler.unlink()
    elif what in ("lose", "damage"):
        for path in list(pages.glob("*.seg")):
            with suppress(FileNotFoundError):
                if what == "lose" and rng.random() < 0.5:
                    path.unlink()
                elif what == "damage" and (size := path.stat().st_size):
                    with path.open("r+b") as file:
                        file.seek(rng.randrange(size))
                        file.write(b"\xff")
    elif what == "rewrite":
        node.ask("BGREWRITEAOF")
    else:
        name, value, usual = {
            "off": ("paging", "no", "yes"),
            "less": ("maxmemory", LESS, MEMORY),
        }[what]
        assert node.ask("CONFIG", "SET", name, value) == b"OK"
        time.sleep(pause)
        assert node.ask("CONFIG", "SET", name, usual) == b"OK"


def jobs_on_disk(cluster: LiveCluster) -> int:
    """How many jobs, copies included, the nodes have on disk."""
    return sum(int(node.info("jobs")["paging_jobs"]) for node in cluster)


def run_round(directory: Path, nodes: int, faults: int, rng: random.Random) -> str:
    """One round; returns a summary. Raises if a promise was broken."""
    cluster = LiveCluster(directory, nodes, *OPTIONS, proxied=True, node_timeout=1000)
    with ExitStack() as stack:
        for node in cluster:
            stack.enter_context(small_disk(pages_of(node), DISK))
        stack.callback(cluster.close)
        cluster.start()
        load = stack.enter_context(load_on(cluster))
        load.produce(cluster, "REPLICATE", 2, timeout=1000, pause=0, retry=RETRY, size=2_000)
        load.produce(cluster, "REPLICATE", 2, "PRIORITY", 5, timeout=1000, pause=0.01, retry=RETRY)
        load.produce(cluster, "REPLICATE", 3, "DELAY", 5, timeout=1000, pause=0.01, retry=RETRY)
        load.produce(cluster, queue=ONCE, pause=0.1)
        wait_until(lambda: jobs_on_disk(cluster) > LEAST)
        most = 0
        for number in range(faults):
            if number == faults // 2:
                load.consume(cluster)
            one, other = rng.sample(range(nodes), 2)
            what = rng.choice(FAULTS + ABOUT_FILES)
            on_disk = jobs_on_disk(cluster)
            most = max(most, on_disk)
            print(f"  {what} {one} {other}, {on_disk} jobs on disk", flush=True)
            if what in ABOUT_FILES:
                fault_of_files(cluster[one], what, rng)
            else:
                fault(cluster, what, one, other, rng)
            time.sleep(rng.uniform(0, 0.5))
        cluster.wait_joined()
        ledger = load.finish(DRAIN_SECONDS)
        again = sum(count > 1 for count in ledger.delivered.values())
        refused = sum(ledger.refused.values())
        return (
            f"{len(ledger.confirmed)} confirmed, none lost, up to {most} on disk, "
            f"{refused} refused, {again} delivered again"
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the rounds; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.soak_paging", description=__doc__.split("\n\n")[0]
    )
    if os.geteuid() != 0:
        print("file systems cannot be mounted here: nothing was run")
        return 0
    parser.set_defaults(rounds=10, faults=12, nodes=3)
    return run_rounds(argv, parser, run_round)
