"""A table of HBase: reads and writes of its rows, sent to the servers that have them.

`hbase:meta` says which region server has which rows. Regions move and split; then a server refuses,
they are looked up again, and what was refused is repeated. So every mutation given here must be one
that may be repeated.

This module must not know what cells mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import xxhash

from headrace.state.backends.hbase.messages import Admin_pb2, Client_pb2, HBase_pb2, Master_pb2
from headrace.state.backends.hbase.wire import HBaseCluster, HBaseRefusal

BY_NAME = HBase_pb2.RegionSpecifier.REGION_NAME
META = b"hbase:meta,,1"
META_PAGE = 1000
REQUEST_BYTES = 8 << 20
REQUEST_STEPS = 2000


@dataclass(frozen=True)
class Region:
    """A range of rows of a table, and the server that has it."""

    name: bytes
    start: bytes
    end: bytes
    server: tuple[str, int]
    opened: bytes
    """Changes whenever the region is opened again."""


@dataclass(frozen=True)
class RowStep:
    """What is asked of one row: a get, or mutations, perhaps under a condition."""

    row: bytes
    actions: list[Any]
    condition: Any = None


class _Request:
    """Steps for one server. Those without a condition share one part for each region."""

    def __init__(self) -> None:
        self.message = Client_pb2.MultiRequest()
        self.parts: list[list[int]] = []
        self._shared: dict[bytes, int] = {}
        self._bytes, self._steps = 0, 0

    @property
    def is_full(self) -> bool:
        return self._bytes > REQUEST_BYTES or self._steps == REQUEST_STEPS

    def add(self, index: int, step: RowStep, region: Region) -> None:
        at = self._shared.get(region.name) if step.condition is None else None
        if at is None:
            part = self.message.regionAction.add()
            part.region.type, part.region.value = BY_NAME, region.name
            at = len(self.parts)
            self.parts.append([])
            if step.condition is None:
                self._shared[region.name] = at
            else:
                part.atomic = True
                part.condition.CopyFrom(step.condition)
        part = self.message.regionAction[at]
        for action in step.actions:
            part.action.add(index=len(part.action)).MergeFrom(action)
            self._bytes += action.ByteSize()
        self.parts[at].append(index)
        self._steps += 1


class Table:
    """The rows of one table, found by region."""

    def __init__(self, cluster: HBaseCluster, namespace: bytes, name: bytes) -> None:
        """Sends nothing."""
        self.cluster, self._namespace, self._name = cluster, namespace, name
        self._regions: list[Region] = []

    # Rows -----------------------------------------------------------------

    def get(self, gets: Sequence[Any]) -> list[Any]:
        """The cells of each get, in one request per region server."""
        steps = [RowStep(get.row, [Client_pb2.Action(get=get)]) for get in gets]
        return [answer.result.cell for answer in self._multi(steps)]

    def mutate(self, mutations: Sequence[Any]) -> None:
        """Carries out mutations. Those of one region share one write to its log."""
        steps = [RowStep(each.row, [Client_pb2.Action(mutation=each)]) for each in mutations]
        self._multi(steps)

    def mutate_if(self, guarded: Sequence[tuple[Any, Sequence[Any]]]) -> list[bool]:
        """Carries out the mutations of one row each if its condition holds; whether it did."""
        steps = [
            RowStep(condition.row, [Client_pb2.Action(mutation=each) for each in some], condition)
            for condition, some in guarded
        ]
        return [answer.processed for answer in self._multi(steps)]

    def _multi(self, steps: Sequence[RowStep]) -> list[Any]:
        """The answer to each step; steps that got none, or one that passes, are repeated."""
        answers: dict[int, Any] = {}

        def ask() -> None:
            try:
                open_ones = [i for i in range(len(steps)) if i not in answers]
                for server, request, chosen in self._requests(steps, open_ones):
                    said = self.cluster.call(
                        server, "ClientService", "Multi", request, Client_pb2.MultiResponse
                    )
                    _take(said.regionActionResult, chosen, answers)
                if len(answers) < len(steps):
                    raise ConnectionError(f"table {self.name}: some steps got no answer")
            except (OSError, HBaseRefusal):
                self._regions = []
                raise

        self.cluster.patiently(ask)
        return [answers[i] for i in range(len(steps))]

    def _requests(
        self, steps: Sequence[RowStep], chosen: Sequence[int]
    ) -> Iterator[tuple[tuple[str, int], Any, list[list[int]]]]:
        """Requests of bounded size: (server, request, the steps of each of its parts)."""
        open_ones: dict[tuple[str, int], _Request] = {}
        for index in chosen:
            step = steps[index]
            region = self._region_of(step.row)
            request = open_ones.setdefault(region.server, _Request())
            request.add(index, step, region)
            if request.is_full:
                yield region.server, request.message, request.parts
                del open_ones[region.server]
        for server, request in open_ones.items():
            yield server, request.message, request.parts

    def _region_of(self, row: bytes) -> Region:
        if not self._regions:
            self._regions = self._look_up()
        for region in self._regions:
            if region.start <= row and (not region.end or row < region.end):
                return region
        raise ConnectionError(f"no region of table {self.name} has row {row!r} now")

    # The table ------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._full.decode()

    @property
    def _full(self) -> bytes:
        mine = self._namespace not in (b"", b"default")
        return self._namespace + b":" + self._name if mine else self._name

    def identity(self) -> str:
        """Changes whenever a region of the table is opened, on whichever server."""
        self._regions = self.cluster.patiently(self._look_up)
        digest = xxhash.xxh3_128()
        for region in self._regions:
            digest.update(b"%d:%b%b" % (len(region.name), region.name, region.opened))
            digest.update(b"%b:%d" % (region.server[0].encode(), region.server[1]))
        return digest.hexdigest()

    def schema(self) -> Any | None:
        """The description of the table; None if it does not exist."""
        request = Master_pb2.GetTableDescriptorsRequest()
        request.table_names.append(self._table_name())
        found = self.cluster.patiently(
            lambda: self.cluster.to_master(
                "GetTableDescriptors", request, Master_pb2.GetTableDescriptorsResponse
            )
        )
        return found.table_schema[0] if found.table_schema else None

    def create(self, family: Any) -> None:
        """Makes the table, unless it exists, and waits until its rows can be read."""
        request = Master_pb2.CreateTableRequest()
        request.table_schema.table_name.CopyFrom(self._table_name())
        request.table_schema.column_families.append(family)
        try:
            self.cluster.to_master("CreateTable", request, Master_pb2.CreateTableResponse)
        except HBaseRefusal as error:
            if error.name != "TableExistsException":
                raise
        self.cluster.patiently(self._look_up)

    def flush(self) -> bool:
        """Has every region write what it holds in memory to files; whether every one did.

        One that holds nothing, or that is being flushed already, did not.
        """
        done = True
        for region in self.cluster.patiently(self._look_up):
            request = Admin_pb2.FlushRegionRequest()
            request.region.type, request.region.value = BY_NAME, region.name
            answer = self.cluster.call(
                region.server, "AdminService", "FlushRegion", request,
                Admin_pb2.FlushRegionResponse,
            )  # fmt: skip
            done = done and answer.flushed
        return done

    def _table_name(self) -> Any:
        return HBase_pb2.TableName(namespace=self._namespace or b"default", qualifier=self._name)

    def _look_up(self) -> list[Region]:
        """The regions of the table, from hbase:meta; ConnectionError while one is not open."""
        found: list[Region] = []
        start, inclusive = self._full + b",,", True
        while True:
            request = Client_pb2.ScanRequest(number_of_rows=META_PAGE, close_scanner=True)
            request.region.type, request.region.value = BY_NAME, META
            request.scan.start_row, request.scan.stop_row = start, self._full + b" ,,"
            request.scan.include_start_row = inclusive
            request.scan.column.add(family=b"info")
            rows = self.cluster.to_meta("Scan", request, Client_pb2.ScanResponse).results
            found += [region for row in rows if (region := self._region(row.cell)) is not None]
            if len(rows) < META_PAGE:
                break
            start, inclusive = rows[-1].cell[0].row, False
        if not found:
            raise ConnectionError(f"table {self.name} has no region that is open")
        return found

    def _region(self, cells: Any) -> Region | None:
        said = {cell.qualifier: cell.value for cell in cells}
        info = HBase_pb2.RegionInfo.FromString(said[b"regioninfo"].removeprefix(b"PBUF"))
        if info.split or info.offline:
            return None
        if said.get(b"state") != b"OPEN" or b"server" not in said:
            raise ConnectionError(f"a region of table {self.name} is not open yet")
        host, _, port = said[b"server"].decode().rpartition(":")
        opened = said.get(b"serverstartcode", b"") + said.get(b"seqnumDuringOpen", b"")
        return Region(cells[0].row, info.start_key, info.end_key, (host, int(port)), opened)


def _take(said: Any, parts: list[list[int]], answers: dict[int, Any]) -> None:
    """Puts the answers of one request where they belong; raises if a server refused a step."""
    refused: HBaseRefusal | None = None

    def judge(answer: Any) -> bool:
        nonlocal refused
        if not answer.HasField("exception"):
            return True
        error = answer.exception
        found = HBaseRefusal(error.name, error.value.decode(errors="replace"))
        refused = found if refused is None or refused.passes else refused
        return False

    for part, steps in zip(said, parts, strict=True):
        if not judge(part):
            continue
        ones = list(part.resultOrException)
        if len(steps) == 1 and len(ones) != 1 and all([judge(one) for one in ones]):
            answers[steps[0]] = part  # several mutations under one condition
        elif len(steps) == len(ones):
            for one in ones:
                if judge(one):
                    answers[steps[one.index]] = part if part.HasField("processed") else one
    if refused is not None:
        raise refused
