"""Tasks: functions that run as jobs, for programs of threads, asyncio and Trio.

``Disque`` is the entry; see docs/tasks.md. This module names all that is public.
"""

from disque_trio.tasks.app import Disque
from disque_trio.tasks.errors import Reject, ResultGone, Retry, TaskFailed

__all__ = ["Disque", "Reject", "ResultGone", "Retry", "TaskFailed"]
