"""Storage of Prefect's concurrency leases in the servers of docker-compose.yml:
`PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE` names this module.

Leases are on disk, to survive a restart, and last as long as a run may be cut off before it counts as dead: Prefect's
own five minutes end a run whose server was away for longer.
"""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from prefect.server.concurrency.lease_storage import filesystem

from superworkflow.infra.process.heartbeat import GRACE_SECONDS


class ConcurrencyLeaseStorage(filesystem.ConcurrencyLeaseStorage):
    """Prefect's storage, with longer leases."""

    async def renew_lease(self, lease_id: UUID, ttl: timedelta) -> bool:
        return await super().renew_lease(lease_id, max(ttl, timedelta(seconds=GRACE_SECONDS)))
