"""What workers report of themselves, and what they are asked to do.

A worker process reports every few seconds (WORKER REPORT), on a connection that it keeps; the reply
tells what somebody has asked of it since. What it reports is kept as long as the connection.
"""

from typing import Final

from disque_trio.respserver.client import Client

STOP: Final = b"stop"  # take nothing new, finish what is there, end
HAND_BACK: Final = b"hand-back"  # give back at once what is there, end
MOST_FIELDS: Final = 64
MOST_BYTES: Final = 4_096  # of a report


class ReportOfWorker:
    """A report.

    Attributes:
        fields: names and values, in turn.
        at: when it came, in ms since the epoch.
        order: STOP or HAND_BACK, once somebody has asked for that; empty: nobody has.
    """

    def __init__(self, fields: list[bytes], at: int, order: bytes) -> None:
        self.fields = fields
        self.at = at
        self.order = order


class ReportsOfWorkers:
    """The last reports of the worker processes that are connected to a node.

    Attributes:
        by_client: the reports.
    """

    def __init__(self) -> None:
        self.by_client: dict[Client, ReportOfWorker] = {}

    def take(self, client: Client, fields: list[bytes], now: int) -> bytes:
        """Take what ``client`` reports at ``now`` (ms). Return what it is asked to do; empty:
        nothing."""
        before = self.by_client.get(client)
        order = b"" if before is None else before.order
        self.by_client[client] = ReportOfWorker(fields, now, order)
        return order

    def order(self, id: int, order: bytes) -> ReportOfWorker | None:
        """Ask the process whose connection has the ``id`` to do ``order``; return its report. None:
        no such connection reports. HAND_BACK is not taken back by STOP."""
        for client, report in self.by_client.items():
            if client.id == id:
                if report.order != HAND_BACK:
                    report.order = order
                return report
        return None

    def forget_client(self, client: Client) -> None:
        """Forget the report of ``client``, which has disconnected."""
        self.by_client.pop(client, None)
