"""What a policy says, in sentences."""

from disque_trio import humanize
from disque_trio.client import Policy
from disque_trio.overview.names import shown


def sentences(policy: Policy) -> list[str]:
    """What ``policy`` says of the jobs of its queues."""
    return [
        f"{text[0].upper()}{text[1:]}."
        for text in (_attempts(policy), *_deliveries(policy), *_groups(policy), *_defaults(policy))
        if text
    ]


def _attempts(policy: Policy) -> str:
    """How often a job is delivered, and what becomes of it then."""
    dead = f"it goes to {shown(policy.dead)}" if policy.dead else ""
    if dead and policy.dead_ttl:
        dead += f" and stays there for {humanize.duration(policy.dead_ttl)}"
    pause = ""
    if policy.backoff is not None:
        least, most = map(humanize.duration, policy.backoff)
        pause = f"with pauses of {least} to {most}" if least != most else f"with pauses of {least}"
    if policy.attempts:
        times = "once" if policy.attempts == 1 else f"up to {humanize.count(policy.attempts)} times"
        words = [f"a job is delivered {times}", pause, f"then {dead}" if dead else ""]
        return ", ".join(filter(None, words))
    if dead:
        when = f"a job that expires, or that a worker gives up, is dead: {dead}"
        return f"{when}; others come again {pause}" if pause else when
    return f"jobs come again {pause}" if pause else ""


def _deliveries(policy: Policy) -> list[str]:
    """How fast jobs are delivered, and how many at once."""
    found = []
    if policy.rate:
        burst = f", {humanize.count(policy.burst)} at once after a pause" if policy.burst else ""
        found.append(f"at most {shown(policy.rate)} are delivered{burst}")
    if policy.active:
        found.append(f"workers have at most {humanize.count(policy.active)} at the same time")
    return found


def _groups(policy: Policy) -> list[str]:
    """How the groups of jobs are served."""
    found = []
    if policy.groups == "fair":
        found.append("groups take turns")
    elif policy.groups == "fifo":
        found.append("groups take turns, and each has one job in hand at a time")
    if policy.group_rate:
        burst = ""
        if policy.group_burst:
            burst = f", {humanize.count(policy.group_burst)} at once after a pause"
        found.append(f"of a group at most {shown(policy.group_rate)} are delivered{burst}")
    if policy.group_active:
        most = humanize.count(policy.group_active)
        found.append(f"workers have at most {most} of a group at the same time")
    return found


def _defaults(policy: Policy) -> list[str]:
    """What applies to jobs for which their producers say nothing else, and what is refused."""
    words = []
    if policy.delay:
        words.append(f"wait {humanize.duration(policy.delay)} before the first delivery")
    if policy.retry is not None:
        retry = f"come again after {humanize.duration(policy.retry)} without an answer"
        words.append(retry if policy.retry else "are delivered at most once")
    if policy.ttl:
        words.append(f"live for {humanize.duration(policy.ttl)}")
    if policy.replicate:
        nodes = "node" if policy.replicate == 1 else "nodes"
        words.append(f"are kept on {humanize.count(policy.replicate)} {nodes}")
    found = [f"if their producers say nothing else, jobs {_listed(words)}"] if words else []
    limits = []
    if policy.maxlen:
        limits.append(f"{humanize.count(policy.maxlen)} jobs")
    if policy.maxbytes:
        limits.append(f"bodies of {humanize.size(policy.maxbytes)}")
    if limits:
        found.append(f"further jobs are refused once {' or '.join(limits)} are queued")
    return found


def _listed(words: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
