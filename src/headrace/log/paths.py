"""Where things lie in a checkpoint. No other module builds a path.

IDENTITY                                   the checkpoint's id, pipeline and format
LEASE                                      a sign of life of the leading driver; only a hint
STATUS                                     what the leading driver tells of its run; only for people
log/000000/00000000000000000042            entry 42 of the epoch log
state/<computation>/<epoch>-<label>-<digest>.arrow
outbox/<epoch>-<label>-<digest>.arrow      feedback records, read by the next epoch
staged/<sink>/<epoch>-<label>-<digest>     rows on their way to a sink
read/<stream>/<epoch>-read-<digest>.arrow  the splits that the stream has read to their end
merged/<epoch>-<token>                     a merge of segments, until a commit adopts a copy of it
rings/<epoch>-<computation>-<digest>       a ring as a whole, which plans name
work/<epoch>-order-<digest>                an epoch's work order, while its job runs
work/<epoch>-slots-<digest>                a part of work orders: what a commit has changed in slots
work/<epoch>.<label>                       how far a slow slot has come, while its job runs
determinants/<first epoch>/opened          a marker: that directory was made, and may be used
determinants/<first epoch>/<name>.result   answers of calls that must not be repeated, and intents
determinants/<first epoch>.closed          a marker: that directory was removed and must not be used
determinants/span-<n>.closed               the same marker for all directories of a span of epochs
sources/<stream>/                          a source's own workspace
sinks/<sink>/                              a sink's own high-water marks
pins/<nonce>                               the files that a reader needs for a while
control/<position>                         a request: what somebody asks of the pipeline
control/<position>.answer                  what was decided on it: a copy of what the log says
control/<position>.done                    that its effect is complete, and how
savepoints/<epoch>-<name>-<digest>         the ledger of an epoch that is kept by name
cells/<id>-<kind>/                         a state store that has no server of its own

A place with backups of a checkpoint has the same directories for segments, rings, outbox and the
record of finished splits, and beside them:

BACKUP                                     of which checkpoint these are backups
backups/<epoch>-backup-<digest>            a backup: the ledger of an epoch, and its files
copied/<digest>                            a file of a source's workspace
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

import xxhash

from headrace.limits import LIMITS, Limits

IDENTITY = "IDENTITY"
LEASE = "LEASE"
STATUS = "STATUS"
LOG = "log"
STATE = "state"
OUTBOX = "outbox"
STAGED = "staged"
READ = "read"
MERGED = "merged"
SOURCES = "sources"
WORK = "work"
ORDER_PART = "slots"
"""The label of parts of work orders, which are kept for some epochs."""
RINGS = "rings"
TABLES = "tables"
DETERMINANTS = "determinants"
SINKS = "sinks"
PINS = "pins"
CONTROL = "control"
SAVEPOINTS = "savepoints"
CELLS = "cells"
BACKUP = "BACKUP"
BACKUPS = "backups"

ANSWER, DONE = ".answer", ".done"
TRIMMED = ".trimmed"

LABEL_BYTES_MAX = 150
"""A file name has at most 255 bytes; epoch, digest and a temporary suffix need the rest."""

_FILE = re.compile(r"(\d{12})-(.+)-([0-9a-f]{32})(\.arrow)?")
_DIGEST = re.compile(r"-([0-9a-f]{32})(?:\.[a-z0-9.]+)?")


def safe(name: str) -> str:
    """A user's name as one path component: no separators, no dots alone, nothing hidden."""
    quoted = quote(name, safe=" ,+=@#!")
    if quoted.startswith("."):
        quoted = "%2E" + quoted[1:]
    return quoted


def unsafe(component: str) -> str:
    """The name from which `safe` made this component."""
    return unquote(component)


def log_directory(position: int, limits: Limits = LIMITS) -> str:
    """The directory of a log position."""
    return f"{LOG}/{position // limits.log_directory_entries:06d}"


def log_entry(position: int, limits: Limits = LIMITS) -> str:
    """The file of a log position."""
    return f"{log_directory(position, limits)}/{position:020d}"


def trimmed_marker(directory: str) -> str:
    """The marker of a trimmed log directory: its positions are taken for ever."""
    return f"{directory}{TRIMMED}"


def gathered_marker(directory: int, limits: Limits = LIMITS) -> str:
    """The marker of all the trimmed log directories around a number: it replaces theirs."""
    first = directory - directory % limits.log_markers_together
    return f"{LOG}/{first:06d}-{first + limits.log_markers_together - 1:06d}{TRIMMED}"


