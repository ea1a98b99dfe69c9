"""INFO: the node's fields, those of the process around it merged in."""

from typing import TypeAlias

from disque_trio.core.node import Node

Fields: TypeAlias = "dict[str, str | int | float]"

SECTIONS = ("server", "clients", "memory", "jobs", "queues", "persistence", "stats", "cpu")


def info_text(node: Node, section: str) -> str:
    """The text of INFO for one section, "default", or "all"; empty for an unknown one."""
    wanted: tuple[str, ...]
    if section == "default":
        wanted = SECTIONS
    elif section in ("all", "everything"):
        wanted = (*SECTIONS, "commandstats")
    else:
        wanted = (section,)
    sections = _own_sections(node)
    for name, fields in node.host.info().items():
        sections[name] = sections.get(name, {}) | fields
    parts: list[str] = []
    for name in wanted:
        if name in sections:
            lines = [f"{key}:{value}\r\n" for key, value in sections[name].items()]
            parts.append(f"# {name.capitalize()}\r\n" + "".join(lines))
    return "\r\n".join(parts)


def _own_sections(node: Node) -> dict[str, Fields]:
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
    return {
        "clients": {"blocked_clients": node.blocked_clients},
        "memory": {
            "used_memory": memory.used,
            "used_memory_human": human(memory.used),
            "used_memory_peak": peak,
            "used_memory_peak_human": human(peak),
            "maxmemory": memory.limit,
            "maxmemory_human": human(memory.limit),
            "maxmemory_policy": "acks" if memory.policy_acks else "noeviction",
            "memory_level": memory.level(),
        },
        "jobs": {"registered_jobs": node.jobs.count},
        "queues": {"registered_queues": node.queue_index.count},
        "stats": {
            "total_commands_processed": node.total_commands,
            "total_jobs_added": node.total_added,
            "total_jobs_delivered": node.total_delivered,
            "total_jobs_acked": node.total_acked,
            "total_jobs_requeued": node.total_requeued,
            "total_jobs_expired": node.total_expired,
            "total_jobs_evicted": node.total_evicted,
        },
        "commandstats": commandstats,
    }


def human(size: float) -> str:
    """``size`` bytes as people read them: 1.50M."""
    for unit in ("B", "K", "M", "G"):
        if size < 1024:
            return f"{size:.0f}{unit}" if unit == "B" else f"{size:.2f}{unit}"
        size /= 1024
    return f"{size:.2f}T"
