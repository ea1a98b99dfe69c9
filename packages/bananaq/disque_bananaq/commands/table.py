"""bananaq's command table: declares every command once, with its documentation."""

from disque_bananaq.commands import events, okq
from disque_bananaq.core.broker import Broker
from disque_trio.respserver.access import ADD, ALL, KNOW, TAKE
from disque_trio.respserver.command import Command
from disque_trio.respserver.commands import connection
from disque_trio.respserver.commands.common import common_commands


def build_table(with_okq: bool = True) -> dict[bytes, Command[Broker]]:
    """Return a new command table, names in lower case, optionally with the commands of okq."""
    # Of two commands with the same name, the last one counts.
    commands: list[Command[Broker]] = [
        *common_commands(),
        *_connection(),
        *_of_events(),
        *(_of_okq() if with_okq else []),
    ]
    return {command.name.encode(): command for command in commands}


# A command with the flag "overlaps" may begin while earlier ones of its client are in progress.


def _of_events() -> list[Command[Broker]]:
    return [
        Command("qadd", -4, "write denyoom fast overlaps", events.qadd,
                "queue expire-seconds contents [NOBLOCK]",
                "Add an event to a queue; returns its id.", "events", needs={"queue": ADD}),
        Command("qget", -3, "write fast overlaps @blocking", events.qget,
                "queue group [EX seconds] [BLOCK seconds]",
                "Take the next event for a group: id and contents, or null.", "events",
                needs={"queue": TAKE}),
        Command("qack", -3, "write fast overlaps", events.qack,
                "queue group id [REDO]  (okq: queue id [REDO])",
                "Acknowledge an event (REDO: give it back, to be delivered again at once); "
                "returns 1, or 0 if the consumer no longer has it.",
                "events", needs={"queue": TAKE}),
        Command("qworking", -4, "write fast overlaps", events.qworking,
                "queue group id [EX seconds]",
                "Keep an event for longer; returns 1, or 0 if it is too late.", "events",
                needs={"queue": TAKE}),
        Command("qnotify", -2, "readonly @blocking", events.qnotify,
                "group timeout [queue ...]  (okq: timeout)",
                "Wait until a queue has an event for a group; returns its name, or null.",
                "events", needs={"queue": TAKE}),
        Command("qflush", 2, "write @dangerous", events.qflush, "queue",
                "Remove all events of a queue.", "events", needs={"queue": TAKE}),
        Command("qstatus", -1, "readonly", events.qstatus, "[queue ...] [GROUPS group ...]",
                "Counts for each queue and group.", "events", needs={"queue": KNOW | ALL}),
        Command("qinfo", -1, "readonly", events.qinfo, "[queue ...] [GROUPS group ...]",
                "The same as readable lines.", "events", needs={"queue": KNOW | ALL}),
    ]  # fmt: skip


def _of_okq() -> list[Command[Broker]]:
    return [
        Command("qregister", -1, "readonly fast", okq.qregister, "[queue ...]",
                "Become a consumer of these queues, for QNOTIFY.", "okq",
                needs={"queue": TAKE}),
        Command("qlpush", -4, "write denyoom fast overlaps", okq.qlpush,
                "queue id contents [NOBLOCK]", "Add an event with an id of your own.", "okq",
                needs={"queue": ADD}),
        Command("qrpush", -4, "write denyoom fast overlaps", okq.qrpush,
                "queue id contents [NOBLOCK]", "Add it as the next one to be taken.", "okq",
                needs={"queue": ADD}),
        Command("qrpop", -2, "write fast overlaps", okq.qrpop, "queue [EX seconds]",
                "Take the next event: id and contents, or null.", "okq", needs={"queue": TAKE}),
        Command("qlpeek", 2, "readonly fast overlaps", okq.qlpeek, "queue",
                "Look at the newest event.", "okq", needs={"queue": TAKE}),
        Command("qrpeek", 2, "readonly fast overlaps", okq.qrpeek, "queue",
                "Look at the event that QRPOP would take.", "okq", needs={"queue": TAKE}),
    ]  # fmt: skip


def _connection() -> list[Command[Broker]]:
    return [
        Command("hello", -1, "readonly loading skip_monitor fast", connection.hello,
                "[2|3 [AUTH username password] [SETNAME name]]",
                "Redis's handshake.", "connection", unauthenticated=True),
        Command("reset", 1, "readonly loading fast", okq.reset, "",
                "As if newly connected.", "connection", unauthenticated=True),
    ]  # fmt: skip
