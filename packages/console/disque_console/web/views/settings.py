"""The settings of the nodes: all of them, and one."""

from disque_console.model.settings import Setting, read, sections
from disque_console.web.answers import parted
from disque_console.web.visit import Missing, Shown, Visit


async def view(visit: Visit) -> Shown:
    """The settings of a node, and where other nodes differ."""
    good, problems = parted(await visit.every("CONFIG", "GET", "*"))
    settings = read(good)
    told = [address for address, _ in good]
    node = visit.query("node")
    if node not in told:
        node = told[0] if told else ""
    search = visit.query("search").strip()
    only = visit.query("only") == "different"
    return Shown(
        {
            "sections": sections(settings, search, only),
            "nodes": told,
            "node": node,
            "search": search,
            "only": only,
            "problems": problems,
            "all": len(settings),
        }
    )


async def one(visit: Visit) -> Shown:
    """A setting, on all nodes."""
    name = visit.query("name").lower()
    if not name:
        raise Missing("The address names no setting.")
    pattern = "".join("\\" + letter if letter in "*?[]\\" else letter for letter in name)
    command = ("CONFIG", "GET", pattern.encode("utf-8", "surrogateescape"))
    good, problems = parted(await visit.every(*command))
    setting = read(good).get(name, Setting(name))
    if good and not setting.values:
        raise Missing("No node has this setting.")
    return Shown(
        {"setting": setting, "nodes": [address for address, _ in good], "problems": problems}
    )
