"""An address of the API, and how its parameters are read."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from disque_console.model.roles import Role
from disque_console.web.api.schemas import Schema
from disque_console.web.visit import Visit

Given: TypeAlias = Mapping[str, Any]
"""The values of parameters by name; ``body`` is that of the request."""

_WHOLE: Final = re.compile(r"-?[0-9]{1,15}")


class Problem(Exception):
    """What is wanted cannot be done. status: of the answer; the text is for the user."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter: in the path if the path has its name, otherwise in the query.

    Attributes:
        schema: of its values: ``integer`` with limits, ``boolean``, or ``string``. With a
            ``default`` it may be missing.
    """

    name: str
    about: str
    schema: Schema

    def read(self, text: str) -> Any:
        """The value that ``text`` is. Raises Problem."""
        schema = self.schema
        if schema["type"] == "integer":
            number = int(text) if _WHOLE.fullmatch(text) else None
            if number is None or not schema["minimum"] <= number <= schema["maximum"]:
                limits = f"from {schema['minimum']} to {schema['maximum']}"
                raise Problem(400, f"{self.name} must be a whole number {limits}")
            return number
        if schema["type"] == "boolean":
            if text not in ("true", "false"):
                raise Problem(400, f"{self.name} must be true or false")
            return text == "true"
        if "enum" in schema and text not in schema["enum"]:
            raise Problem(400, f"{self.name} must be one of {', '.join(schema['enum'])}")
        if "pattern" in schema and not re.fullmatch(schema["pattern"], text):
            raise Problem(400, f"{self.name} is not one that was told")
        return text


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A method of an address.

    Attributes:
        path: below ``/api/v1``; ``{name}`` is a parameter, and may have slashes.
        about: what it does. role: the lowest that may; None: it needs no token.
        serve: makes the answer; None for none. Raises Problem, Missing.
        answer: its schema. statuses: of answers that are errors, besides those that all have.
        body: the schema of the request's body, which is JSON; None if it has none.
    """

    method: str
    path: str
    about: str
    role: Role | None
    serve: Callable[[Visit, Given], Awaitable[Any]]
    answer: Schema | None
    parameters: Sequence[Parameter] = ()
    body: Schema | None = None
    statuses: Mapping[int, str] = field(default_factory=dict)

    def read(self, visit: Visit) -> dict[str, Any]:
        """The parameters of a request. Raises Problem."""
        given: dict[str, Any] = {}
        named = visit.request.path_params
        asked = visit.query_fields
        for parameter in self.parameters:
            if parameter.name in named:
                given[parameter.name] = parameter.read(named[parameter.name])
                continue
            values = asked.get(parameter.name, [])
            if len(values) > 1:
                raise Problem(400, f"{parameter.name} is given more than once")
            given[parameter.name] = (
                parameter.read(values[0]) if values else parameter.schema.get("default")
            )
        for name in asked:
            if name not in given or name in named:
                raise Problem(400, f"there is no parameter {name!r:.100}")
        return given
