"""Renders the report as one HTML page that loads nothing from elsewhere.

Only the plots need the page's script. The browser runs no other script, because the names of
queues, jobs and clients are untrusted.
"""

import json
from base64 import b64encode
from hashlib import sha256
from html import escape
from importlib.resources import files

from disque_spark.report import lists, plots
from disque_spark.report.found import findings, lives
from disque_spark.report.markup import Numbers, node_name, time
from disque_spark.report.verdict import summary
from disque_trio import humanize

_TOOLS = """<div class=tools role=group aria-label="what the page shows">
<label>plots of <select id=queue><option value="">all queues</option></select></label>
<label>filter <input id=filter type=search placeholder="queue, job, reason, node"></label>
<span id=hits aria-live=polite></span>
<button id=zone type=button>show UTC</button>
<button id=theme type=button>light or dark</button></div>"""
_SHORT = 600_000  # ms; a shorter period has seconds


def page(numbers: Numbers, link: str | None = None) -> str:
    """The page.

    Args:
        numbers: from ``make_report``.
        link: link to the numbers as JSON; None: no link.
    """
    first, last = numbers["first"], numbers["last"]
    title = heading = "Disque audit"
    if numbers["events"]:
        pattern = "%Y-%m-%d %H:%M" if last - first >= _SHORT else "%Y-%m-%d %H:%M:%S"
        begin, end = (humanize.moment(at / 1000, pattern) for at in (first, last))
        title += f", {begin} to {end} UTC"
        heading += f", {time(first, pattern)} to {time(last, pattern)}"
    style, script = _asset("page.css"), _asset("page.js")
    drawn = plots.plots(numbers)
    parts = [
        "<!doctype html><html lang=en><head><meta charset=utf-8>",
        f'<meta http-equiv=Content-Security-Policy content="{_policy(style, script)}">',
        "<meta name=viewport content='width=device-width,initial-scale=1'>",
        f"<title>{escape(title)}</title><style>{style}</style></head><body>",
        f"<h1>{heading}</h1>",
        summary(numbers),
        _contents(numbers, link),
        _TOOLS,
        findings(numbers),
        lists.comparison(numbers),
        "<h2 id=over-time>Over time: <span class=whose>all queues</span></h2>",
        plots.over_time(numbers, drawn),
        "<h2 id=queues>Queues</h2><p class=hint>Retries and NACKs are shares of the deliveries."
        " Depths are those of all nodes together.</p>",
        lists.queues(numbers),
        _group("jobs", "Jobs that stand out", plots.deliveries(numbers) + lists.worst(numbers)),
        _group(
            "workers",
            "Workers and schedules",
            "<p class=hint>The clients, by name or address, that handed back the most jobs, or that"
            " left the most without sending an ACK or NACK themselves.</p>"
            + lists.clients(numbers)
            + lists.schedules(numbers),
        ),
        _group("nodes", "Nodes and rules", lists.nodes(numbers)),
        f"<script type=application/json id=data>{_data(numbers, drawn)}</script>",
        f"<script>{script}</script>",
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _group(id: str, title: str, content: str) -> str:
    """A part of the page that is shown on a click."""
    start = f"<details class='more group' id={id}><summary><h2>{title}</h2></summary>"
    return f"{start}{content}</details>"


def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _policy(style: str, script: str) -> str:
    """A content security policy that allows only this style and this script."""
    rules = {"default-src": "'none'", "style-src": _hash(style), "script-src": _hash(script)}
    rules |= {"base-uri": "'none'", "form-action": "'none'"}
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _contents(numbers: Numbers, link: str | None) -> str:
    places = {"findings": "findings"}
    if numbers.get("before"):
        places["before"] = "compared with before"
    places |= {"over-time": "over time", "queues": "queues", "jobs": "jobs that stand out"}
    places |= {"workers": "workers", "nodes": "nodes"}
    items = [f"<a href='#{place}'>{text}</a>" for place, text in places.items()]
    if link is not None:
        items.append(f"<a href='{escape(link)}'>the numbers as JSON</a>")
    return f"<nav aria-label=contents>{''.join(items)}</nav>"


def _data(numbers: Numbers, drawn: list[plots.Plot]) -> str:
    """The data for the script, as JSON, escaped so that no name in it can end the element."""
    data = plots.data(numbers, drawn) | {
        "nodes": [node_name(numbers, row["node"]) for row in numbers["by_node"]],
        "lives": lives(numbers),
    }
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
