"""The OpenAPI document of the API, from the table of its addresses."""

import re
from collections.abc import Iterable
from typing import Any, Final

from disque_console.web.api import schemas
from disque_console.web.api.endpoint import Endpoint, Parameter
from disque_trio.version import VERSION

ROOT: Final = "/api/v1"
_SCHEME: Final = "token"


def document(endpoints: Iterable[Endpoint], prefix: str) -> dict[str, Any]:
    """The document of a console whose paths begin with ``prefix``."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        methods = paths.setdefault(endpoint.path, {})
        methods[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Disque console",
            "version": VERSION,
            "description": "What the pages of the console show and do.",
        },
        "servers": [{"url": f"{prefix}{ROOT}"}],
        "components": {"securitySchemes": {_SCHEME: {"type": "http", "scheme": "bearer"}}},
        "paths": paths,
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    answers = {
        400: "A parameter is wrong.",
        401: "The token is missing, or no longer valid.",
        **({413: "The body is too large.", 415: "It is not JSON."} if endpoint.body else {}),
        **endpoint.statuses,
    }
    if endpoint.role is None:
        del answers[401]
    responses: dict[str, Any] = {
        str(status): {"description": about, "content": _json(schemas.ERROR)}
        for status, about in sorted(answers.items())
    }
    if endpoint.answer is None:
        responses["204"] = {"description": "Done."}
    else:
        responses["200"] = {"description": "Done.", "content": _json(endpoint.answer)}
    name = re.sub(r"[^a-z]+", "_", f"{endpoint.method} {endpoint.path}".lower()).strip("_")
    operation: dict[str, Any] = {
        "operationId": name,
        "summary": endpoint.about.replace("``", "`"),
        "responses": responses,
        "security": [] if endpoint.role is None else [{_SCHEME: []}],
    }
    if endpoint.parameters:
        operation["parameters"] = [_parameter(endpoint, each) for each in endpoint.parameters]
    if endpoint.body is not None:
        operation["requestBody"] = {"required": True, "content": _json(endpoint.body)}
    return operation


def _parameter(endpoint: Endpoint, parameter: Parameter) -> dict[str, Any]:
    in_path = f"{{{parameter.name}}}" in endpoint.path
    return {
        "name": parameter.name,
        "in": "path" if in_path else "query",
        "required": in_path,
        "description": parameter.about.replace("``", "`"),
        "schema": parameter.schema,
    }


def _json(schema: schemas.Schema) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
