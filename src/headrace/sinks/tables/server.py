"""One connection to a Postgres server: opened when needed, dropped after an error, never shown.

- A data source name may contain a password. No message, repr or pickle contains it: `shown` has
  the host, the port and the database only.
- An error that may end by itself (the server is away, has no room, ended the session, a lock is
  held) becomes `SinkUnavailable`, and the run waits. Others become `SinkError`, and the run stops.
- A session says its generation in its `application_name`. A driver that takes over ends the
  sessions of older generations: one of them may sleep in a transaction, with a lock on the mark.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import xxhash

from headrace.errors import InvalidPipeline, SinkError, SinkUnavailable

if TYPE_CHECKING:
    import psycopg

LOCK_TIMEOUT_S = 30
"""How long a statement waits for a lock. Then the run says that the sink is away, and tries on."""
IDLE_TIMEOUT_S = 60
"""After this time the server ends a transaction whose driver says nothing."""

_DEFAULTS = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
_LASTING = re.compile(
    r"authentication failed|no password supplied|no pg_hba.conf entry|does not exist|"
    r"permission denied|not permitted|could not translate host name|must be superuser"
)
"""Refusals of a connection that a person must end."""
_PASSING = (
    "08",  # the connection
    "25P03",  # the driver slept in a transaction
    "40",  # a deadlock, a conflict with another transaction
    "53",  # no room: connections, memory, disk
    "55006", "55P03",  # somebody else uses it, or holds a lock
    "57",  # the server stops or starts, or somebody ended the statement or the session
    "58000", "58030",  # the server's machine
    "HV00N",  # another server, behind a foreign table
)  # fmt: skip
"""SQLSTATEs, or how they begin, of what may end by itself. All others come again with each try."""
_COME_AGAIN = ("40002", "53400", "57P04")
"""Those of them that do not: a constraint, a limit in the configuration, a dropped database."""
_IN_COPY = re.compile(r"COPY [^,]+, line (\d+)(?:, column ([^:]+))?")


class Database:
    """The server that a data source name means."""

    def __init__(self, dsn: str) -> None:
        conninfo = _client("psycopg.conninfo")
        try:
            given = conninfo.conninfo_to_dict(dsn)
        except Exception:  # its text may repeat a part of the name, and so a password
            raise InvalidPipeline(
                "sinks.postgres: the data source name cannot be read. Its forms are "
                "postgresql://user:password@host:5432/database and "
                "host=... port=... dbname=... user=..."
            ) from None
        self._dsn: str | None = dsn
        self._given = {name for name in given if given[name] is not None}
        host = given.get("host") or given.get("hostaddr") or "localhost"
        self.shown = f"{host}:{given.get('port') or 5432}/{given.get('dbname') or ''}"
        self._session = ""
        self._open: psycopg.Connection[Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Executors only encode: they need no password.
        return {**self.__dict__, "_dsn": None, "_open": None}

    def __repr__(self) -> str:
        return f"<Postgres at {self.shown}>"

    def begin(self, user: str, generation: int) -> None:
        """Names this driver's sessions, and ends those of older drivers of the same `user`."""
        self.close()
        prefix = f"headrace-{xxhash.xxh3_64_hexdigest(user.encode())}-"
        self._session = f"{prefix}{generation}"
        with self.explained("open"):
            found = self._connection().execute(
                "SELECT pid, application_name FROM pg_stat_activity "
                "WHERE starts_with(application_name, %s) AND pid <> pg_backend_pid()",
                [prefix],
            )
            for pid, name in found.fetchall():
                said = name.removeprefix(prefix)
                if said.isdigit() and int(said) < generation:
                    self._end(pid)

    def _end(self, pid: int) -> None:
        errors = _client("psycopg.errors")
        try:
            self._connection().execute("SELECT pg_terminate_backend(%s)", [pid])
        except errors.InsufficientPrivilege:
            pass  # Another role's session. Its locks are waited for.

    @contextmanager
    def transaction(self, doing: str) -> Iterator[psycopg.Cursor[Any]]:
        """A cursor in a transaction, which ends with the block: all of it, or nothing."""
        with self.explained(doing):
            connection = self._connection()
            with connection.transaction(), connection.cursor() as cursor:
                # Said again in each transaction: a pool in between may give another session.
                cursor.execute(
                    "SET LOCAL TIME ZONE 'UTC'; "
                    f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s'; "
                    f"SET LOCAL idle_in_transaction_session_timeout = '{IDLE_TIMEOUT_S}s'"
                )
                yield cursor

    @contextmanager
    def explained(self, doing: str) -> Iterator[None]:
        """Turns errors of the server into ours: an outage, or something for a person."""
        psycopg = _client("psycopg")
        try:
            yield
        except psycopg.Error as error:
            text = _text_of(error)
            if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
                self.close()
            message = f"Postgres at {self.shown} cannot {doing}: {text}"
            if _may_end_by_itself(error, text):
                raise SinkUnavailable(message) from None
            raise SinkError(message) from None

    def close(self) -> None:
        """Drops the connection; the next use opens another."""
        connection, self._open = self._open, None
        if connection is not None:
            connection.close()

    def _connection(self) -> psycopg.Connection[Any]:
        if self._open is not None and not self._open.closed:
            return self._open
        if self._dsn is None:
            raise SinkError("sinks.postgres was pickled: only the driver can deliver")
        psycopg = _client("psycopg")
        more: dict[str, Any] = {k: v for k, v in _DEFAULTS.items() if k not in self._given}
        self._open = psycopg.connect(
            self._dsn,
            autocommit=True,
            prepare_threshold=None,
            application_name=self._session or "headrace",
            client_encoding="UTF8",
            **more,
        )
        return self._open


def require_client() -> None:
    """Refuses a sink whose client is not installed, before anything starts."""
    _client("psycopg")


def instance_of(cursor: psycopg.Cursor[Any]) -> str:
    """The database of a session: the same text by whatever address the server is reached."""
    cursor.execute("SELECT current_database(), pg_postmaster_start_time()")
    database, since = cursor.fetchone() or ("", "")
    return f"database {database} (of the Postgres server that started at {since})"


def line_in_copy(error: Any) -> tuple[int, str | None] | None:
    """(row, column) of an error in a COPY, where the server names them; rows count from 0."""
    found = _IN_COPY.search(error.diag.context or "")
    return None if found is None else (int(found[1]) - 1, found[2])


def _may_end_by_itself(error: Any, text: str) -> bool:
    """Whether the next try may succeed, though nobody changes the table or the pipeline."""
    state = error.sqlstate
    if state is None:  # of the client: there was no answer, or no connection
        psycopg = _client("psycopg")
        is_away = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        return is_away and not _LASTING.search(text)
    return state.startswith(_PASSING) and state not in _COME_AGAIN


def _text_of(error: Any) -> str:
    """What the server says, in one line."""
    diag = error.diag
    if diag.message_primary is None:
        return " ".join(str(error).split()) or type(error).__name__
    more = [diag.message_detail, diag.message_hint]
    return ". ".join([diag.message_primary, *(text.rstrip(".") for text in more if text)])


def _client(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InvalidPipeline(
            f"sinks.postgres needs a client ({error}): pip install 'headrace[postgres]', where "
            "the driver runs"
        ) from None
