"""The table of pages. Its order is that of the navigation."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from disque_trio.console.web.views import cluster, dead, job, jobs, overview, queue, queues
from disque_trio.console.web.visit import Shown, Visit

View: TypeAlias = Callable[[Visit], Awaitable[Shown]]


@dataclass(frozen=True, slots=True)
class Page:
    """A page.

    Attributes:
        path: its address. title: in the navigation and of the window.
        view: makes the values for ``template``.
        under: path of the page of the navigation that it belongs to; empty: it is one itself.
        live: whether it is kept up to date while it is open.
    """

    path: str
    title: str
    view: View
    template: str
    under: str = ""
    live: bool = True


PAGES: Final = (
    Page("/", "Overview", overview.view, "overview.html"),
    Page("/queues", "Queues", queues.view, "queues.html"),
    Page("/queue", "Queue", queue.view, "queue.html", under="/queues"),
    Page("/jobs", "Jobs", jobs.view, "jobs.html", live=False),
    Page("/job", "Job", job.view, "job.html", under="/jobs"),
    Page("/dead", "Dead letters", dead.view, "dead.html", live=False),
    Page("/cluster", "Cluster", cluster.view, "cluster.html"),
)
