"""The lookup tables that plans name: read again when they are due, and written before the plan.

A version is a file that is named by its content and by the epoch of the plan that named it first.
The ledger names the versions of the last epoch; a version that left is kept while a retained epoch
used it, as every other file is. A crash after the write leaves a file that no plan names.

A table that cannot be read does not stop the pipeline: the last version stays in use, and reading
is tried again. Only the first version, which is part of the pipeline, is never read here.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec

from headrace.log import paths
from headrace.log.content import digest_of, map_named, write_named
from headrace.operators.lookup.lookup import Lookup
from headrace.operators.lookup.refreshing import next_try, tables_due
from headrace.operators.lookup.table import LookupTable
from headrace.operators.lookup.versions import ChangedColumns, bytes_of, version_of
from headrace.pipeline.graph.topology import Topology
from headrace.plan.epoch import Plan, TableVersion
from headrace.plan.ledger import Ledger
from headrace.store.store import Store

_logger = logging.getLogger("headrace.lookup")


def refreshing(topology: Topology) -> dict[str, Lookup]:
    """The look-ups whose tables are refreshed, by name."""
    return {
        name: node.template
        for name, node in topology.graph.nodes.items()
        if isinstance(node.template, Lookup) and node.template.refresh is not None
    }


class PlannedTables:
    """The versions of lookup tables for the plans of a driver."""

    def __init__(self, store: Store, ledger: Ledger, topology: Topology) -> None:
        self._store, self._ledger = store, ledger
        self._lookups = refreshing(topology)
        self._read: dict[str, TableVersion] = {}
        """What this driver has read, whether or not a plan that names it was committed."""
        self._not_before: dict[str, int] = {}
        """When a table that could not be read is tried again."""
        self._unseen = set(self._lookups)
        """Look-ups whose first version in this driver's plans has not been looked at."""

    def prepare(self, plan: Plan) -> Plan:
        """Names in a new plan the versions that it uses; writes those that are new."""
        if not self._lookups:
            return plan
        committed = self._ledger.tables
        known = {
            name: max((v for v in (committed.get(name), self._read.get(name)) if v is not None),
                      key=lambda v: v.wall, default=None)
            for name in self._lookups
        }  # fmt: skip
        every = {name: lookup.refresh.every_us for name, lookup in self._lookups.items()
                 if lookup.refresh is not None}  # fmt: skip
        read_at = {n: None if version is None else version.wall for n, version in known.items()}
        due = tables_due(read_at, every, self._not_before, plan.wall)
        due += [name for name in self._built_otherwise(known, plan.wall) if name not in due]
        for name in due:
            version = self._version(name, known[name], plan)
            if version is not None:
                known[name] = self._read[name] = version
        tables = {name: version for name, version in known.items() if version is not None}
        return msgspec.structs.replace(plan, tables=tables)

    def _built_otherwise(self, known: Mapping[str, TableVersion | None], wall: int) -> list[str]:
        """The look-ups whose version has other columns than the table from which this driver's
        pipeline was built: its steps may name the new ones."""
        found = []
        for name in sorted(self._unseen):
            version, lookup = known[name], self._lookups[name]
            if version is None or wall < self._not_before.get(name, wall):
                continue
            if lookup.refresh is not None:
                built = lookup.refresh.columns_of(lookup.side)
                have = lookup.refresh.columns_of(self._table(version))
                if built is not None and have is not None and sorted(built) != sorted(have):
                    found.append(name)  # looked at again, until it could be read
                    continue
            self._unseen.remove(name)
        return found

    def _table(self, version: TableVersion) -> LookupTable:
        return version_of(paths.digest_in(version.file), map_named(self._store, version.file))

    def _version(self, name: str, before: TableVersion | None, plan: Plan) -> TableVersion | None:
        lookup = self._lookups[name]
        found = lookup.side
        if before is not None:
            again = self._read_again(name, lookup, before, plan.wall)
            if again is None:
                return None
            found = again
        data = bytes_of(found)
        digest = digest_of(data)
        if before is not None and paths.digest_in(before.file) == digest:
            return TableVersion(before.file, plan.wall)
        label = paths.content_name(plan.epoch, name, digest, ".arrow")
        file = f"{paths.tables_directory(name)}/{label}"
        write_named(self._store, file, data)
        return TableVersion(file, plan.wall)

    def _read_again(
        self, name: str, lookup: Lookup, before: TableVersion, wall: int
    ) -> LookupTable | None:
        refresh = lookup.refresh
        if refresh is None:
            return None
        try:
            columns = refresh.columns_of(lookup.side)
            if columns is None:  # it was empty when the pipeline was built: the last version tells
                columns = refresh.columns_of(self._table(before))
            found = refresh.read_again(columns)
        except ChangedColumns:
            raise
        except Exception as error:
            self._not_before[name] = next_try(wall, refresh.every_us)
            _logger.warning(
                "look-up %r: its table could not be read again (%s: %s); the version before stays "
                "in use, and it is tried again later",
                name, type(error).__name__, error,
            )  # fmt: skip
            return None
        self._not_before.pop(name, None)
        return found
