"""INFO: merges the fields of the state machine with those of its process."""

from typing import Final, TypeAlias

from disque_trio.respserver.machine import Machine

Fields: TypeAlias = "dict[str, str | int | float]"

FIRST: Final = ("server", "clients", "memory")  # then those that only this kind of machine has
# Characters that would end the name of a field, as in Redis.
_UNSAFE: Final = str.maketrans("#:,=", "____")
LAST: Final = ("persistence", "stats", "cpu")


def info_text(node: Machine, section: str) -> str:
    """The text of INFO for one section, "default", or "all"; empty for an unknown one."""
    own = node.counts()
    more_own = [name for name in own if name not in FIRST + LAST]
    default = (*FIRST, *more_own, *LAST, "users", "processes", "alarms")
    wanted: tuple[str, ...]
    if section == "default":
        wanted = default
    elif section in ("all", "everything"):
        wanted = (*default, "commandstats")
    else:
        wanted = (section,)
    sections = _common_sections(node)
    for more in (own, node.host.info()):
        for name, fields in more.items():
            sections[name] = sections.get(name, {}) | fields
    parts: list[str] = []
    for name in wanted:
        if name in sections:
            lines = [f"{key}:{value}\r\n" for key, value in sections[name].items()]
            heading = "CPU" if name == "cpu" else name.capitalize()
            parts.append(f"# {heading}\r\n" + "".join(lines))
    return "\r\n".join(parts)


def _common_sections(node: Machine) -> dict[str, Fields]:
    memory = node.memory
    peak = memory.note_peak()
    commandstats: Fields = {}
    for command in node.commands.values():
        if command.calls:
            microseconds = command.nanoseconds // 1000
            commandstats[f"cmdstat_{command.name}"] = (
                f"calls={command.calls},usec={microseconds},"
                f"usec_per_call={command.nanoseconds / 1000 / command.calls:.2f}"
            )
    sections: dict[str, Fields] = {
        "clients": {"blocked_clients": node.blocked_clients},
        "memory": {
            "used_memory": memory.used,
            "used_memory_human": human(memory.used),
            "used_memory_peak": peak,
            "used_memory_peak_human": human(peak),
            "maxmemory": memory.limit,
            "maxmemory_human": human(memory.limit),
            "memory_level": memory.level(),
        },
        "stats": {"total_commands_processed": node.total_commands},
        "commandstats": commandstats,
    }
    users = _users(node)
    return sections | {"users": users} if users else sections


def _users(node: Machine) -> Fields:
    """A field for each user with a budget: what it uses of each limit, then the limit."""
    found: Fields = {}
    for user in node.users.sorted():
        if user.budget is None:
            continue
        words: list[str] = []
        used = node.used_by(user)
        for name, limit in user.budget.limits().items():
            if name == "rate":
                words.append(f"rate={limit}")
            else:
                words.append(f"{name}={used.get(name, 0)},max{name}={limit}")
        use = user.use
        words.append(f"waited={use.waited},refused={use.refused},closed={use.closed}")
        name = user.name.decode("utf-8", "replace").translate(_UNSAFE)
        found[f"user_{name}"] = ",".join(words)
    return found


def human(size: float) -> str:
    """``size`` bytes for people: 1.50M."""
    for unit in ("B", "K", "M", "G"):
        if size < 1024:
            return f"{size:.0f}{unit}" if unit == "B" else f"{size:.2f}{unit}"
        size /= 1024
    return f"{size:.2f}T"
