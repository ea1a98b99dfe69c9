"""Schedules: jobs that the nodes add themselves.

python examples/schedules/schedules.py set     sets two schedules
python examples/schedules/schedules.py run     does the work of three ticks
python examples/schedules/schedules.py list    prints them
python examples/schedules/schedules.py delete  deletes them
"""

import sys

from disque_trio.client.sync import Client, connect

NODES = ["127.0.0.1:7711"]
NAMES = ("pulse", "report")


def set_schedules(client: Client) -> None:
    """Setting an existing schedule replaces it, so a program can do this at every start."""
    client.schedules.set("pulse", "@every 1s", "pulses", "check the shop", ttl=60)
    # Five fields, as in cron, in Berlin's time zone. After downtime at seven, the report comes
    # later.
    times = "0 7 * * mon"
    client.schedules.set("report", times, "reports", "weekly", tz="Europe/Berlin", catchup=True)


def run(client: Client) -> None:
    """Each tick adds one job in the cluster, whichever node adds it."""
    for tick, job in enumerate(client.jobs("pulses"), 1):
        print(job.body.decode())
        if tick == 3:
            break


def main(command: str) -> None:
    with connect(NODES) as client:
        match command:
            case "set":
                set_schedules(client)
            case "run":
                run(client)
            case "list":
                for name in NAMES:
                    if schedule := client.schedules.get(name):
                        print(schedule.name, schedule.times, schedule.queue)
            case "delete":
                print([client.schedules.delete(name) for name in NAMES].count(True), "deleted")


if __name__ == "__main__":
    main(sys.argv[1])
