"""Random commands from many clients at random times: the node compared with a model.

A failure prints the steps and a ``@reproduce_failure`` line; ``--hypothesis-seed`` repeats a run.
"""

import hiredis
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from disque_trio.respserver.client import Client
from tests.support.core_model import Model
from tests.support.node_bench import JITTER_HIGH, JITTER_LOW, START, Bench

CLIENTS = 6
MAX_JOBS = 40
MAX_TICKS = 400  # of one time step

queue_names = st.sampled_from([b"a", b"a", b"b"])
names = st.lists(queue_names, min_size=1, max_size=3)
who = st.integers(0, CLIENTS - 1)
picks = st.lists(st.integers(0, MAX_JOBS), min_size=1, max_size=3)
short = st.one_of(st.integers(1, 50), st.integers(500, 3_000))
middle = st.integers(900, 12_000)
steps = st.one_of(short, middle, middle, st.integers(1, 400_000), st.integers(1, 3 * 86_400_000))
PAUSES = [
    ["in"], ["in"], ["out"], ["out"], ["all"], ["none"], ["in", "out"], ["all", "none"],
    ["in", "none", "out"], ["state"],
]  # fmt: skip


class CoreMachine(RuleBasedStateMachine):
    """A node and a model that get the same commands."""

    @initialize(jitter=st.integers(JITTER_LOW, JITTER_HIGH), seed=st.integers(0, 1000))
    def start(self, jitter: int, seed: int) -> None:
        self.bench = Bench(seed=seed, jitter=jitter)
        self.model = Model(START, jitter)
        self.clients = [self.bench.client() for _ in range(CLIENTS)]
        self.known: list[bytes] = []  # ids of live and former jobs

    # ---- helpers --------------------------------------------------------------------------------

    def pick(self, places: list[int]) -> list[bytes]:
        """Draw some ids, mostly of live jobs, possibly with repeats."""
        pool = (list(self.model.jobs) + self.known[-3:]) or [b"D-00000000-" + b"x" * 24 + b"-05a1"]
        return [pool[place % len(pool)] for place in places]

    def ask(self, *args: bytes | str | int) -> object:
        """The reply to a request that does not block. If it took slices, its client was woken."""
        reply = self.bench(*args)
        node = self.bench.node
        node.woken = [client for client in node.woken if client is not self.bench.me]
        return reply

    def number(self, client: Client) -> int:
        return self.clients.index(client)

    def settle(self) -> None:
        """Check and record what waiting clients got, in order."""
        woken, self.bench.node.woken = self.bench.node.woken, []
        ended = False
        for client in woken:
            (reply,) = self.bench.replies(client)
            assert not client.blocked
            if reply is None:
                assert self.number(client) in self.model.timed_out()
                self.model.stop_waiting(self.number(client))
                ended = True
            else:
                assert not ended, "a job came after a time-out of the same moment"
                (id,) = self.bench.ids(reply)
                self.model.deliver(self.number(client), id)
        assert self.model.starving() == []

    def tick(self, now: int) -> None:
        self.bench.now = now
        self.bench.node.tick(now)
        self.model.tick(now)
        self.settle()
        assert self.model.timed_out() == set()
        assert self.bench.node.next_wake() == 0 or self.bench.node.next_wake() > now

    # ---- jobs are added -------------------------------------------------------------------------

    @precondition(lambda self: len(self.model.jobs) < MAX_JOBS)
    @rule(
        queue=queue_names,
        body=st.binary(max_size=3),
        delay=st.sampled_from([0, 0, 1, 1, 5, 100]),
        retry=st.sampled_from([None, 0, 0, 1, 2, 7, 300]),
        lives=st.integers(1, 200),
        maxlen=st.sampled_from([None, None, None, 1, 3]),
    )
    def addjob(
        self,
        queue: bytes,
        body: bytes,
        delay: int,
        retry: int | None,
        lives: int,
        maxlen: int | None,
    ) -> None:
        ttl = lives * max(retry or 1, delay // 2, 1)
        options: list[str | int] = ["TTL", ttl]
        if delay:
            options += ["DELAY", delay]
        if retry is not None:
            options += ["RETRY", retry]
        if maxlen is not None:
            options += ["MAXLEN", maxlen]
        problem = self.model.add_problem(queue, delay, ttl, maxlen)
        reply = self.ask("ADDJOB", queue, body, 0, *options)
        if problem is not None:
            assert isinstance(reply, hiredis.ReplyError)
            assert str(reply).split()[0] == problem
        else:
            assert isinstance(reply, bytes)
            assert reply not in self.known
            self.model.add(reply, queue, body, delay, retry, ttl)
            self.known.append(reply)
        self.settle()

    @precondition(lambda self: len(self.model.jobs) < MAX_JOBS)
    @rule(queue=queue_names, count=st.integers(2, 6), retry=st.sampled_from([0, 1, 7]))
    def addjobs(self, queue: bytes, count: int, retry: int) -> None:
        if self.model.add_problem(queue, 0, 3600, None) is not None:
            return
        for _ in range(count):
            id = self.bench.add(queue.decode(), "", "TTL", 3600, "RETRY", retry)
            self.model.add(id, queue, b"", 0, retry, 3600)
            self.known.append(id)
            self.settle()

    # ---- jobs end -------------------------------------------------------------------------------

    @rule(names=names, count=st.sampled_from([1, 2, 5, 100, 100]))
    def getjob_nohang(self, names: list[bytes], count: int) -> None:
        reply = self.ask("GETJOB", "NOHANG", "COUNT", count, "FROM", *names)
        expected = [[job.queue, job.id, job.body] for job in self.model.get(names, count)]
        assert reply == (expected or None)

    @rule(who=who, names=names, timeout=st.sampled_from([0, 1, 40, 1000, 60_000]))
    def getjob(self, who: int, names: list[bytes], timeout: int) -> None:
        free = [place for place, client in enumerate(self.clients) if not client.blocked]
        if not free:
            return
        who = free[who % len(free)]
        client = self.clients[who]
        self.bench.send(client, "GETJOB", "WITHCOUNTERS", "TIMEOUT", timeout, "FROM", *names)
        found = self.model.get(names, 1)
        if found:
            (job,) = found
            assert self.bench.replies(client) == [
                [[job.queue, job.id, job.body, b"nacks", job.nacks, b"additional-deliveries",
                  job.deliveries]]
            ]  # fmt: skip
        else:
            assert client.blocked
            self.model.block(who, names, timeout)

    @rule(places=picks, command=st.sampled_from(["ACKJOB", "ACKJOB", "FASTACK", "DELJOB"]))
    def end(self, places: list[int], command: str) -> None:
        ids = self.pick(places)
        expected = {id for id in ids if id in self.model.jobs}
        assert self.ask(command, *ids) == len(expected)
        for id in expected:
            self.model.delete(self.model.jobs[id])

    # ---- jobs are moved -------------------------------------------------------------------------

    @rule(places=picks, command=st.sampled_from(["ENQUEUE", "NACK", "DEQUEUE"]))
    def move(self, places: list[int], command: str) -> None:
        ids = self.pick(places)
        expected = 0
        for job in [self.model.jobs[id] for id in ids if id in self.model.jobs]:
            if command == "DEQUEUE":
                expected += self.model.dequeue(job)
            else:
                expected += self.model.enqueue(job, command == "NACK")
        assert self.ask(command, *ids) == expected
        self.settle()

    @rule(place=st.integers(0, MAX_JOBS))
    def working(self, place: int) -> None:
        (id,) = self.pick([place])
        reply = self.ask("WORKING", id)
        job = self.model.jobs.get(id)
        if job is None:
            assert str(reply).startswith("NOJOB ")
        elif self.model.working(job):
            assert reply == job.retry
        else:
            assert str(reply).startswith("TOOLATE ")

    # ---- queues ---------------------------------------------------------------------------------

    @rule(queue=queue_names, options=st.sampled_from(PAUSES))
    def pause(self, queue: bytes, options: list[str]) -> None:
        assert self.ask("PAUSE", queue, *options) == self.model.pause(queue, options)
        self.settle()

    # ---- rare commands --------------------------------------------------------------------------

    @rule(event=st.sampled_from(["cron", "disconnect", "disconnect", "flush"]), who=who)
    def rarely(self, event: str, who: int) -> None:
        if event == "cron":
            gone = self.bench.evict_idle_queues()
            assert gone == self.model.drop_idle_queues()
        elif event == "disconnect":
            if self.clients[who].blocked:
                self.model.stop_waiting(who)
            self.bench.disconnect(self.clients[who])
            assert self.clients[who].out == []
            self.clients[who] = self.bench.client()
        elif who == 0 and len(self.model.jobs) > 10:
            assert self.ask("DEBUG", "FLUSHALL") == b"OK"
            waiting = self.model.flush()
            woken, self.bench.node.woken = self.bench.node.woken, []
            assert {self.number(client) for client in woken} == waiting
            for client in woken:
                assert self.bench.replies(client) == [None]

    # ---- time -----------------------------------------------------------------------------------

    @rule(step=steps, driver=st.sampled_from(["prompt", "prompt", "late", "absent"]))
    def time_passes(self, step: int, driver: str) -> None:
        """The driver calls the node whenever that asked for it; or the process was suspended, so it
        calls once for everything due; or commands are served before that."""
        end = self.bench.now + step
        if driver == "absent":
            self.bench.now = self.model.now = end
            return
        if driver == "prompt":
            for _ in range(MAX_TICKS):
                due = self.bench.node.next_wake()
                if not 0 < due <= end:
                    break
                self.tick(max(due, self.bench.now))
        self.tick(end)

    # ---- invariants -----------------------------------------------------------------------------

    @invariant()
    def every_job_is_what_the_model_says(self) -> None:
        reply = self.ask("JSCAN", "BUSYLOOP", "REPLY", "all")
        assert isinstance(reply, list)
        assert reply[0] == b"0"
        now = self.bench.now
        shown = {
            fields[1]: dict(zip(fields[::2], fields[1::2], strict=True)) for fields in reply[1]
        }
        assert set(shown) == set(self.model.jobs)
        for id, job in self.model.jobs.items():
            fields = shown[id]
            wait = max(job.requeue_at - now, 0) if job.requeue_at else None
            assert fields[b"state"] == (b"queued" if job.queued else b"active")
            assert fields[b"queue"] == job.queue
            assert fields[b"body"] == job.body
            assert fields[b"retry"] == job.retry
            assert fields[b"nacks"] == job.nacks
            assert fields[b"additional-deliveries"] == job.deliveries
            assert fields[b"next-requeue-within"] == wait
            assert fields[b"next-awake-within"] == max(job.awake_at() - now, 0)
            assert fields[b"ttl"] == max((job.expires // 1000) - now // 1000, 0)
            # An at-least-once job is queued, or has a time at which it will be.
            assert job.retry == 0 or job.queued or job.requeue_at

    @invariant()
    def every_queue_is_what_the_model_says(self) -> None:
        reply = self.ask("QSCAN", "BUSYLOOP")
        assert isinstance(reply, list)
        assert set(reply[1]) == set(self.model.queues)
        for name, queue in self.model.queues.items():
            jobs = [job.id for job in self.model.queued(name)]
            assert self.bench.ids(self.ask("QPEEK", name, 1000)) == jobs
            assert self.bench.ids(self.ask("QPEEK", name, -1000)) == jobs[::-1]
            stat = self.bench.queue(name.decode())
            assert stat[b"len"] == len(jobs)
            assert stat[b"blocked"] == len(queue.waiting)
            assert stat[b"pause"] == queue.state()
            assert stat[b"idle"] == (self.bench.now - queue.used) // 1000

    @invariant()
    def memory_is_the_sum_of_jobs_and_queues(self) -> None:
        assert self.bench.node.memory.used == self.model.memory()

    @invariant()
    def those_who_wait_are_those_who_have_to(self) -> None:
        blocked = {place for place, client in enumerate(self.clients) if client.blocked}
        assert blocked == set(self.model.waits)
        assert self.bench.node.blocked_clients == len(blocked)
        assert self.bench.node.next_wake() == self.model.next_wake()
        assert self.bench.node.woken == []


TestCore = CoreMachine.TestCase
TestCore.settings = settings(stateful_step_count=80)
