"""Opens the state store of a checkpoint for readers: once, and for the store that the log names."""

from __future__ import annotations

from headrace.errors import CorruptCheckpoint, IncompatibleState
from headrace.log.identity import read_identity
from headrace.plan.ledger import Ledger
from headrace.plan.state.applied import AppliedState
from headrace.plan.state.choice import StateChoice
from headrace.state.backend import OpenState, StateBackend, StateView
from headrace.state.backends.applied_view import AppliedView
from headrace.state.backends.directory import GONE
from headrace.state.backends.opening import opener_of
from headrace.store.location import no_checkpoint
from headrace.store.store import Store


class StoreAccess:
    """The state store of one checkpoint, for readers."""

    def __init__(
        self, store: Store, given: str | None = None, opens: OpenState | None = None
    ) -> None:
        """`given`: the store as a run was given it, if it has a password; `opens`: for tests."""
        self._store, self._given, self._opens = store, given, opens
        self._backend: StateBackend | None = None

    def backend(self, ledger: Ledger) -> StateBackend:
        """The store, as it was where the log's last commit says."""
        applied = ledger.applied
        if self._backend is None:
            id = applied.id or ledger.identity or self._id()
            self._backend = self._opener(applied)(id)
        self._backend.follow(applied.place)
        return self._backend

    def _opener(self, applied: AppliedState) -> OpenState:
        if self._opens is not None:
            return self._opens
        choice = StateChoice(self._given or applied.backend)
        opens = opener_of(choice, self._store)
        if choice.store != StateChoice(applied.backend).store or opens is None:
            raise IncompatibleState(
                f"the checkpoint {self._store.where()} keeps its state in {applied.backend!r}, "
                f"not in {choice.shown!r}: give state={applied.backend!r}"
            )
        return opens

    def _id(self) -> str:
        identity = read_identity(self._store)
        if identity is None:
            raise no_checkpoint(self._store)
        return identity.id

    def view(self, ledger: Ledger, computation: str, newer: StateView) -> AppliedView:
        """Segments after the log's mark, over the store."""
        applied = ledger.applied
        backend = self.backend(ledger)
        found = AppliedView(backend, applied.named(computation))
        marks = backend.marks()
        if marks.run == GONE:
            raise CorruptCheckpoint(
                f"{self._store.where()}: the place {applied.place!r} of its state store "
                f"{applied.backend!r} is missing, though a commit names it: put back a copy"
            )  # or a newer commit names another place: whoever reads looks again
        if marks.applied < applied.epoch:
            raise IncompatibleState(
                f"the state store {applied.backend!r} has epoch {marks.applied}, and this "
                f"checkpoint relies on its having epoch {applied.epoch}: start the pipeline, which "
                "applies what is missing, or put back a newer copy of the store"
            )
        found.turn(newer, ledger.epoch, marks.run)
        return found

    def close(self) -> None:
        """Frees connections and files of the store."""
        if self._backend is not None:
            self._backend.close()
            self._backend = None
