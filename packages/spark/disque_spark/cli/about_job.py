"""The command ``disque-pipeline job``: the life of jobs in text. It needs neither Spark nor a
JVM."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from disque_spark.audit import trace as tr
from disque_spark.audit.manifest import FINDINGS, JOBS
from disque_spark.audit.store import Store, StoreError
from disque_spark.audit.tables import COLUMNS, table_files
from disque_spark.cli.checks import UsageError, addresses, login
from disque_spark.cli.sessionless import FAILED, OK, USAGE
from disque_spark.client import RefusedError, WireError, text_of
from disque_spark.datasources.tables import columns_of
from disque_spark.files import Location, location
from disque_spark.nodes import Nodes
from disque_spark.parquet import rows_of
from disque_spark.segments import SegmentError, blocks, find_segments, split
from disque_spark.story import Line, Story, followers, tell
from disque_trio import humanize
from disque_trio.process.one_line import show_traceback

_PIECE = 32 << 20  # bytes
_SECONDS = 10.0  # to wait for a node
# Of the lines about jobs that may have led to others.
_ENDS = (b'"event":"dead"', b'"reason":"redrive"')


def run(options: argparse.Namespace) -> int:
    """Print the lives of jobs. Returns the exit status."""
    ids = list(dict.fromkeys(options.id))
    try:
        if not (options.log or options.audit or options.nodes):
            raise UsageError("--log, --audit or --nodes: one is required")
        settings = dict(options.conf)
        stories = {id: Story(id) for id in ids}
        if options.log:
            stories = read_logs(options.log, ids, settings)
        if options.audit is not None:
            read_audit(location(options.audit, settings), stories)
        names: dict[str, str] = {}
        if options.nodes:
            names = ask_nodes(options, stories)
    except UsageError as problem:
        print(f"disque-pipeline: {problem}", file=sys.stderr)
        return USAGE
    except (StoreError, SegmentError, WireError, RefusedError, OSError, ValueError) as problem:
        show_traceback(options.debug)
        print(f"disque-pipeline: {problem}", file=sys.stderr)
        return FAILED
    known = [story for story in stories.values() if story.lines or story.now]
    for story in known:
        for line in story.text(lambda node: names.get(node, node[:8])):
            print(line)
    for id in ids:
        if stories[id] not in known:
            print(f"disque-pipeline: no such job: {id}", file=sys.stderr)
    return OK if len(known) == len(ids) else FAILED


def read_logs(
    paths: Sequence[str], ids: Sequence[str], settings: dict[str, str]
) -> dict[str, Story]:
    """The stories of jobs in event logs, including files that nodes are still writing."""
    found = find_segments(paths, True, settings)
    needles = [id.encode() for id in (*ids, *(one for id in ids for one in followers(id)))]
    last = 0
    lines: list[Line] = []
    for piece in (piece for pieces in split(found, _PIECE) for piece in pieces):
        for block in blocks(piece):
            lines += _lines(block, needles)
            end = _parsed(block.splitlines()[-1]) if block else None
            last = max(last, 0 if end is None else end["time"])
    stories = tell(ids, lines)
    for story in stories.values():
        story.until = last
    return stories


def _lines(block: bytes, needles: Sequence[bytes]) -> Iterator[Line]:
    wanted = (*needles, *_ENDS)
    if not any(needle in block for needle in wanted):
        return
    for line in block.splitlines():
        if any(needle in line for needle in wanted):
            event = _parsed(line)
            if event is not None:
                yield event


def _parsed(line: bytes) -> dict[str, Any] | None:
    """The event of a line; None: it is damaged."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    whole = isinstance(event, dict) and isinstance(event.get("time"), int)
    return event if whole and isinstance(event.get("event"), str) else None


def read_audit(audit: Location, stories: dict[str, Story]) -> None:
    """Add what an audit knows: its findings, and the events of jobs that are not in the logs.

    Raises:
        StoreError: there is no audit.
    """
    store = Store(audit)
    if store.current is None:
        raise StoreError(f"no audit at {audit}")
    nodes = store.manifest.nodes
    for row in _chosen(audit, JOBS, ("id", "queue", "trace"), "id", list(stories)):
        story = stories[row["id"]]
        if not story.lines:
            story.lines = [
                {"time": step.time, "node": nodes[step.node], "queue": row["queue"] or "?", **what}
                for step in tr.unpack(row["trace"])
                for kind, _, reason in [tr.NAMES[step.code].partition(":")]
                for what in [{"event": kind, **({"reason": reason} if reason else {})}]
            ]
    for row in _chosen(audit, FINDINGS, ("job", "kind", "reason"), "job", list(stories)):
        why = f" ({row['reason']})" if row["reason"] else ""
        stories[row["job"]].findings.append(f"The audit found: {row['kind']}{why}.")


def _chosen(
    audit: Location, table: str, columns: Sequence[str], key: str, ids: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """The rows of a table whose ``key`` is one of ``ids``."""
    wanted = pa.schema([COLUMNS[table].field(name) for name in columns])
    values = pa.array(ids, wanted.field(key).type)
    for file in table_files(audit, table):
        for rows in rows_of(file, wanted):
            yield from rows.filter(pc.is_in(rows.column(key), value_set=values)).to_pylist()


def ask_nodes(options: argparse.Namespace, stories: dict[str, Story]) -> dict[str, str]:
    """Add what the nodes say now. Returns their addresses, by id.

    Raises:
        WireError: no node can be reached.
    """
    ids = list(stories)
    with closing(Nodes(addresses(options), login(options), True, _SECONDS)) as nodes:
        replies = nodes.ask([("HELLO",), *(("SHOW", id, "MAXBODY", 0) for id in ids)])
        missing = [address for address in nodes.addresses() if address not in replies]
    if not replies:
        raise WireError(f"no node can be reached: {options.nodes}")
    names: dict[str, str] = {}
    for address, (hello, *shown) in replies.items():
        if isinstance(hello, list):
            names[text_of(hello[1])] = address
        for id, fields in zip(ids, shown, strict=True):
            if isinstance(fields, list):
                stories[id].now.append(_shown(address, columns_of(fields)))
    away = "".join(f" ({address} does not answer)" for address in missing)
    for story in stories.values():
        if story.lines and not story.now:
            story.now.append(f"Now no node has it{away}.")
    return names


def _shown(address: str, job: dict[str, Any]) -> str:
    """What a node says about a job now."""
    text = f"Now node {address} has it: {job['state']} in queue {job['queue']}"
    text += f", {humanize.duration(job['ttl'])} left to live"
    for field, what in ("next_requeue_within", "queued again"), ("next_awake_within", "looked at"):
        if job.get(field):
            text += f", {what} in {humanize.duration(job[field] / 1000)}"
            break
    text += f", {job['nacks']} NACKs, {job['additional_deliveries']} other deliveries again"
    if job.get("dead_from"):
        first = job.get("first_id") or "?"
        text += f"; the dead letter of {first} from queue {job['dead_from']}"
    if job.get("added_to"):
        text += f"; it was added to queue {job['added_to']}"
    if job.get("last_reason"):
        text += f"; the last worker said: {job['last_reason']}"
    return f"{text}."
