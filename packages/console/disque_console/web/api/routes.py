"""The routes of the API: reads requests, checks them by the table, answers with JSON."""

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from disque_console.web.acting import Acting
from disque_console.web.api.document import ROOT, document
from disque_console.web.api.endpoint import Endpoint, Problem
from disque_console.web.api.schemas import FIELDS, Schema
from disque_console.web.api.table import endpoints
from disque_console.web.api.writing import Writing
from disque_console.web.console import Console
from disque_console.web.visit import MAX_FORM, Missing, Visit
from disque_trio.overview.names import shown

_LOGIN: Final = 64 << 10  # bytes of a body that anybody may send


def routes(console: Console, acting: Acting, visit_of: Callable[[Request], Visit]) -> list[Route]:
    """The routes, below the prefix."""
    table = endpoints(Writing(acting))
    described = document(table, console.prefix)

    async def openapi(request: Request) -> Response:
        return JSONResponse(described)

    found = [Route(f"{ROOT}/openapi.json", openapi, methods=["GET"])]
    for path in dict.fromkeys(endpoint.path for endpoint in table):
        methods = {each.method: each for each in table if each.path == path}
        place = ROOT + path.replace("}", ":path}")
        found.append(Route(place, _serving(methods, visit_of), methods=[*methods]))
    return found


def _serving(
    methods: dict[str, Endpoint], visit_of: Callable[[Request], Visit]
) -> Callable[[Request], Awaitable[Response]]:
    async def serve(request: Request) -> Response:
        endpoint = methods["GET" if request.method == "HEAD" else request.method]
        visit = visit_of(request)
        try:
            given = endpoint.read(visit)
            if endpoint.body is not None:
                given["body"] = await _body(visit, endpoint)
            answer = await endpoint.serve(visit, given)
        except Problem as problem:
            return error(problem.status, str(problem))
        except Missing as missing:
            return error(404, str(missing))
        return Response(status_code=204) if endpoint.answer is None else Json(answer)

    return serve


class Json(JSONResponse):
    """JSON in which bytes of names that are not UTF-8 are ``\\udcXX``."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content).encode()


def error(status: int, text: str) -> Response:
    """An answer that says what is wrong."""
    return Json({"error": shown(text)}, status)


async def _body(visit: Visit, endpoint: Endpoint) -> Any:
    """The body of a request. Raises Problem, TooLarge, TooSlow."""
    kind = visit.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    data = await visit.body(_LOGIN if endpoint.role is None else MAX_FORM)
    if kind != "application/json":
        raise Problem(415, "the body must be JSON, with content-type application/json")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise Problem(400, "the body is not JSON") from None
    assert endpoint.body is not None
    if problem := _wrong(value, endpoint.body):
        raise Problem(400, problem)
    return value


def _wrong(value: Any, schema: Schema) -> str:
    """Why an object does not fit one of the schemas of bodies; empty if it does."""
    if not isinstance(value, dict):
        return "the body must be an object"
    if schema is FIELDS:
        for name, field in value.items():
            several = isinstance(field, list) and all(isinstance(one, str) for one in field)
            if not isinstance(field, str) and not several:
                return f"{name:.100} must be a text, or an array of texts"
        return ""
    names = schema["properties"].keys()
    if value.keys() != names or not all(isinstance(one, str) for one in value.values()):
        return f"the body must have the texts {', '.join(names)}, and nothing else"
    return ""