def state_directory(computation: str) -> str:
    """The directory of a computation's segments."""
    return f"{STATE}/{safe(computation)}"


def tables_directory(computation: str) -> str:
    """The directory of the versions of a computation's lookup table."""
    return f"{TABLES}/{safe(computation)}"


def read_directory(stream: str) -> str:
    """The directory of the record of splits that a stream has read to their end."""
    return f"{READ}/{safe(stream)}"


def staged_directory(sink: str) -> str:
    """The directory of rows that wait for a sink."""
    return f"{STAGED}/{safe(sink)}"


def work_mark(epoch: int, label: str) -> str:
    """The file that says how far a slow slot has come in an epoch."""
    shown = safe(label)
    if len(shown) > LABEL_BYTES_MAX:
        shown = xxhash.xxh3_128_hexdigest(label.encode())
    return f"{WORK}/{epoch:012d}.{shown}"


def is_work_mark(name: str, epoch: int) -> bool:
    """Whether a file of `work/` is such a mark of this epoch."""
    return name.startswith(f"{epoch:012d}.")


def is_order_part(name: str) -> bool:
    """Whether a file of `work/` is a part of work orders."""
    return f"-{ORDER_PART}-" in name


def marked_in(name: str) -> int:
    """The epoch of a mark in `work/`; ValueError if it is not one."""
    epoch, dot, _ = name.partition(".")
    if not dot or len(epoch) != 12:
        raise ValueError(f"{name!r} is not named epoch.label")
    return int(epoch)


def merged(epoch: int, token: str) -> str:
    """The file of a merge that began while `epoch` was open; `token` makes it unique."""
    return f"{MERGED}/{epoch:012d}-{token}"


def merged_in(name: str) -> int:
    """The epoch in which a file of `merged/` was begun; ValueError if it is not one."""
    epoch, dash, _ = name.partition("-")
    if not dash or len(epoch) != 12:
        raise ValueError(f"{name!r} is not named epoch-token")
    return int(epoch)


def determinants_directory(first: int) -> str:
    """The directory that logs calls which must not be repeated, from epoch `first` on."""
    return f"{DETERMINANTS}/{first:012d}"


def opened_marker(directory: str) -> str:
    """The marker of a directory of determinants that a driver has made."""
    return f"{directory}/opened"


def closed_marker(directory: str) -> str:
    """The marker of a removed directory of determinants, in case a late driver makes it again."""
    return f"{directory}.closed"


def closed_span_marker(first: int, limits: Limits = LIMITS) -> str:
    """The marker of all removed directories in the span of epochs that contains `first`."""
    return f"{DETERMINANTS}/span-{first // limits.closed_span_epochs:06d}.closed"


def pin(nonce: str) -> str:
    """The file of a pin."""
    return f"{PINS}/{nonce}"


def request(position: int, suffix: str = "") -> str:
    """The file of a request; with a suffix, of an answer to it."""
    return f"{CONTROL}/{position:020d}{suffix}"


def savepoint(epoch: int, name: str, digest: str) -> str:
    """The file with the ledger of a savepoint; `epoch` was open when it was written."""
    return f"{SAVEPOINTS}/{content_name(epoch, name, digest)}"


def backup(epoch: int, digest: str) -> str:
    """The file of a backup of an epoch."""
    return f"{BACKUPS}/{content_name(epoch, 'backup', digest)}"


def copied(digest: str) -> str:
    """A file of a source's workspace, in a place with backups."""
    return f"copied/{digest}"


def content_name(epoch: int, label: str, digest: str, suffix: str = "") -> str:
    """The name of a file with its digest; of a long label (a deep path) it shows only the end."""
    shown = safe(label)
    if len(shown) > LABEL_BYTES_MAX:
        shown = f"{xxhash.xxh3_128_hexdigest(label.encode())}~{shown[-100:]}"
    return f"{epoch:012d}-{shown}-{digest}{suffix}"


def parse_content_name(name: str) -> tuple[int, str, str]:
    """(epoch, label, digest) of a file named by content; ValueError if it is not one."""
    found = _FILE.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} is not named epoch-label-digest")
    return int(found[1]), unsafe(found[2]), found[3]


def digest_in(name: str) -> str:
    """The digest in the name of a file, whatever its suffix; ValueError if there is none."""
    found = _DIGEST.search(name, max(name.rfind("-"), 0))
    if found is None or found.end() != len(name):
        raise ValueError(f"{name!r} is not named epoch-label-digest")
    return found[1]
