"""What an administrator of HBase does: snapshots of a table, put back in its place."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from headrace.state.backends.hbase.messages import Admin_pb2, HBase_pb2, Master_pb2, Snapshot_pb2
from headrace.state.backends.hbase.table import BY_NAME, Table
from headrace.state.backends.hbase.wire import HBaseCluster


def snapshot(port: int, table: str, name: str) -> None:
    """Takes a snapshot of a table."""
    cluster = HBaseCluster([("127.0.0.1", port)], 30.0)
    request = Master_pb2.SnapshotRequest(snapshot=_snapshot(table, name))
    _master(cluster, "Snapshot", request, Master_pb2.SnapshotResponse)
    asked = Master_pb2.IsSnapshotDoneRequest(snapshot=_snapshot(table, name))
    answer = Master_pb2.IsSnapshotDoneResponse
    _wait(lambda: _master(cluster, "IsSnapshotDone", asked, answer).done)


def put_back(port: int, table: str, name: str) -> None:
    """Replaces the table by a snapshot of it."""
    cluster = HBaseCluster([("127.0.0.1", port)], 60.0)
    named = HBase_pb2.TableName(namespace=b"default", qualifier=table.encode())
    disable = Master_pb2.DisableTableRequest(table_name=named)
    _finish(cluster, _master(cluster, "DisableTable", disable, Master_pb2.DisableTableResponse))
    restore = Master_pb2.RestoreSnapshotRequest(snapshot=_snapshot(table, name))
    answer = Master_pb2.RestoreSnapshotResponse
    _finish(cluster, _master(cluster, "RestoreSnapshot", restore, answer))
    enable = Master_pb2.EnableTableRequest(table_name=named)
    _finish(cluster, _master(cluster, "EnableTable", enable, Master_pb2.EnableTableResponse))


def major_compact(port: int, table: str) -> None:
    """Has HBase rewrite the files of a table, without the deletions that it need not keep."""
    cluster = HBaseCluster([("127.0.0.1", port)], 60.0)
    found = Table(cluster, b"default", table.encode())
    found.flush()
    for region in found._look_up():
        named = HBase_pb2.RegionSpecifier(type=BY_NAME, value=region.name)
        compact = Admin_pb2.CompactRegionRequest(region=named, major=True)
        state = Admin_pb2.GetRegionInfoRequest(region=named, compaction_state=True)
        cluster.call(
            region.server, "AdminService", "CompactRegion", compact,
            Admin_pb2.CompactRegionResponse,
        )  # fmt: skip
        time.sleep(1.0)  # it is begun by another thread
        _wait(
            lambda server=region.server, asked=state: (
                not cluster.call(
                    server, "AdminService", "GetRegionInfo", asked, Admin_pb2.GetRegionInfoResponse
                ).compaction_state
            )
        )


def _snapshot(table: str, name: str) -> Any:
    return Snapshot_pb2.SnapshotDescription(
        name=name, table=table, type=Snapshot_pb2.SnapshotDescription.FLUSH
    )


def _master(cluster: HBaseCluster, method: str, request: Any, answer: Any) -> Any:
    return cluster.to_master(method, request, answer)


def _finish(cluster: HBaseCluster, answer: Any) -> None:
    asked = Master_pb2.GetProcedureResultRequest(proc_id=answer.proc_id)
    kind = Master_pb2.GetProcedureResultResponse
    running = kind.State.Value("RUNNING")
    _wait(lambda: _master(cluster, "getProcedureResult", asked, kind).state != running)


def _wait(done: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not done():
        if time.monotonic() > until:
            raise TimeoutError("HBase does not finish")
        time.sleep(0.1)
