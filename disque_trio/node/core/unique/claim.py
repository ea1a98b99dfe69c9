"""An ADDJOB UNIQUE that waits until the nodes agree that its job may have its key."""

from typing import Final

from disque_trio.node.core.copies.admissions import Admission, Admit
from disque_trio.node.core.jobs.job import Job
from disque_trio.node.core.jobs.key_messages import KeyMessage, Vote
from disque_trio.node.core.jobs.uniques import life_of
from disque_trio.node.core.rpc.questions import Question
from disque_trio.protocol.trailer import Trailer
from disque_trio.resp.reply import error
from disque_trio.respserver.client import Client

LONGEST: Final = 5_000  # ms to reach agreement, if the client would wait forever
LOOK_GAP: Final = 1_000  # ms between looks at the votes while copies are made

CLAIMING: Final = 0  # the voters are being asked; only this node knows the job
COPYING: Final = 1  # copies are being made
CONFIRMING: Final = 2  # there are enough copies; the voters are being asked again
AGREED: Final = 3

UNDECIDED: Final = error(
    b"NOUNIQ Too few of the nodes that decide who has this key are reachable, or a job with it may "
    b"be on a node that is not; repeat it later, or add ANYWAY"
)


class Agreement:
    """Interface to the code that seeks agreement on claims (see ``claims``)."""

    def confirm(self, claim: "Claim") -> None:
        """Ask the voters again. Once enough nodes have copies and a majority still has the claim,
        the job is added; if a majority no longer has it, the job is given up."""
        raise NotImplementedError

    def take_back(self, claim: "Claim") -> None:
        """Ask the holders of copies of the job, which was given up, to forget it. The key is free
        only if all do; if not, a client that wants it finds the job, or nothing."""
        raise NotImplementedError


class Claim(Admission):
    """The pending reply of an ADDJOB UNIQUE in a cluster.

    Attributes:
        key: of the job.
        lasts: the key is kept for some time, whatever becomes of the job.
        until: when the key is free in any case, in ms since the epoch.
        voters: the nodes that decide.
        stage: CLAIMING to AGREED.
        agree_by: when to give up in the stage CLAIMING, in ms.
        again: when to go on, in ms; 0: when an answer comes.
        look_at: when to ask, while copies are made, whether the voters still have the claim, in
            ms.
        anyway: add the job even without a majority.
        question: the open one, or the last one.
        waited: another job was about to be added when all nodes were last asked.
        rival: that job, if it goes first.
        instead, any: see ``KeyMessage``.
    """

    def __init__(  # noqa: PLR0913
        self,
        agreement: Agreement,
        now: int,
        client: Client,
        job: Job,
        wait: bool,
        external: bool,
        timeout: int,
        bounded: bool,
        admit: Admit,
        trailer: Trailer,
        voters: list[bytes],
        anyway: bool,
    ) -> None:
        deadline = now + timeout if timeout else 0
        super().__init__(client, job, wait, external, deadline, bounded, admit)
        self.key = trailer.key
        self.lasts = trailer.key_until > 0
        self.until = trailer.key_until or life_of(job)
        self.voters = voters
        self.stage = CLAIMING
        self.agree_by = now + (timeout or LONGEST)
        self.again = 0
        self.look_at = now + LOOK_GAP
        self.anyway = anyway
        self.question: Question | None = None
        self.waited = False
        self.rival: Vote | None = None
        self.instead = b""
        self.any = False
        self._agreement = agreement
        self._queue = job.queue  # a holder may move the job while its claim is open

    def message(self, op: int, id: bytes = b"") -> KeyMessage:
        """A message about its key and its job, or about the job ``id``."""
        return KeyMessage(op, self._queue, self.key, id or self.job.id)

    def hears_too_late(self, now: int) -> bool:
        """Whether the nodes that were asked if another job is about to be added have run out of
        time to answer: their silence says nothing."""
        return self.waited and now >= self.agree_by

    def agreed(self) -> bool:
        if self.stage == COPYING:
            self.stage = CONFIRMING
            self._agreement.confirm(self)
            return False  # called again if they agree
        return self.stage == AGREED

    def refusal(self, usual: bytes) -> bytes:
        return UNDECIDED if self.stage == CONFIRMING else usual

    def try_again(self, now: int) -> bool:
        confirming = self.stage == CONFIRMING
        if not confirming and now < self.look_at:
            return False
        self.look_at = now + LOOK_GAP
        if self.question is None or self.question.over:
            self._agreement.confirm(self)
        # If others have passed it over, this has ended it.
        return confirming or self.reply is not None

    def given_up(self) -> bool:
        self._agreement.take_back(self)
        return True
