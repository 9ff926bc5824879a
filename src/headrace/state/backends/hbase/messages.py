"""The messages of HBase's protocol, from hbase-driver, which is imported here alone."""

from __future__ import annotations

import sys

_before = list(sys.path)
from hbasedriver.protobuf_py import (  # noqa: E402
    Admin_pb2,
    Client_pb2,
    Comparator_pb2,
    Filter_pb2,
    HBase_pb2,
    Master_pb2,
    Registry_pb2,
    RPC_pb2,
    Snapshot_pb2,
)

sys.path[:] = _before  # hbase-driver puts the directory of its messages first, for its own imports

__all__ = [
    "Admin_pb2",
    "Client_pb2",
    "Comparator_pb2",
    "Filter_pb2",
    "HBase_pb2",
    "Master_pb2",
    "RPC_pb2",
    "Registry_pb2",
    "Snapshot_pb2",
]
