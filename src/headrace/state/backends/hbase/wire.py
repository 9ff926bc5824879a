"""HBase's own protocol: calls to its servers.

The messages are those of hbase-driver. Its connections are not used: they send long requests in
part, read one row per request and drop the timestamps of cells.

A cluster is found through any of its masters or region servers, which know the active master and
where `hbase:meta` is. ZooKeeper is not needed.

Invariants:
- A connection belongs to the process that made it. After a fork each process makes its own.
- A call that got no answer may have been carried out: only calls that may be repeated are repeated.
- After a call that failed in any way, its connection is closed, so that no answer meets the wrong
  call.

This module must not know of tables and rows.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from google.protobuf.internal.decoder import _DecodeVarint32
from google.protobuf.internal.encoder import _VarintBytes

from headrace.state.backends.hbase.messages import Registry_pb2, RPC_pb2

PAUSE_S = 0.1
"""The first pause before a retry; it doubles, up to a second."""

_PASSING = (
    "NotServingRegionException", "RegionMovedException", "RegionOpeningException",
    "RegionTooBusyException", "ServerNotRunningYetException", "PleaseHoldException",
    "CallQueueTooBigException", "MultiActionResultTooLarge", "RegionServerStoppedException",
    "RegionServerAbortedException", "MasterNotRunningException", "RegionInRecoveryException",
)  # fmt: skip
"""What a server says while regions move or servers start."""

_Given = TypeVar("_Given")


class HBaseRefusal(Exception):
    """An answer of HBase that says no."""

    def __init__(self, name: str, said: str) -> None:
        super().__init__(f"{name.rpartition('.')[2]}: {said.strip().splitlines()[0][:300]}")
        self.name = name.rpartition(".")[2]

    @property
    def passes(self) -> bool:
        return self.name in _PASSING


class Connection:
    """One connection to one service of one server."""

    def __init__(self, host: str, port: int, service: str, timeout_s: float) -> None:
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._calls = 0
        self._lock = threading.Lock()
        header = RPC_pb2.ConnectionHeader(service_name=service)
        header.user_info.effective_user = os.environ.get("HADOOP_USER_NAME") or "headrace"
        said = header.SerializeToString()
        self._socket.sendall(b"HBas\x00\x50" + struct.pack(">I", len(said)) + said)

    def call(self, method: str, request: Any, answer: Any) -> Any:
        with self._lock:
            self._calls += 1
            number = self._calls
            header = RPC_pb2.RequestHeader(
                call_id=number, method_name=method, request_param=True
            ).SerializeToString()
            body = request.SerializeToString()
            framed = b"".join((_VarintBytes(len(header)), header, _VarintBytes(len(body)), body))
            self._socket.sendall(struct.pack(">I", len(framed)) + framed)
            said = bytes(self._received(struct.unpack(">I", self._received(4))[0]))
        size, at = _DecodeVarint32(said, 0)
        head = RPC_pb2.ResponseHeader.FromString(said[at : at + size])
        if head.call_id != number:
            raise ConnectionError("the answer belongs to another call")
        if head.HasField("exception"):
            raise HBaseRefusal(head.exception.exception_class_name, head.exception.stack_trace)
        size, at = _DecodeVarint32(said, at + size)
        return answer.FromString(said[at : at + size])

    def close(self) -> None:
        self._socket.close()

    def _received(self, size: int) -> bytearray:
        buffer = bytearray(size)
        left = memoryview(buffer)
        while left:
            count = self._socket.recv_into(left)
            if not count:
                raise ConnectionError("the server closed the connection")
            left = left[count:]
        return buffer


class HBaseCluster:
    """The servers of an HBase cluster."""

    def __init__(self, seeds: Sequence[tuple[str, int]], timeout_s: float) -> None:
        """Sends nothing. `seeds` are masters or region servers."""
        self._seeds, self.timeout_s = seeds, timeout_s
        self._connections: dict[tuple[str, int, str], Connection] = {}
        self._process = os.getpid()
        self._meta: tuple[str, int] | None = None

    def call(self, server: tuple[str, int], service: str, method: str, *messages: Any) -> Any:
        """One call; OSError where the server is not reached, HBaseRefusal where it says no."""
        if self._process != os.getpid():
            self._connections, self._process = {}, os.getpid()
        place = (*server, service)
        connection = self._connections.get(place)
        if connection is None:
            connection = Connection(*server, service, self.timeout_s)
            self._connections[place] = connection
        try:
            return connection.call(method, *messages)
        except HBaseRefusal:
            raise
        except BaseException:
            self._connections.pop(place, None)
            connection.close()
            raise

    def to_master(self, method: str, *messages: Any) -> Any:
        request = Registry_pb2.GetActiveMasterRequest()
        found = self._ask_seeds("GetActiveMaster", request, Registry_pb2.GetActiveMasterResponse)
        name = found.server_name
        return self.call((name.host_name, name.port), "MasterService", method, *messages)

    def to_meta(self, method: str, *messages: Any) -> Any:
        if self._meta is None:
            request = Registry_pb2.GetMetaRegionLocationsRequest()
            answer = Registry_pb2.GetMetaRegionLocationsResponse
            found = self._ask_seeds("GetMetaRegionLocations", request, answer).meta_locations
            if not found:
                raise ConnectionError("no server has hbase:meta yet")
            self._meta = (found[0].server_name.host_name, found[0].server_name.port)
        try:
            return self.call(self._meta, "ClientService", method, *messages)
        except (OSError, HBaseRefusal):
            self._meta = None
            raise

    def close(self) -> None:
        connections, self._connections = self._connections, {}
        if self._process == os.getpid():
            for connection in connections.values():
                connection.close()

    def patiently(self, act: Callable[[], _Given]) -> _Given:
        """The result of `act`, repeated while servers start or regions move."""
        until, pause = time.monotonic() + self.timeout_s, PAUSE_S
        while True:
            try:
                return act()
            except (OSError, HBaseRefusal) as error:
                passes = not isinstance(error, HBaseRefusal) or error.passes
                if not passes or time.monotonic() + pause > until:
                    raise
            time.sleep(pause)
            pause = min(1.0, 2 * pause)

    def _ask_seeds(self, *call: Any) -> Any:
        failed: OSError | None = None
        for seed in self._seeds:
            try:
                return self.call(seed, "ClientMetaService", *call)
            except OSError as error:
                failed = error
        raise failed or ConnectionError("no server is named")
