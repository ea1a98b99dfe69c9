"""Imports for tenants of very different sizes, some of them urgent.

python examples/priority-and-tenants/imports.py add    adds jobs for three tenants
python examples/priority-and-tenants/imports.py work   does them all, and prints their order
"""

import sys

from disque_trio.client.sync import Client, connect

NODES = ["127.0.0.1:7711"]
QUEUE = "imports"


def add(client: Client) -> None:
    client.set_policy(QUEUE, groups="fair", active=10)
    for number in range(6):
        client.add(QUEUE, f"acme {number}", group="acme")  # a large tenant that comes first
    client.add(QUEUE, "bell 0", group="bell")
    client.add(QUEUE, "cole 0", group="cole")
    client.add(QUEUE, "cole 1, urgent", group="cole", priority=7)


def work(client: Client) -> None:
    """Urgent jobs come first; then the groups take turns."""
    while jobs := client.get(QUEUE, nohang=True):
        for job in jobs:
            print(job.body.decode())
            client.ack(job.id)


if __name__ == "__main__":
    with connect(NODES) as client:
        (add if sys.argv[1] == "add" else work)(client)
