"""All addresses of the API."""

from collections.abc import Sequence
from typing import Final

from disque_console.model.roles import Role
from disque_console.web.api import reading, schemas
from disque_console.web.api.endpoint import Endpoint, Parameter
from disque_console.web.api.writing import Writing
from disque_trio.overview.queues import KEYS
from disque_trio.overview.records import STATES

_SOME: Final = {"type": "string", "default": ""}
_REFUSED: Final = "Too many wrong passwords."


def _number(default: int, least: int, most: int) -> schemas.Schema:
    return {"type": "integer", "minimum": least, "maximum": most, "default": default}


READING: Final = (
    Endpoint(
        "GET",
        "/overview",
        "The figures of the whole cluster.",
        Role.VIEWER,
        reading.overview,
        schemas.OVERVIEW,
    ),
    Endpoint(
        "GET",
        "/nodes",
        "All nodes, and what is wrong with them.",
        Role.VIEWER,
        reading.nodes,
        schemas.record(nodes=schemas.array(schemas.NODE)),
    ),
    Endpoint(
        "GET",
        "/queues",
        "Queues, in order, from an offset on.",
        Role.VIEWER,
        reading.queues,
        schemas.record(total="integer", queues=schemas.array(schemas.QUEUE)),
        (
            Parameter("search", "Part of the names, or a pattern: mail.*", _SOME),
            Parameter(
                "sort", "The order.", {"type": "string", "enum": list(KEYS), "default": "name"}
            ),
            Parameter("descending", "The highest first.", {"type": "boolean", "default": False}),
            Parameter("offset", "How many to leave out.", _number(0, 0, 10_000_000)),
            Parameter("limit", "How many to tell.", _number(100, 1, 1_000)),
        ),
    ),
    Endpoint(
        "GET",
        "/queues/{queue}",
        "A queue, with the jobs in hand, delayed and dead.",
        Role.VIEWER,
        reading.queue,
        schemas.QUEUE,
        (Parameter("queue", "Its name.", {"type": "string"}),),
        statuses={404: "There is no such queue."},
    ),
    Endpoint(
        "GET",
        "/jobs",
        "Jobs, as the nodes find them. ``next`` is the cursor of the next page, null at the end.",
        Role.VIEWER,
        reading.jobs,
        schemas.record(jobs=schemas.array(schemas.JOB), next="string?", problems=schemas.PROBLEMS),
        (
            Parameter("queue", "Only jobs of this queue.", _SOME),
            Parameter("group", "Only jobs of this group.", _SOME),
            Parameter(
                "state",
                "Only jobs in this state.",
                {"type": "string", "enum": ["", *STATES], "default": ""},
            ),
            Parameter("limit", "About how many.", _number(50, 1, 500)),
            Parameter("body", "How many bytes of each body.", _number(reading.BODY, 0, 65_536)),
            Parameter(
                "cursor",
                "Where to go on, from ``next``.",
                {"type": "string", "pattern": "^([0-9a-f]{40}:[0-9]{1,20})?$", "default": ""},
            ),
        ),
    ),
    Endpoint(
        "GET",
        "/jobs/{id}",
        "A job, with up to 64 KiB of its body.",
        Role.VIEWER,
        reading.job,
        schemas.JOB,
        (Parameter("id", "Its id.", {"type": "string"}),),
        statuses={404: "No node has this job.", 503: "Not all nodes answer."},
    ),
    Endpoint(
        "GET",
        "/workers",
        "The workers, and the jobs that they have.",
        Role.VIEWER,
        reading.workers,
        schemas.record(workers=schemas.array(schemas.WORKER), problems=schemas.PROBLEMS),
    ),
    Endpoint(
        "GET",
        "/schedules",
        "All schedules.",
        Role.VIEWER,
        reading.schedules,
        schemas.record(schedules=schemas.array(schemas.SCHEDULE), problems=schemas.PROBLEMS),
    ),
    Endpoint(
        "GET",
        "/actions",
        "What can be done, and who may.",
        Role.VIEWER,
        reading.actions,
        schemas.record(actions=schemas.array(schemas.ACTION)),
    ),
)


def endpoints(writing: Writing) -> Sequence[Endpoint]:
    """All of them."""
    return (
        *READING,
        Endpoint(
            "POST",
            "/actions/{name}",
            "Do something that the console's buttons do, without a question. The fields are those"
            " of its form; names of queues are written as they are.",
            Role.VIEWER,  # each action has its own
            writing.act,
            schemas.OUTCOME,
            (Parameter("name", "Of the action, from /actions.", {"type": "string"}),),
            schemas.FIELDS,
            {
                403: "The role is too low.",
                404: "There is no such action.",
                409: "Nothing could be done; the error says why.",
                500: "Nothing was done, because the audit cannot be written.",
            },
        ),
        Endpoint(
            "POST",
            "/token",
            "Log in. The token is for the header ``Authorization: Bearer TOKEN``, for 12 hours.",
            None,
            writing.log_in,
            schemas.TOKEN,
            body=schemas.LOGIN,
            statuses={
                403: "Wrong user or password.",
                409: "This console has no accounts: requests need no token.",
                429: _REFUSED,
                503: "Passwords cannot be checked now.",
            },
        ),
        Endpoint(
            "DELETE",
            "/token",
            "Log out: the token is no longer valid.",
            Role.VIEWER,
            writing.log_out,
            None,
        ),
    )
