"""The state of a role that an operation or a context holds or may hold."""

import secrets
from dataclasses import dataclass, field
from functools import partial


@dataclass(eq=False, slots=True)
class Hold:
    """A role, as held by one operation or context.

    Attributes:
        role: "producer" or "consumer".
        uid: the id of the client.
        number: the random number of this hold.
        held: whether the role is ours between commands.
        doubtful: whether it may be ours; the reply that would say so was lost.
        lost: whether somebody else took it from us.
        awaited: whether a late reply, which says more about it, is being waited for.
    """

    role: str
    uid: str
    number: str = field(default_factory=partial(secrets.token_hex, 8))
    held: bool = False
    doubtful: bool = False
    lost: bool = False
    awaited: bool = False
