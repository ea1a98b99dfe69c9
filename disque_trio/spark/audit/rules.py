"""The rules of an audit and their thresholds. Imports only what is always installed."""

from dataclasses import asdict, dataclass

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
SCHEDULE_MISSED = "schedule-missed"
SCHEDULE_DOUBLED = "schedule-doubled"
# Of jobs that nobody has done, as far as the log says, or that nodes have not treated as promised.
SERIOUS = (
    NEVER_DELIVERED,
    NOT_REQUEUED,
    NEVER_ACKED,
    WITH_WORKER,
    AFTER_ACK,
    EXPIRED,
    EXPIRED_UNACKED,
    UNSEEN_ACK,
    SCHEDULE_MISSED,
)
KINDS = (*SERIOUS, TWICE, SCHEDULE_DOUBLED, POISON, CLOCK_SKEW, DEAD, WAITING_LETTER)
# What a watch tells of, unless it is told otherwise.
TOLD = (*SERIOUS, POISON, CLOCK_SKEW, DEAD)

# Why it may be otherwise than the log says.
LOG_GAP = "log-gap"
LOG_END = "log-end"
LOG_MISSING = "log-missing"  # that of a whole node
# Of an acknowledge: no node knows the job.
UNKNOWN_JOB = "unknown-job"
# Reasons of what append-only files know more of: a node has it in its file; no node.
HELD = "held"
LOST = "lost"


@dataclass(frozen=True)
class Rules:
    """The thresholds of the findings.

    Attributes:
        settled: seconds before the end of the log after which a job is not young any more.
        poison: more NACKs than this.
        skew: ms that the clocks of two nodes may be apart.
        tolerance: ms by which times of two nodes have to differ to say what was first.
        retries: a job not acknowledged within this many times its RETRY is a finding.
        patience: seconds from the first delivery after which it is one, instead; 0: ``retries``
            says so. With RETRY 0: from the delivery.
    """

    settled: int = 60
    poison: int = 3
    skew: int = 500
    tolerance: int = 100
    retries: int = 3
    patience: int = 0

    @property
    def settings(self) -> dict[str, int]:
        """The thresholds by name, as a manifest keeps them."""
        return {name: int(value) for name, value in asdict(self).items()}
