"""What a task raises to say what becomes of its job, and what who waits for a result may get."""


class Retry(Exception):
    """Raised by a task: not now, try again. It counts as an attempt.

    Args:
        reason: kept with the job.
        delay: seconds until then; None: as ``backoff`` of the task says.
    """

    def __init__(self, reason: str = "", *, delay: float | None = None) -> None:
        super().__init__(reason)
        self.delay = delay


class Reject(Exception):
    """Raised by a task: never try this again. The job goes to the dead letters, with the text."""


class TaskFailed(Exception):
    """The job whose result was asked for has failed for good.

    Attributes:
        id: of the job.
        type_name: of what its task raised, such as ``ValueError``; empty if that is not known.
        text: what that said.
    """

    def __init__(self, id: str, type_name: str, text: str) -> None:
        super().__init__(f"{type_name}: {text}".strip(": "))
        self.id = id
        self.type_name = type_name
        self.text = text


class ResultGone(Exception):
    """The job has ended, or nothing is known of it, and its result is not kept any more."""


class BadJob(ValueError):
    """A job that no task of this program can do, or a result that it cannot read: the text says
    why."""
