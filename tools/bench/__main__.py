"""What ``python -m tools.bench`` measures."""

from typing import Final

from tools.bench.command import start

RUNS: Final = {
    "throughput": "cost of a command, compared with redis-server",
    "latency": "latency of a job's life at a given load, and pauses of the node",
    "memory": "memory per job, and how long a node stops to free it",
    "beside-c": "comparison with C Disque",
    "gossip": "cost of knowing the other nodes, by the size of the cluster",
    "guard": "fails if a hot path takes 10% more instructions",
    "paging": "cost of a queue that lies on disk, beside one in memory",
    "profile": "where the time of a loaded node goes",
    "steps": "cost of each step of a command, in this process",
}


if __name__ == "__main__":
    start("tools.bench", RUNS)
