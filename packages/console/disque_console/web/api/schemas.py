"""The shapes of requests and answers, as JSON Schema."""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from disque_console.model.roles import Role

Schema: TypeAlias = Mapping[str, Any]


def record(**fields: "str | Schema") -> Schema:
    """An object with exactly these fields: each a schema, or the name of a type, with ``?`` after
    it if it may be null."""
    shapes = {name: _shape(field) for name, field in fields.items()}
    return {
        "type": "object",
        "properties": shapes,
        "required": list(shapes),
        "additionalProperties": False,
    }


def array(of: "str | Schema") -> Schema:
    """An array of these."""
    return {"type": "array", "items": _shape(of)}


def _shape(field: "str | Schema") -> Schema:
    if not isinstance(field, str):
        return field
    name = field.removesuffix("?")
    return {"type": [name, "null"] if field.endswith("?") else name}


ERROR: Final = record(error="string")
PROBLEMS: Final = array(record(node="string", error="string"))
"""The nodes that did not answer, and why."""

ALARM: Final = record(
    kind="string",
    severity="string",
    since="integer",
    about="string",
    cause="string",
    process="integer",
)
NODE: Final = record(
    node="string",
    id="string",
    state="string",
    since="number",
    problem="string",
    version="string",
    uptime="integer",
    jobs="integer",
    queues="integer",
    clients="integer",
    used_memory="integer",
    maxmemory="integer",
    jobs_on_disk="integer",
    added_per_second="number?",
    delivered_per_second="number?",
    acked_per_second="number?",
    failed_per_second="number?",
    alarms=array(ALARM),
)
QUANTILES: Final = record(p50="number?", p95="number?", p99="number?")
QUEUE: Final = record(
    queue="string",
    queued="integer",
    added_per_second="number?",
    delivered_per_second="number?",
    acked_per_second="number?",
    expired_per_second="number?",
    oldest="number",
    waiting_clients="integer",
    never_asked_for="boolean",
    paused="string",
    held_back_by=array("string"),
    groups="integer",
    in_hand="integer?",
    delayed="integer?",
    dead="integer?",
    nodes=array("string"),
    moved_per_second="number?",
    waiting=QUANTILES,
    processing=QUANTILES,
    older_nodes=array("string"),
)
_JOB: Final = record(
    id="string",
    queue="string",
    state="string",
    node="string",
    added="number",
    ttl="integer",
    retry="integer",
    delay="integer",
    copies="integer",
    priority="integer",
    tries="integer",
    nacks="integer",
    additional_deliveries="integer",
    due_in="number?",
    running_for="number?",
    client="integer?",
    group="string",
    unique="string",
    note="string",
    added_to="string",
    headers=array(array("string")),
    last_error="string",
    dead_from="string?",
    dead_why="string?",
    first_id="string?",
    progress="number?",
    progress_text="string",
    body_size="integer",
)
JOB: Final = {
    **_JOB,
    "properties": {
        **_JOB["properties"],
        "body": {"type": "string"},
        "body_base64": {"type": "string"},
    },
}
WORKER: Final = record(
    worker="string",
    addresses=array("string"),
    user="string",
    nodes=array("string"),
    connections="integer",
    waiting="integer",
    connected_for="integer",
    idle="integer",
    queues=array("string"),
    part_of="string?",
    state="string?",
    slots="integer?",
    memory="integer?",
    jobs=array(
        record(
            id="string",
            queue="string",
            running_for="number?",
            progress="number?",
            progress_text="string",
        )
    ),
)
SCHEDULE: Final = record(
    name="string",
    times="string",
    tz="string",
    queue="string",
    options=array("string"),
    catchup="boolean",
    paused="boolean",
    next="number?",
    user="string",
    runs=array(record(at="number", id="string")),
    problems=PROBLEMS,
)
OVERVIEW: Final = record(
    nodes="integer",
    nodes_up="integer",
    queues="integer",
    queued="integer",
    oldest="number",
    jobs="integer",
    clients="integer",
    blocked_clients="integer",
    added_per_second="number?",
    delivered_per_second="number?",
    acked_per_second="number?",
    failed_per_second="number?",
)
ROLE: Final = {"type": "string", "enum": [str(role) for role in Role]}
ACTION: Final = record(name="string", title="string", role=ROLE, destroys="boolean")
OUTCOME: Final = record(
    result={"type": "string", "enum": ["done", "partly done", "failed"]},
    message="string",
    problems=array("string"),
)
TOKEN: Final = record(token="string", user="string", role=ROLE, expires="number")
LOGIN: Final = record(user="string", password="string")
FIELDS: Final = {
    "type": "object",
    "additionalProperties": {
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]
    },
}
"""The fields of an action, as its form has them: a text, or several."""
