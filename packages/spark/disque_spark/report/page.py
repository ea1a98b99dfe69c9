"""Renders the report as one HTML page that loads nothing from elsewhere.

The page shows everything important without its script. The browser runs no other script, because
the names of queues, jobs and clients are untrusted.
"""

import json
from base64 import b64encode
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

from disque_spark.report import lists
from disque_spark.report.charts import Plot, plots, span_of
from disque_spark.report.found import everyone, findings, lives
from disque_spark.report.markup import Numbers, node_name, period
from disque_spark.report.plots import bar_plot
from disque_spark.report.verdict import summary
from disque_trio import humanize

_TOOLS = """<div class=tools role=group aria-label="what the page shows">
<label>plots of <select id=queue><option value="">all queues</option></select></label>
<label>filter <input id=filter type=search placeholder="queue, job, reason, node"></label>
<span id=hits aria-live=polite></span>
<button id=zone type=button aria-pressed=false>show local time</button>
<button id=theme type=button>light or dark</button></div>"""


def page(numbers: Numbers, link: str | None = None) -> str:
    """The page.

    Args:
        numbers: from ``make_report``.
        link: link to the numbers as JSON; None: no link.
    """
    title = "Disque audit"
    if numbers["events"]:
        title += f", {period(numbers['first'], numbers['last'])} UTC"
    style, script = _asset("page.css"), _asset("page.js")
    drawn = plots(numbers)
    parts = [
        "<!doctype html><html lang=en><head><meta charset=utf-8>",
        f'<meta http-equiv=Content-Security-Policy content="{_policy(style, script)}">',
        "<meta name=viewport content='width=device-width,initial-scale=1'>",
        f"<title>{escape(title)}</title><style>{style}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        summary(numbers),
        _contents(numbers, link),
        _TOOLS,
        findings(numbers),
        lists.comparison(numbers),
        "<h2 id=over-time>Over time: <span class=whose>all queues</span></h2>"
        f"<p class=hint>{_drawn(numbers)}</p>",
        *[_section(plot, numbers) for plot in drawn],
        "<h2>Deliveries per job</h2><p class=hint>How many jobs were delivered how often. The scale"
        " is logarithmic.</p>",
        bar_plot([(_times(str(name)), count) for name, count in numbers["deliveries"]], "jobs"),
        "<h2 id=queues>Queues</h2><p class=hint>Retries and NACKs are shares of the deliveries. The"
        " column after them has the most deliveries within a second. Depths are those of all nodes"
        " together.</p>",
        lists.queues(numbers),
        "<h2 id=jobs>Jobs that stand out</h2>",
        lists.worst(numbers),
        "<h2 id=workers>Workers</h2><p class=hint>The clients, by name or address, that handed back"
        " the most jobs, or that left the most without sending an ACK or NACK themselves.</p>",
        lists.clients(numbers),
        lists.schedules(numbers),
        "<h2 id=nodes>Nodes</h2>",
        lists.nodes(numbers),
        f"<script type=application/json id=data>{_data(numbers, drawn)}</script>",
        f"<script>{script}</script>",
        "</body></html>\n",
    ]
    return "\n".join(parts)


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
    places |= {"over-time": "over time", "queues": "queues", "jobs": "jobs"}
    places |= {"workers": "workers", "nodes": "nodes"}
    items = [f"<a href='#{place}'>{text}</a>" for place, text in places.items()]
    if link is not None:
        items.append(f"<a href='{escape(link)}'>the numbers as JSON</a>")
    return f"<nav aria-label=contents>{''.join(items)}</nav>"


def _section(plot: Plot, numbers: Numbers) -> str:
    title = plot.title[0].upper() + plot.title[1:].removesuffix(" over time")
    return f"<h3>{title}</h3><p class=hint>{plot.hint}</p>{plot.markup(span_of(numbers))}"


def _drawn(numbers: Numbers) -> str:
    """A hint about plots of single queues."""
    drawn = len(numbers.get("series", {}).get("queues", ()))
    every = numbers.get("queues_in_all", drawn)
    some = f" {drawn} of {humanize.count(every)} queues have them." if drawn < every else ""
    return (
        "Use the mouse or the arrow keys to see values. To see the plots of a single queue, choose"
        f" it above, or in a table.{some}"
    )


def _data(numbers: Numbers, drawn: list[Plot]) -> str:
    """The data for the script, as JSON, escaped so that no name in it can end the element."""
    series = numbers.get("series", {"columns": [], "queues": {}})
    data: dict[str, Any] = {
        "step": numbers["step"],
        "span": span_of(numbers),
        "plots": [plot.data(span_of(numbers)) for plot in drawn],
        "series": {"columns": series["columns"], "queues": list(series["queues"].items())},
        "nodes": [node_name(numbers, node) for node in everyone(numbers)],
        "lives": lives(numbers),
    }
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _times(times: str) -> str:
    """A number of deliveries in words."""
    known = {"0": "never", "1": "once", "2": "twice"}
    return known.get(times, f"{times.replace(' or more', '+')} times")
