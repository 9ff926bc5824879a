"""Reads the epoch log as plain JSON and checks its invariants.

It shares no code with the engine, except where it checks load (`load_checker`). Manifests are
checked at 64 points of the key space, see `points`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from headrace.engine.driver.follower import Follower
from headrace.plan.elastic.settings import Elasticity
from headrace.testing.simulator.checkers.control_checker import ControlChecker
from headrace.testing.simulator.checkers.finished import FinishedChecker
from headrace.testing.simulator.checkers.load_checker import LoadChecker
from headrace.testing.simulator.checkers.points import Points
from headrace.testing.simulator.checkers.riders import Riders, WrongRiders, read_entry
from headrace.testing.simulator.checkers.violation import Violation
from headrace.testing.simulator.checkers.written import WrittenChecker
from headrace.testing.simulator.machine.disk import Directory, File, Node, SimulatedDisk


class LogChecker:
    """The log as read so far, and its checks."""

    def __init__(self, disk: SimulatedDisk, root: str, per_directory: int, retain: int) -> None:
        self._disk, self._root, self._per_directory, self._retain = (
            disk, root, per_directory, retain,
        )  # fmt: skip
        self._files: list[File] = []
        self._entries: list[dict[str, Any]] = []
        self._tails: list[dict[str, bytes]] = []
        """What rides in each entry."""
        self._rows_of: dict[str, frozenset[str]] = {}
        """Rows of the record of what was read, per file, as they were when a commit named it."""
        self._ring_objects: dict[str, bytes] = {}
        """Ring objects, as they were when a commit named them; a later one may have replaced it."""
        self.note: Callable[[str], None] = lambda line: None
        self.elasticity: Elasticity | None = None
        """What drivers let the balancer do, where load moves."""
        self.noted: dict[str, set[int]] = {}
        """Label of a slot -> the epochs of which a driver has heard a note."""
        self.away = False
        """Whether the log cannot be read now."""
        self.promised = 0
        """A driver relies on all positions up to this one being durable."""
        self._reset()

    def _reset(self) -> None:
        self.generations = [0]
        self.code = ""
        """The fingerprint of the code that leads."""
        self.commits: list[dict[str, Any]] = []
        self.committed_by: list[int] = []
        """The generation that wrote each commit."""
        self.plans: list[dict[str, Any]] = []
        self.voids: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._open: dict[str, Any] | None = None
        self._points: dict[str, Points] = {}
        self._bases: dict[str, str] = {}
        """The ring object of each computation that has one."""
        self.adoptions: list[dict[str, Any]] = []
        """All merges that entries have adopted."""
        self.slots: list[dict[str, set[int]]] = []
        """After each commit: computation -> its slots."""
        self.riders = Riders()
        self.written = WrittenChecker(self._disk, self._root)
        self._is_new = True  # entries are read for the first time: their files must be there
        self.control = ControlChecker(self._disk, self._root)
        self.load = LoadChecker(self.elasticity, self.noted)
        self._finished = FinishedChecker(self._disk, self._root, self._rows_of)
        self._windows: deque[set[str]] = deque(maxlen=self._retain)

    @property
    def length(self) -> int:
        """How many entries there are."""
        return len(self._files)

    @property
    def generation(self) -> int:
        """The last generation, which leads."""
        return self.generations[-1]

    def needs(self, segment: str) -> bool:
        """Whether a retained commit needs this segment."""
        return any(segment in window for window in self._windows)

    def watch_load(self, elasticity: Elasticity) -> None:
        """From the start: checks what drivers decide about rings, with these settings."""
        self.elasticity = elasticity
        self.load = LoadChecker(elasticity, self.noted)

    def check_load(self, number: int, follower: Follower | None) -> None:
        """Checks the load of a driver between two steps; one that has more to read, or to write,
        is in the middle of one."""
        driver = follower.driver if follower is not None else None
        if driver is None or self.elasticity is None or self.away:
            return
        is_between = driver.ledger.commit_position <= driver.log.position == self.length
        if is_between and driver.log.generation == self.generation:
            self.load.compare(number, driver.ledger.load)

    # Reading --------------------------------------------------------------

    def catch_up(self) -> None:
        """Reads new entries, and checks that earlier ones have not changed."""
        if self.away:
            return
        names: dict[str, Node] = {}
        at = -1
        for position, known in enumerate(self._files, 1):
            if position // self._per_directory != at:
                at = position // self._per_directory
                home = self._disk.find(f"{self._root}/log/{at:06d}")
                names = home.names if isinstance(home, Directory) else {}
            found = names.get(f"{position:020d}")
            if found is not known and not self._trimmed(position):
                what = "was deleted" if found is None else "was overwritten"
                raise Violation(f"log position {position} {what}")
        while (file := self._file(len(self._files) + 1)) is not None:
            self._files.append(file)
            position = len(self._files)
            try:
                entry, riders = read_entry(position, bytes(file.data))
                self._entries.append(entry)
                self._tails.append(riders)
                self._fold(position, entry, riders)
            except WrongRiders as error:
                raise Violation(str(error)) from None

    def after_power_loss(self) -> None:
        """Entries that a driver relied on must still exist; the rest may be lost."""
        kept = len(self._files)
        while kept and self._file(kept) is None and not self._trimmed(kept):
            kept -= 1
        if kept < self.promised:
            raise Violation(
                f"log position {self.promised} was reported as written, but a power loss removed it"
            )
        self._files, self._entries = self._files[:kept], self._entries[:kept]
        self._tails = self._tails[:kept]
        self._reset()
        tell, self.note = self.note, lambda line: None
        self._is_new = False
        for position, entry in enumerate(self._entries, 1):
            self._fold(position, entry, self._tails[position - 1])
        self.note, self._is_new = tell, True

    def _file(self, position: int) -> File | None:
        directory = position // self._per_directory
        found = self._disk.find(f"{self._root}/log/{directory:06d}/{position:020d}")
        return found if isinstance(found, File) else None

    def _trimmed(self, position: int) -> bool:
        return is_trimmed(self._disk, f"{self._root}/log/{position // self._per_directory:06d}")

    # Checking -------------------------------------------------------------

    def _fold(self, position: int, entry: dict[str, Any], riders: dict[str, bytes]) -> None:
        self.riders.entry(position, entry, riders)
        self.control.entry(position, entry)
        self.load.entry(entry["kind"], entry["body"])
        kind, generation, body = entry["kind"], entry["generation"], entry["body"]
        if kind == "generation":
            if generation <= self.generation:
                raise Violation(f"two drivers have generation {generation} (position {position})")
            self.generations.append(generation)
            self.code = body.get("fingerprint") or self.code
            return
        if generation != self.generation:
            raise Violation(
                f"position {position}: a driver of generation {generation} wrote a {kind} after "
                f"generation {self.generation} had taken over"
            )
        if kind == "plan":
            self._plan(body)
        elif kind == "void":
            if self._open is None:
                raise Violation(f"position {position} gives up a plan that is not open")
            for label in body.get("limits", {}):
                if label in self._open.get("limits", {}):
                    raise Violation(
                        f"position {position} gives up a plan because of {label}, which had a limit"
                    )
            self.voids.append((self._open, body))
            self._open = None
            self._finished.passed(body["skipped"])
        elif kind == "drop":
            for slot, entries in body["slots"].items():
                self._points[body["computation"]].replace(int(slot), entries)
        elif kind == "checkpoint":
            self._adopt(len(self.commits), body["adoptions"])
            self._kept(body["interval"])
        elif kind == "commit":
            self._commit(body["commit"])
            if body["next"] is not None:
                self._plan(body["next"], " with the commit before it")

    def _plan(self, plan: dict[str, Any], how: str = "") -> None:
        if plan["epoch"] != len(self.commits) + 1:
            raise Violation(f"epoch {plan['epoch']} is planned after epoch {len(self.commits)}")
        if self.plans and plan["wall"] <= self.plans[-1]["wall"]:
            raise Violation(f"the wall time of plans went back at epoch {plan['epoch']}")
        self._open = plan
        self.plans.append(plan)
        self._finished.check_plan(plan)
        last = ", the last" if plan["final"] else ""
        ranges = [read["range"] for task in plan["reads"] for read in task]
        records = sum(found["end"] - found["start"] for found in ranges)
        self.note(f"epoch {plan['epoch']} is planned{how}: {records} records{last}")

    def _commit(self, commit: dict[str, Any]) -> None:
        epoch = commit["epoch"]
        if epoch != len(self.commits) + 1:
            raise Violation(f"epoch {epoch} is committed after epoch {len(self.commits)}")
        if self._open is None or self._open["epoch"] != epoch:
            raise Violation(f"epoch {epoch} is committed without a plan")
        if commit["rings"] != self._open["rings"]:
            raise Violation(f"epoch {epoch} ran under other rings than were planned")
        for which in ("ins", "outs"):
            before = self.commits[-1][which] if self.commits else {}
            for name, mark in before.items():
                if commit[which].get(name, mark) < mark:
                    raise Violation(f"the {which[:-1]} watermark of {name} went back at {epoch}")
        plan, self._open = self._open, None
        self.commits.append(commit)
        self.committed_by.append(self.generation)
        self.note(f"epoch {epoch} is committed")
        for stream in self._finished.committed(commit):
            self.note(f"finished splits of {stream} leave the ledger")
        self._turn(plan, commit)
        self._count(commit)
        self.slots.append({name: points.slots for name, points in self._points.items()})

    def _turn(self, plan: dict[str, Any], commit: dict[str, Any]) -> None:
        """Changes rings as the plan says."""
        epoch, bases = commit["epoch"], plan["ring_bases"]
        if set(commit["steps"]) != set(plan["moves"]):
            raise Violation(f"epoch {epoch}: other rings changed than were planned")
        for name, version in (self.commits[-2]["rings"] if epoch > 1 else {}).items():
            if commit["rings"].get(name) not in (None, version + (name in commit["steps"])):
                raise Violation(f"epoch {epoch}: the ring of {name} is none that a commit made")
        for name, base in bases.items():
            if name not in self._points:
                self._points[name] = Points(int(base.removeprefix("even/")))
        for name, classes in commit["steps"].items():
            moves = plan["moves"][name]
            points = self._points[name]
            before = points.slots
            points.move(moves, classes, epoch)
            grew = len(points.slots) - len(before)
            how = "split" if grew > 0 else "merge" if grew else "move"
            self.note(f"the ring of {name}: {how}")
            if name in bases and not self.away:
                self._bases[name] = bases[name]
                if not points.read(self._ring_object(epoch, bases[name])):
                    raise Violation(f"epoch {epoch}: {bases[name]} is another ring than was made")

    def _ring_object(self, epoch: int, name: str) -> bytes:
        if name not in self._ring_objects:
            file = self._disk.find(f"{self._root}/{name}")
            if not isinstance(file, File):
                raise Violation(f"epoch {epoch} names {name}, which is not there")
            self._ring_objects[name] = bytes(file.data)
        return self._ring_objects[name]

    def _count(self, commit: dict[str, Any]) -> None:
        """Updates which segments count at which points."""
        epoch = commit["epoch"]
        for name, deltas in commit["deltas"].items():
            for slot, delta in deltas.items():
                self._points[name].delta(int(slot), delta["segment"], epoch)
        self._adopt(epoch, commit["adoptions"])
        self.written.committed(commit)
        self._kept(commit["interval"])
        named = (points.segments() for points in self._points.values())
        self._windows.append(self._finished.named().union(*named))

    def _adopt(self, epoch: int, adoptions: list[dict[str, Any]]) -> None:
        for adoption in adoptions:
            name = adoption["computation"]
            self.note(f"a merge of {name} is adopted")
            self.adoptions.append(adoption)
            lost = self._points[name].adopt(adoption)
            if lost is not None:
                raise Violation(f"epoch {epoch}: a merge of {name} loses what counted at {lost}")

    def _kept(self, said: dict[str, Any] | None) -> None:
        """An entry may say that a checkpoint is complete."""
        named = [s for points in self._points.values() for s in points.segments()]
        look = self._is_new and not self.away
        if self.written.kept(said, named, self.riders.positions, look=look):
            self.note(f"the checkpoint of epoch {self.written.checkpoint} is complete")

    def check_own(self, position: int, generation: int) -> None:
        """A driver that relies on its entry at a position is right."""
        if self.away:
            return
        found = self._entries[position - 1] if position <= len(self._entries) else None
        if found is None or found["generation"] != generation:
            owner = f"generation {found['generation']}" if found else "no driver"
            raise Violation(
                f"a driver of generation {generation} believes that it has written log position "
                f"{position}, but {owner} has"
            )

    # Files ----------------------------------------------------------------

    def check_files(self) -> None:
        """Every file that the last commit needs exists."""
        if self.away:
            return
        named = (points.segments() for points in self._points.values())
        for segment in sorted(self._finished.named().union(*named)):
            at = self.riders.positions.get(segment)
            there = self._disk.find(f"{self._root}/{segment}") if at is None else self._file(at)
            if there is None and not self.written.may_be_lost(segment):
                raise Violation(f"epoch {len(self.commits)} needs {segment}, which is missing")
        for base in self._bases.values():
            if self._disk.find(f"{self._root}/{base}") is None:
                raise Violation(f"epoch {len(self.commits)} needs {base}, which is missing")
        self.control.check_files()

    def check_deletion(self, path: str, delivered: Callable[[], dict[str, int]]) -> None:
        """No driver deletes what is still needed. `delivered`: sink -> its last epoch."""
        file = path.removeprefix(f"{self._root}/")
        for name in [file, *self.riders.in_file(file)]:
            self._check_deletion(name, delivered)

    def _check_deletion(self, name: str, delivered: Callable[[], dict[str, int]]) -> None:
        self.written.check_deletion(name)
        if self.needs(name) or self.control.needs(name):
            raise Violation(f"{name} is deleted, but a retained commit or a savepoint needs it")
        last = delivered() if name.startswith("staged/") else {}
        for commit in self.commits if last else ():
            for file in commit["staged"]:
                waiting = commit["epoch"] > last[file["sink"]] and file["rows"]
                if name == f"staged/{file['sink']}/{file['name']}" and waiting:
                    raise Violation(f"{name} is deleted before its sink has it")
        for file in self.commits[-1]["outbox"] if self.commits else ():
            if name == f"outbox/{file['name']}":
                raise Violation(f"{name} is deleted before it was read")


def is_trimmed(disk: SimulatedDisk, directory: str) -> bool:
    """Whether a directory of the log has a marker, its own or one of many directories."""
    log, _, number = directory.rpartition("/")
    home = disk.find(log)
    for name in home.names if isinstance(home, Directory) else ():
        first, _, last = name.removesuffix(".trimmed").partition("-")
        is_marker = name.endswith(".trimmed") and first.isdigit()  # and no temporary file of one
        if is_marker and int(first) <= int(number) <= int(last or first):
            return True
    return False
