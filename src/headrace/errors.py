"""Every error that Headrace raises, as one tree.

    HeadraceError
    ├── InvalidPipeline       a graph, declaration or option is wrong; nothing has started
    │   └── InvalidDuration   a time without a unit, or one that cannot be read
    ├── InvalidRecord         a record has no usable key, timestamp or value
    ├── SourceError           a source cannot be read, or is not what the plan says it is
    ├── SinkError             a sink refused an epoch
    ├── SparkError            the session cannot run epochs: its JVM, or the Python of its workers
    ├── StoreError            the checkpoint's filesystem refused (full, read-only, not shared)
    │   ├── SinkUnavailable   the system that a sink writes to refused
    │   └── SourceUnavailable  the system that a source reads does not answer
    ├── CorruptCheckpoint     a file of the checkpoint is not what it should be
    │   └── DeltaMissing      state that was only written is lost; it is made again
    ├── IncompatibleState     the checkpoint belongs to another pipeline, type or version
    ├── Fenced                another driver has taken over this checkpoint
    ├── Unheard               no driver has answered a request to the pipeline
    ├── UserCodeError         a hook raised; carries computation, key and traceback
    ├── ServiceError          a call to an external system failed, also on every replay
    ├── CallUncertain         a call that must not be repeated may have taken effect, or not
    ├── NondeterministicCode  the same epoch, run twice, gave two results
    └── EpochFailed           an epoch could not be completed after bounded retries

`p.run` and `job.wait` raise them without the frames of the engine (`engine/spark/tracebacks.py`);
set HEADRACE_DEBUG=1 to see those too.

Errors cross from executors to the driver, so each is built from its message
alone and survives pickling.
"""

from __future__ import annotations


class HeadraceError(Exception):
    """The base of all errors that Headrace raises on purpose."""


class InvalidPipeline(HeadraceError):
    """The pipeline cannot run as it is written. Nothing has been started."""


class InvalidDuration(InvalidPipeline, TypeError, ValueError):
    """A time without a unit, or one that cannot be parsed; also a TypeError and a ValueError."""


class InvalidRecord(HeadraceError):
    """A record has no usable key, timestamp or value."""


class SourceError(HeadraceError):
    """A source cannot be read, or is no longer what the plan recorded."""


class SinkError(HeadraceError):
    """A sink refused an epoch; the epoch is committed and will be delivered again."""


class SparkError(HeadraceError):
    """The Spark session cannot run epochs: its JVM has ended, or its workers lack something."""


class StoreError(HeadraceError):
    """The filesystem under the checkpoint refused an operation."""


class SinkUnavailable(StoreError):
    """The system that a sink writes to refused an operation, or does not answer."""


class SourceUnavailable(StoreError):
    """The system that a source reads does not answer; the run waits until it does."""


class CorruptCheckpoint(HeadraceError):
    """A file of the checkpoint is damaged, truncated or not ours."""


class DeltaMissing(CorruptCheckpoint):
    """Deltas that no checkpoint has yet cannot be reached; the driver makes them again."""

    @property
    def segments(self) -> list[str]:
        """The names of the deltas, which its message lists."""
        return str(self).split(", ")


class IncompatibleState(HeadraceError):
    """The checkpoint belongs to another pipeline, another type or a newer version."""


class Fenced(HeadraceError):
    """Another driver has taken over this checkpoint; this one has stopped."""


class Unheard(HeadraceError):
    """No driver has answered a request, or its outcome is no longer known; it may be taken yet."""


class UserCodeError(HeadraceError):
    """User code raised. The message names the computation, the key and the record."""


class ServiceError(HeadraceError):
    """A call of `ctx.http` or `ctx.call` failed; a replay raises the same error again."""

    asked_again = False
    """Whether a stopped run calls again at its next start, because the call had no effect."""


class CallUncertain(HeadraceError):
    """A call that must not be repeated was begun, and whether it took effect is unknown.

    It is not a `ServiceError`: code that calls again after a failure must not do so after this. A
    function that `ctx.call` calls may raise it if it cannot know the outcome.
    """


class NondeterministicCode(HeadraceError):
    """The same epoch was run twice and gave two different results."""


class EpochFailed(HeadraceError):
    """An epoch could not be completed after bounded retries."""


def by_name(name: str) -> type[HeadraceError]:
    """The error class called `name`: reports carry errors as data."""
    found = globals().get(name)
    if isinstance(found, type) and issubclass(found, HeadraceError):
        return found
    return HeadraceError
