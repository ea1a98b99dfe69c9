"""What nodes say is wrong with them, in INFO and in their logs."""

import json

from disque_trio.health.lines import AlarmLine, lines_in
from tests.support.harness import LiveNode, wait_until


def alarms(node: LiveNode) -> list[AlarmLine]:
    """The alarms in INFO."""
    info = node.info("alarms")
    lines = lines_in(info)
    assert int(info["alarms"]) == len(lines)
    return lines


def kinds(node: LiveNode) -> list[str]:
    """The kinds of the alarms."""
    return [line.kind for line in alarms(node)]


def told(node: LiveNode, kind: str) -> list[str]:
    """The levels of the lines in the log about a condition, in their order."""
    lines = [line for line in node.log.read_text().splitlines() if line.startswith("{")]
    found = [json.loads(line) for line in lines]
    return [line["level"] for line in found if line.get("condition") == kind]


def begun(node: LiveNode, kind: str) -> AlarmLine:
    """Wait until a condition has begun, in INFO and in the log; returns its first alarm."""
    wait_until(lambda: kind in kinds(node))
    wait_until(lambda: told(node, kind)[-1:] == ["warning"])
    return next(line for line in alarms(node) if line.kind == kind)


def over(node: LiveNode, kind: str) -> None:
    """Wait until a condition is over, in INFO and in the log."""
    wait_until(lambda: kind not in kinds(node))
    wait_until(lambda: told(node, kind)[-1:] == ["notice"])
