"""Renders the state of a cluster as lines of text."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from disque_trio import humanize
from disque_trio.cli.top.cells import cells, fit, wrap
from disque_trio.cli.top.view import View
from disque_trio.overview.cluster import Cluster
from disque_trio.overview.groups import groups
from disque_trio.overview.names import shown
from disque_trio.overview.nodes import NodeState
from disque_trio.overview.queues import QueueRow

LEAST_NAME: Final = 12  # minimum cells for a name
DONE: Final = 16  # cells for how much of a job is done
QUEUE: Final = 24  # cells for the name of its queue
ID: Final = 41  # cells for its id, if there is room
WIDE: Final = 110  # cells, from which on there is
LEAST_ROWS: Final = 4  # lines for queues, with the titles and the last line
PROBLEMS: Final = 3  # problems to show


class Line(NamedTuple):
    """A line. style: ``plain``, ``bold``, ``dim`` or ``reverse``."""

    text: str
    style: str = "plain"


class Column(NamedTuple):
    """A column of figures. key: to sort by. rank: the column with the highest is dropped first if
    there is no room."""

    key: str
    title: str
    width: int
    rank: int
    cell: Callable[[QueueRow], str]


NEVER: Final = "never"


def _waiting(row: QueueRow) -> str:
    return NEVER if row.unasked else humanize.short(row.blocked)


COLUMNS: Final = (
    Column("length", "queued", 6, 0, lambda row: humanize.short(row.length)),
    Column("added", "added/s", 7, 1, lambda row: humanize.rate(row.added)),
    Column("delivered", "deliv/s", 7, 4, lambda row: humanize.rate(row.delivered)),
    Column("acked", "acked/s", 7, 2, lambda row: humanize.rate(row.acked)),
    Column("oldest", "oldest", 11, 3, lambda row: humanize.duration(row.oldest or None)),
    Column("blocked", "waiting", 7, 5, _waiting),
    Column("paused", "paused", 6, 6, lambda row: row.paused or humanize.NONE),
)
FULL: Final = (
    Column("", "on disk", 7, 10, lambda row: humanize.short(row.paged)),
    Column("", "in hand", 7, 7, lambda row: humanize.short(row.in_hand)),
    Column("", "delayed", 7, 8, lambda row: humanize.short(row.delayed)),
    Column("", "dead", 5, 9, lambda row: humanize.short(row.dead)),
)
"""The columns for which nodes scan all their jobs."""

TITLES: Final = {column.key: column.title for column in COLUMNS} | {
    "name": "name",
    "blocked": "waiting clients",
}

HELP: Final = (
    "n l a d c o w p   sort by name, length (queued), jobs added,",
    "                  delivered or acknowledged, oldest job,",
    "                  waiting clients, pause; again: reverse",
    f"waiting: {NEVER}    jobs wait, and no client has asked for one",
    "r                 reverse the order",
    "arrows, j k       scroll; Page Up/Down, space, b: a page;",
    "                  Home, End, g, G: first or last",
    "/                 search: part of a name, or a pattern (mail.*);",
    "                  Enter keeps the search, Escape clears it",
    "f                 also count jobs on disk, in hand, delayed, dead:",
    "                  nodes scan all their jobs for this",
    "t                 tasks: the jobs in hand that say how far they are;",
    "                  again: the queues",
    "q                 quit",
)


def page(cluster: Cluster, view: View, width: int, height: int, now: float) -> list[Line]:
    """At most ``height`` lines of ``width`` cells at ``now`` (s since the epoch)."""
    if view.help:
        lines = [Line("Keys", "reverse"), *map(Line, HELP), Line("any key: back", "dim")]
        return [Line(fit(text, width), style) for text, style in lines[:height]]
    # If there is little room, the queues come first.
    told = problems(cluster, now, min(PROBLEMS, max(1, height // 8)))
    heads = wrap(head(cluster), width)[: max(1, height - len(told) - LEAST_ROWS)]
    top = [Line(text) for text in heads]
    top += [Line(fit(text, width), "bold") for text in told]
    room = max(0, height - len(top) - 2)
    title, listed, count = (_of_jobs if view.running else _of_queues)(cluster, view, width, room)
    top.append(Line(title, "reverse"))
    foot = _foot(view, count, len(listed), width)
    listed += [Line("")] * (room - len(listed))
    return [*top, *listed, foot][:height] if height > len(top) else [*top[: height - 1], foot]


def _of_queues(cluster: Cluster, view: View, width: int, room: int) -> tuple[str, list[Line], int]:
    """The title, the lines that have ``room``, and how many there are."""
    columns = _columns(view, width)
    rows = cluster.queues.find(view.search, view.sort, view.descending)
    view.fit(len(rows), room)
    listed = [_row(columns, row, width) for row in rows[view.first : view.first + room]]
    return _title(columns, width), listed, len(rows)


def _of_jobs(cluster: Cluster, view: View, width: int, room: int) -> tuple[str, list[Line], int]:
    """The same for the jobs in hand that say how far they are."""
    jobs = cluster.running.find(view.search)
    view.fit(len(jobs), room)
    queue = max(0, min(QUEUE, (width - DONE) // 3))
    text = max(0, width - DONE - queue - (ID if width >= WIDE else 0))

    def line(done: str, name: str, said: str, id: str) -> str:
        cut = [(done, DONE), (name, queue), (said, text), (id, width - DONE - queue - text)]
        whole = "".join(_padded(part, cells_of) for part, cells_of in cut)
        return fit(whole, width)

    listed = [
        Line(line(_bar(job.fraction), job.queue, job.text, job.id))
        for job in jobs[view.first : view.first + room]
    ]
    return line("done", "queue", "what the task says", "job").ljust(width), listed, len(jobs)


def _bar(fraction: float) -> str:
    return f"{int(100 * fraction):>3}% {'#' * int(10 * fraction):-<10}"


def _padded(text: str, width: int) -> str:
    """``text`` in ``width`` cells, with a space behind it."""
    fitting = fit(text, width - 1)
    return fitting + " " * (width - cells(fitting))


def seen(cluster: Cluster, view: View, height: int) -> list[str]:
    """The queues on a screen of this many lines, and a few more."""
    rows = cluster.queues.find(view.search, view.sort, view.descending)
    return [row.name for row in rows[view.first : view.first + height]]


def snapshot(cluster: Cluster, now: float) -> list[str]:
    """Everything, for output without a terminal; names are not cut off."""
    lines = [*wrap(head(cluster), 100), *map(shown, problems(cluster, now, len(cluster.nodes)))]
    lines.append(_title(COLUMNS, 100).rstrip())
    rows = cluster.queues.find("", "name", False)
    return lines + [_figures(COLUMNS, row) + shown(row.name) for row in rows]


def head(cluster: Cluster) -> list[str]:
    """The figures of the whole cluster."""
    nodes, queues = cluster.nodes, cluster.queues
    states = nodes.all()
    together = groups(states)
    parts = [f"{humanize.counted(sum(bool(node.here) for node in together), 'node')} up"]
    for status, word in (("leaving",) * 2, ("away", "unreachable"), ("connecting",) * 2):
        count = sum(node.status == status for node in together)
        parts += [f"{count} {word}"] if count else []
    count = sum(node.count for node in together)
    if count > len(together):
        parts.append(f"{sum(state.here for state in states)} of {count} processes")
    reading = any(state.here and not state.rounds for state in states)
    parts.append(humanize.counted(len(queues), "queue"))
    parts += ["still reading"] if reading else []
    parts.append(f"{cluster.length:,} queued")
    on_disk = nodes.total("paging_jobs")
    parts += [f"{on_disk:,} jobs on disk"] if on_disk else []
    oldest = max((row.oldest for row in queues.top("oldest", 1)), default=0.0)
    parts += [f"oldest {humanize.duration(oldest)}"] if oldest else []
    for name in ("added", "delivered", "acked", "failed"):
        parts.append(f"{name} {_plain(humanize.rate(nodes.rate(name)))}/s")
    return parts


def problems(cluster: Cluster, now: float, most: int) -> list[str]:
    """The problems, in at most ``most`` lines."""
    found = [text for state in cluster.nodes.all() if (text := _problem(state, now))]
    if len(found) <= most:
        return found
    return (
        [*found[: most - 1], f"and {len(found) - most + 1} more"]
        if most > 1
        else [f"{found[0]}, and {len(found) - 1} more"]
    )


def _problem(state: NodeState, now: float) -> str:
    if state.problem and not state.here:
        since = humanize.duration(max(0.0, now - state.since))
        return f"{state.address} unreachable for {since}: {state.problem}"
    if state.here and state.refused:
        return f"{state.address} refuses: {state.refused}"
    if state.here and (reason := state.info.get("paging_problem")):
        return f"{state.address}: jobs cannot go to disk: {reason}"
    return ""


def _columns(view: View, width: int) -> Sequence[Column]:
    """The columns for which there is room, always with the sort column."""
    known = COLUMNS + FULL if view.full else COLUMNS
    left = width - LEAST_NAME
    chosen: set[str] = set()
    for column in sorted(known, key=lambda column: (column.key != view.sort, column.rank)):
        if column.width + 1 <= left:
            left -= column.width + 1
            chosen.add(column.title)
    return [column for column in known if column.title in chosen]


def _title(columns: Sequence[Column], width: int) -> str:
    titles = "".join([column.title.rjust(column.width) + " " for column in columns])
    return fit(titles + "queue", width).ljust(width)


def _row(columns: Sequence[Column], row: QueueRow, width: int) -> Line:
    told = _figures(columns, row)
    return Line(told + fit(row.name, width - len(told)), "dim" if row.paused else "plain")


def _figures(columns: Sequence[Column], row: QueueRow) -> str:
    return "".join([_plain(column.cell(row)).rjust(column.width) + " " for column in columns])


def _foot(view: View, count: int, seen: int, width: int) -> Line:
    if view.typed is not None:
        # Show the end of the typed text.
        typed = shown(view.typed)
        while typed and fit(typed, width - 9) != typed:
            typed = typed[1:]
        return Line(fit(f"search: {typed}_", width), "bold")
    where = f"{view.first + 1:,}-{view.first + seen:,} of {count:,}" if seen else f"{count:,}"
    order = TITLES[view.sort] + (", reversed" if view.descending == (view.sort == "name") else "")
    what = "tasks that say how far they are, t queues" if view.running else f"by {order}"
    parts = [where, "q quit", "? help", what]
    if view.search:
        parts.insert(1, f"search: {fit(view.search, 20)}")
    return Line(wrap(parts, width)[0] if width > 0 else "", "dim")


def _plain(text: str) -> str:
    """In ASCII, for terminals that show nothing else."""
    return text.replace(humanize.NONE, "-")
