"""The state of a role that an operation or a context holds, or may hold."""

import secrets
from dataclasses import dataclass, field
from functools import partial


@dataclass(eq=False, slots=True)
class Hold:
    """A role, as one operation or context has it.

    Attributes:
        role: "producer" or "consumer". uid: the client's id. number: of this hold, random.
        held: it is ours between commands. doubtful: it may be; the reply that says so was lost.
        lost: somebody else took it from us. awaited: what a late reply says of it is waited for.
    """

    role: str
    uid: str
    number: str = field(default_factory=partial(secrets.token_hex, 8))
    held: bool = False
    doubtful: bool = False
    lost: bool = False
    awaited: bool = False
