"""The table of pages, in the order of the navigation."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from disque_console.web.views import (
    bananaq,
    bulk,
    clients,
    cluster,
    dead,
    job,
    jobs,
    overview,
    queue,
    queues,
    schedules,
    settings,
    slowlog,
    workers,
)
from disque_console.web.visit import Shown, Visit

View: TypeAlias = Callable[[Visit], Awaitable[Shown]]


@dataclass(frozen=True, slots=True)
class Page:
    """A page.

    Attributes:
        path: its address. title: in the navigation and the window.
        view: returns the values for ``template``.
        under: path of the navigation page that it belongs to; empty if it is in the navigation.
        live: whether it is updated while it is open.
        needs: an attribute of ``Console``; the page is not in the navigation if that is empty.
    """

    path: str
    title: str
    view: View
    template: str
    under: str = ""
    live: bool = True
    needs: str = ""


PAGES: Final = (
    Page("/", "Overview", overview.view, "overview.html"),
    Page("/queues", "Queues", queues.view, "queues.html"),
    Page("/queue", "Queue", queue.view, "queue.html", under="/queues"),
    Page("/jobs", "Jobs", jobs.view, "jobs.html", live=False),
    Page("/job", "Job", job.view, "job.html", under="/jobs"),
    Page("/bulk", "All matching jobs", bulk.view, "bulk.html", under="/jobs", live=False),
    Page("/dead", "Dead letters", dead.view, "dead.html", live=False),
    Page("/schedules", "Schedules", schedules.view, "schedules.html"),
    Page("/schedule", "Schedule", schedules.one, "schedule.html", under="/schedules"),
    Page("/workers", "Workers", workers.view, "workers.html"),
    Page("/cluster", "Cluster", cluster.view, "cluster.html"),
    Page("/clients", "Clients", clients.view, "clients.html"),
    Page("/slow", "Slow log", slowlog.view, "slowlog.html"),
    Page("/settings", "Settings", settings.view, "settings.html"),
    Page("/setting", "Setting", settings.one, "setting.html", under="/settings"),
    Page("/bananaq", "bananaq", bananaq.view, "bananaq.html", needs="bananaq"),
)
