"""The figures about jobs and queues that INFO shows."""

from disque_trio.node.core.delivery.deliveries import Deliveries
from disque_trio.node.core.lifecycle.dead_letters import DeadLetters
from disque_trio.node.core.queues.limits import BY_ACTIVE, BY_GROUPS, BY_RATE
from disque_trio.node.core.queues.store import JobStore
from disque_trio.node.core.shared.sharing import SharedMaps
from disque_trio.node.core.ticks import Ticks
from disque_trio.node.core.topics import Topics
from disque_trio.node.core.unique.claims import Claims


class Figures:
    """The figures of one node.

    Args:
        store, dead_letters, claims, ticks, topics, deliveries, shared_maps: have the counts.
    """

    def __init__(
        self,
        store: JobStore,
        dead_letters: DeadLetters,
        claims: Claims,
        ticks: Ticks,
        topics: Topics,
        deliveries: Deliveries,
        shared_maps: SharedMaps,
    ) -> None:
        self._store = store
        self._dead_letters = dead_letters
        self._claims = claims
        self._ticks = ticks
        self._topics = topics
        self._consumers = deliveries.consumers
        self._interests = deliveries.interests
        self._shared_maps = shared_maps

    def sections(self) -> "dict[str, dict[str, str | int | float]]":
        """The sections of INFO and their fields."""
        store = self._store
        held = store.limits.held_back()
        pages = store.queues.pages
        shared = self._shared_maps.kinds.values()
        return {
            "clients": {
                "consuming_clients": self._consumers.count,
                "jobs_pushed_in_hand": self._consumers.in_hand,
                "patterns": len(self._interests.by_pattern),
            },
            "memory": {"maxmemory_policy": "acks" if store.evicts else "noeviction"},
            "jobs": {
                "registered_jobs": store.jobs.count + pages.jobs,
                "jobs_waiting_retry": len(store.progress.waiting) + pages.number_retried(),
                "unique_keys": store.uniques.entries.count,
                "paging_active": int(not pages.off),
                "paging_jobs": pages.jobs,
                "paging_bytes_disk": pages.disk,
                "paging_bytes_index": pages.index_bytes,
                "paging_reads": pages.reads,
                "paging_waits": pages.waits,
                "paging_lost": pages.lost,
                "paging_problem": pages.problem,
            },
            "queues": {
                "registered_queues": store.queues.index.count,
                "policies": store.policies.count,
                "schedules": self._ticks.schedules.count,
                "bindings": self._topics.bindings.count,
                "schedules_without_rights": len(self._ticks.makers.stopped),
                "bindings_without_rights": len(self._topics.makers.stopped),
                "shared_of_newer_releases": sum([kind.strange() for kind in shared]),
                "shared_lines_skipped": sum([kind.skipped for kind in shared]),
                "queues_held_by_rate": len(held.get(BY_RATE, [])),
                "queues_held_by_active": len(held.get(BY_ACTIVE, [])),
                "queues_held_by_groups": len(held.get(BY_GROUPS, [])),
                "jobs_held_by_limits": sum(
                    [queue.length for some in held.values() for queue in some]
                ),
            },
            "stats": {
                "total_jobs_added": store.total_added,
                "total_jobs_delivered": store.total_delivered,
                "total_jobs_acked": store.total_acked,
                "total_jobs_requeued": store.total_requeued,
                "total_jobs_expired": store.outcomes.total_expired,
                "total_jobs_evicted": store.total_evicted,
                "total_jobs_cancelled": store.outcomes.total_cancelled,
                "total_jobs_updated": store.total_updated,
                "total_jobs_dead": self._dead_letters.total_dead,
                "total_jobs_redriven": self._dead_letters.total_redriven,
                "total_jobs_repeated": self._claims.repeats,
                "total_keys_evicted": store.uniques.total_evicted,
                "total_ticks": self._ticks.total,
                "total_ticks_missed": self._ticks.missed,
                "shared_changes_refused": sum([kind.refused for kind in shared]),
                "results_kept": len(store.outcomes.kept.by_id),
            },
        }

    def reset(self) -> None:
        """Set all counters to zero."""
        self._store.reset_stats()
        self._dead_letters.total_dead = self._dead_letters.total_redriven = 0
        for kind in self._shared_maps.kinds.values():
            kind.refused = 0
        self._store.uniques.total_evicted = 0
        pages = self._store.queues.pages
        pages.reads = pages.waits = 0
        self._claims.repeats = self._ticks.total = self._ticks.missed = 0
