# SPDX-License-Identifier: MIT
# mypy: ignore-errors
"""Ray Serve's choice of a replica: the one that knows the most of the prompt, each in its turn otherwise.

A router, of which there is one in each ingress, remembers which blocks it has sent where, and replicas tell what they
were sent by others (``record_routing_stats``), so a request finds its replica through any ingress.
"""

from __future__ import annotations

from typing import Any

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from .prefixes import Branches, Known


class PrefixRouter(RequestRouter):
    """Takes the digests of a prompt from the keyword ``blocks`` of a call.

    most_blocks: what is remembered of each replica. imbalance: a replica that has so many more answers under way than
    the least busy one is not asked for its prefix. is_prefix_aware False: each in its turn, always.
    """

    def initialize_state(self, most_blocks: int = 1024, imbalance: int = 8, is_prefix_aware: bool = True) -> None:
        self._most, self._imbalance, self._is_prefix_aware = most_blocks, imbalance, is_prefix_aware
        self._known: dict[ReplicaID, Known] = {}
        self._told: dict[ReplicaID, Any] = {}
        self._branches = Branches()
        self._turn = 0

    async def choose_replicas(self, candidate_replicas: list[RunningReplica],
                              pending_request: PendingRequest | None = None) -> list[list[RunningReplica]]:
        if pending_request is not None:
            pending_request.routing_context.should_backoff = True   # all replicas are asked each time
        replicas = sorted(candidate_replicas, key=lambda replica: replica.replica_id.unique_id)
        if not replicas:
            return []
        self._listen(replicas)
        blocks = pending_request.kwargs.get("blocks", []) if pending_request is not None else []
        best = self._best(replicas, blocks) if blocks and self._is_prefix_aware else None
        if best is None:
            self._turn += 1
            at = self._turn % len(replicas)
            return [[replica] for replica in replicas[at:] + replicas[:at]]
        return [[best], [replica for replica in replicas if replica is not best]]

    def _listen(self, replicas: list[RunningReplica]) -> None:
        """Forgets replicas that are gone, and adds what the others have told since."""
        ids = {replica.replica_id for replica in replicas}
        self._known = {key: known for key, known in self._known.items() if key in ids}
        self._told = {key: told for key, told in self._told.items() if key in ids}
        for replica in replicas:
            told = replica.routing_stats.get("blocks") if replica.routing_stats else None
            if told and self._told.get(replica.replica_id) is not told:
                self._told[replica.replica_id] = told
                known = self._known.setdefault(replica.replica_id, Known(self._most))
                fresh = known.blocks()
                known.add_all(told)
                known.add_all(fresh)   # what this router has sent itself is more recent

    def _best(self, replicas: list[RunningReplica], blocks: list[int]) -> RunningReplica | None:
        lengths = {replica.replica_id: self.replica_queue_len_cache.get(replica.replica_id) or 0
                   for replica in replicas}
        least = min(lengths.values())
        covered = {replica.replica_id: self._known[replica.replica_id].covers(blocks)
                   for replica in replicas if replica.replica_id in self._known
                   and lengths[replica.replica_id] - least < self._imbalance}
        most = max(covered.values(), default=0)
        if most == 0 or self._branches.is_shared(blocks, most):
            return None
        alike = [replica for replica in replicas if covered.get(replica.replica_id) == most]
        return min(alike, key=lambda replica: lengths[replica.replica_id])

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any) -> None:
        blocks = pending_request.kwargs.get("blocks", [])
        if blocks:
            self._known.setdefault(replica_id, Known(self._most)).add(blocks)
            self._branches.add(blocks)


__all__ = ["PrefixRouter"]
