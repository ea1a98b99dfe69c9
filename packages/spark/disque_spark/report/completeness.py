"""What the report says about what it could see: the time, the nodes, and what the logs lack."""

from html import escape

from disque_spark.audit.lacks import GOES_ON, Lack, period, seen_nodes, sentence
from disque_spark.report.markup import Numbers, node_code, time
from disque_trio.humanize import jobs


def nodes_seen(numbers: Numbers) -> str:
    """The nodes that have logs: ``2 of 3 nodes``."""
    return seen_nodes(_lacks(numbers), len(numbers["nodes"]))


def nothing_lost(numbers: Numbers) -> str:
    """The verdict if nothing was found. It speaks only of what the logs show, and promises nothing
    unless they show everything."""
    lacks = _lacks(numbers)
    begin, end = period(lacks, numbers["first"], numbers["last"])
    span = f"from {time(begin)} to {time(end)}"
    all_well = "delivered and acknowledged, ended before that, wait, or are still young"
    unsure = numbers["unsure"]
    if unsure and all(lack.kind == GOES_ON for lack in lacks):
        these = "a job that waits was" if unsure == 1 else f"{jobs(unsure)} that wait were"
        return (
            f"<p class=warn><b>No loss is known {span}, but {these} queued before"
            f" {'its node was' if unsure == 1 else 'their nodes were'} started again:</b> only"
            " append-only files (<code>audit --aof</code>) say what nodes still have. All other"
            f" jobs were {all_well}.</p>"
        )
    if not lacks:
        return (
            f"<p class=verdict><b>No job was lost {span}:</b> all confirmed jobs were"
            f" {all_well}.</p>"
        )
    if all(lack.kind == GOES_ON for lack in lacks):
        return (
            f"<p class=verdict><b>No loss is known {span}, and the logs go on:</b> all jobs in them"
            f" were {all_well}.</p>"
        )
    return (
        f"<p class=warn><b>No loss is known {span}, but the logs are incomplete:</b> all jobs in"
        f" them were {all_well}.</p>"
    )


def lacks_box(numbers: Numbers) -> str:
    """A sentence for each thing that the logs lack."""
    lacks = _lacks(numbers)
    if not lacks:
        return ""
    items = []
    for lack in lacks:
        text = sentence(
            lack,
            lambda node: node_code(numbers, node),
            time,
            lambda name: f"<code>{escape(name)}</code>",
        )
        items.append(f"<li>{text[0].upper()}{text[1:]}.</li>")
    calm = all(lack.kind == GOES_ON for lack in lacks)
    head = "" if calm else "<p><b>What the logs lack</b>, and is not judged:</p>"
    return f"<div class='lacks{'' if calm else ' warn'}'>{head}<ul>{''.join(items)}</ul></div>"


def _lacks(numbers: Numbers) -> list[Lack]:
    return [Lack(**lack) for lack in numbers["lacks"]]
