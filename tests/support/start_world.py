"""The cluster of ``unique_world``, whose jobs have their keys until they start, or are replaced.

Each ADDJOB has a number in its body. Packets arrive in any order between different nodes, and late;
without other faults the promises are exact: a job that was answered starts after it was asked for,
and runs as some ADDJOB that was not over then said.
"""

from disque_trio.respserver.client import Client
from tests.support.unique_world import KEYS, Producer, UniqueWorld


class Asked:
    """An ADDJOB: since when, until when (ms; -1: it has no reply), and which job was the reply."""

    def __init__(self, key: str, since: int) -> None:
        self.key = key
        self.since = since
        self.over = -1
        self.id = b""


class StartWorld(UniqueWorld):
    """See the module.

    Args:
        replace: whether all ADDJOBs have REPLACE; otherwise UNTIL START.
        exact: whether there are no faults, so that all promises are checked.
    """

    def __init__(self, seed: int, size: int, replace: bool, exact: bool) -> None:
        super().__init__(seed, size, False)
        self.replace = replace
        self.exact = exact
        self.asked: list[Asked] = []
        self.numbers: dict[Client, int] = {}
        self.runs: dict[bytes, list[tuple[int, int]]] = {}  # by id: when (ms), as which number

    def add(self) -> None:
        rng = self.rng
        index = self._some()
        bench = self.mesh[index]
        key = rng.choice(KEYS)
        client = bench.client()
        number = len(self.asked)
        timeout = 30_000 if self.exact else rng.choice((300, 1000, 3000))
        words = [f"{key} {number}", str(timeout), "RETRY", "2"]
        words += ["REPLICATE", str(rng.choice((1, 2, 2, 3)[: self.size]))]
        if rng.random() < 0.3:
            words += ["DELAY", "0.1"]
        words += ["UNIQUE", key, *(["REPLACE"] if self.replace else ["UNTIL", "START"])]
        self.asked.append(Asked(key, self.now))
        self.numbers[client] = number
        self.producers.append(Producer(client, index, key, False, self.now, set()))
        self.log.append(f"{self.now} {index}: ADDJOB {words}")
        bench.send(client, "ADDJOB", "q", *words)
        self.turn_over()

    def take(self) -> None:
        index = self._some()
        reply = self.mesh[index]("GETJOB", "NOHANG", "FROM", "q")
        if reply is not None:
            (_, id, body) = reply[0]  # type: ignore[index]
            self.log.append(f"{self.now} {index}: gives {id} {body}")
            self.workers.append((id, body))
            self.runs.setdefault(id, []).append((self.now, int(body.split()[1])))
        self.turn_over()

    def replied(self, producer: Producer, reply: object) -> None:
        self.log.append(f"{self.now} {producer.node}: {producer.key} {reply!r}")
        asked = self.asked[self.numbers[producer.client]]
        asked.over = self.now
        if not isinstance(reply, (bytes, str)):
            self.errors += 1
            # Packets that are late by half a second count as lost.
            if not str(reply).startswith(("NOUNIQ ", "NOREPL ")):
                self.problems.append(str(reply))
            return
        asked.id = reply if isinstance(reply, bytes) else reply.encode()
        if asked.id not in self.acked and not self.exists(asked.id):
            self.problems.append(f"{asked.id!r} was answered and does not exist")

    def judge(self) -> None:
        """Check what became of all ADDJOBs that were answered, at the end."""
        for number, asked in enumerate(self.asked):
            if not asked.id:
                continue
            runs = self.runs.get(asked.id, [])
            if not runs:
                self.problems.append(f"{asked.id!r} never ran")
            elif self.exact and runs[0][0] < asked.since:
                self.problems.append(f"{number}: {asked.id!r} had started before it was asked for")
            elif self.exact and self.replace:
                ran = self.asked[runs[0][1]]
                if runs[0][1] != number and 0 <= ran.over < asked.since:
                    self.problems.append(f"{number}: {asked.id!r} ran as {runs[0][1]}")
