"""The rules of an audit and their thresholds. Imports only what is always installed."""

from dataclasses import asdict, dataclass

ONCE_TWICE = "once-delivered-twice"
NEVER_DELIVERED = "never-delivered"
AFTER_ACK = "delivered-after-ack"
TWICE = "delivered-twice"
EXPIRED = "expired-undelivered"
POISON = "poison"
CLOCK_SKEW = "clock-skew"
NOT_REQUEUED = "not-requeued"
NEVER_ACKED = "never-acknowledged"
WITH_WORKER = "lost-with-worker"
EXPIRED_UNACKED = "expired-unacknowledged"
UNSEEN_ACK = "acknowledged-unseen"
DEAD = "dead"
WAITING_LETTER = "letter-waiting"
WAITING = "waiting"
SCHEDULE_MISSED = "schedule-missed"
SCHEDULE_DOUBLED = "schedule-doubled"
# All kinds, in the order of the harm they do: so everything lists them. First those for jobs that
# were not done, according to the logs, or that nodes did not treat as promised.
SERIOUS = (
    ONCE_TWICE,
    NEVER_DELIVERED,
    NOT_REQUEUED,
    WITH_WORKER,
    NEVER_ACKED,
    EXPIRED,
    EXPIRED_UNACKED,
    AFTER_ACK,
    UNSEEN_ACK,
    SCHEDULE_MISSED,
)
KINDS = (
    *SERIOUS,
    *(DEAD, WAITING_LETTER, POISON, WAITING, TWICE, SCHEDULE_DOUBLED, CLOCK_SKEW),
)
# The kinds that a watch reports by default.
TOLD = (*SERIOUS, POISON, CLOCK_SKEW, DEAD)

# Reasons why the truth may differ from what the logs show.
LOG_GAP = "log-gap"
LOG_END = "log-end"
LOG_MISSING = "log-missing"  # the whole log of a node
# Reason of an acknowledgement for a job that no node knows.
UNKNOWN_JOB = "unknown-job"
# Reasons of a second delivery: its line is in the log twice; nothing in the log explains it.
LINE_TWICE = "line-twice"
UNKNOWN = "unknown"
# Reason of a second delivery: the node was started in between. Of a job that waits: the node was
# started since then, and only its file says whether it still has the job.
RESTART = "restart"
# Reasons from append-only files: a node has the job in its file; no node has it.
HELD = "held"
LOST = "lost"


@dataclass(frozen=True)
class Rules:
    """The thresholds of the findings.

    Attributes:
        settled: seconds; a job that is younger at the end of the log is not a finding yet.
        poison: a job with more NACKs than this is a finding.
        skew: ms that the clocks of two nodes may be apart.
        tolerance: ms by which the times of two nodes have to differ to tell which was first.
        retries: a job not acknowledged within this many times its RETRY is a finding.
        patience: seconds, used instead of ``retries``, from the first delivery (with RETRY 0: from
            the delivery); 0: use ``retries``.
        waiting: seconds; a job that is in a queue for longer is a finding; 0: it never is.
    """

    settled: int = 60
    poison: int = 3
    skew: int = 500
    tolerance: int = 100
    retries: int = 3
    patience: int = 0
    waiting: int = 0

    @property
    def settings(self) -> dict[str, int]:
        """The thresholds by name, as stored in a manifest."""
        return {name: int(value) for name, value in asdict(self).items()}
