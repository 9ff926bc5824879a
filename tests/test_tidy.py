"""The house rules of src/headrace, checked by reading its source.

Rooms form an order, and a room imports only itself and rooms before it (`ROOMS_IN_ORDER`). `store`
stands first, because the workspaces of sources and sinks are names in a store; it knows nothing of
what they hold. `sources` and `sinks` are peers: neither imports the other.

Imports count wherever they stand: at the top of a module, inside a function, under TYPE_CHECKING,
or as a literal given to `import_module`.
"""

import ast
import importlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

SOURCE_ROOT = Path(__file__).parent.parent / "src"

# The modules that lie directly in headrace/ (errors, failpoints, ...), which everything may use.
GROUND = "top-level modules"

ROOMS_IN_ORDER: tuple[tuple[str, ...], ...] = (
    (GROUND,),
    ("store",),
    ("model",),
    ("formats",),
    ("operators",),
    ("pipeline",),
    ("plan",),
    ("log",),
    ("control",),
    ("state",),
    ("causal",),
    ("worker",),
    ("engine",),
    ("sources", "sinks"),
    ("observe",),
    ("testing",),
    ("workloads",),
    ("bench",),
    ("demo",),
    ("cli",),
)
LEVEL_OF_ROOM = {room: level for level, rooms in enumerate(ROOMS_IN_ORDER) for room in rooms}

# Rooms that hold programs like a user's, and so may use headrace's own public face.
ROOMS_THAT_USE_THE_PUBLIC_FACE = {"workloads", "bench", "demo", "cli"}
PACKAGES_THAT_KNOW_SPARK = (
    "headrace.engine.spark",
    "headrace.sources",
    "headrace.sinks",
    "headrace.bench",
    "headrace.cli",
)

# Inside engine/: a sub-room imports only itself and sub-rooms before it; the face comes last.
ENGINE_FACE = "the modules that lie directly in engine/"
ENGINE_ROOMS_IN_ORDER: tuple[tuple[str, ...], ...] = (
    ("history",),
    ("upkeep",),
    ("jobs",),
    ("driver",),
    ("leading",),
    ("primitives",),
    ("replay", "spark"),
    ("deploy",),
    (ENGINE_FACE,),
)
LEVEL_OF_ENGINE_ROOM = {
    room: level for level, rooms in enumerate(ENGINE_ROOMS_IN_ORDER) for room in rooms
}
MODULES_BESIDE_EACH_OTHER_MAX = 14

PUBLIC_NAMESPACES = (
    "headrace", "headrace.formats", "headrace.sources", "headrace.sinks", "headrace.testing",
)  # fmt: skip
# What the outside world starts, so that nothing inside needs to import it.
ENTRY_POINTS = {*PUBLIC_NAMESPACES, "headrace.cli", "headrace.cli.main", "headrace.__main__"}

LINES_PER_FILE_MAX = 400
# Spark's private doors, the RDD interface, and a number that differs between attempts of one task.
FORBIDDEN_ATTRIBUTES = {"_jvm", "_jdf", "_jsc", "rdd", "attemptNumber"}
# Catching NotImplementedError is fine: libraries raise it.
PATCH_BY_STRING = re.compile(r"(setattr|setitem|patch)\(\s*\"headrace\.")
# As comments cite rules: "(A6)", "(D1, D4)", "protocol C8", "Rules D1, D4".
RULE = re.compile(r"\b[A-I][0-9]{1,2}\b")
CITED_RULES = re.compile(
    r"\([A-I][0-9]{1,2}(?:, [A-I][0-9]{1,2})*\)|(?i:protocol|rules?) [A-I][0-9]{1,2}[^.)]*"
)
UNFINISHED_WORK = re.compile(r"\b(TODO|FIXME|XXX)\b|\braise NotImplementedError\b")


@dataclass(frozen=True)
class Module:
    """One source file: its dotted name, where it lies and what it says."""

    name: str
    path: Path
    text: str

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def room(self) -> str:
        return room_of(self.name)

    @property
    def tree(self) -> ast.Module:
        return parsed(self.path)

    def at(self, line: int) -> str:
        return f"{self.path.relative_to(SOURCE_ROOT.parent)}:{line}"


@dataclass(frozen=True)
class Import:
    """A module imports another, or a name from it, on a line."""

    target: str
    line: int


def test_a_room_imports_only_itself_and_rooms_before_it() -> None:
    complaints = []
    for module in modules():
        if module.name in {"headrace", "headrace.__main__"}:
            continue  # The public face and the command may reach every room.
        for found in imports_of(module):
            if found.target.split(".")[0] != "headrace":
                continue
            complaint = layering_complaint(module, found)
            if complaint:
                complaints.append(f"{module.at(found.line)}: {complaint}")
    fail_with("Imports must point to earlier rooms", complaints)


def test_every_room_has_its_place_in_the_order() -> None:
    unknown = {module.room for module in modules()} - set(LEVEL_OF_ROOM)
    fail_with("Give these rooms a place in ROOMS_IN_ORDER, or move their code", sorted(unknown))


def test_pyspark_is_imported_only_where_spark_is_known() -> None:
    complaints = [
        f"{module.at(found.line)}: imports {found.target}"
        for module in modules()
        if not module.name.startswith(PACKAGES_THAT_KNOW_SPARK)
        for found in imports_of(module)
        if found.target.split(".")[0] == "pyspark"
    ]
    fail_with(f"Only {', '.join(PACKAGES_THAT_KNOW_SPARK)} may import pyspark", complaints)


def test_a_sub_room_of_the_engine_imports_only_itself_and_sub_rooms_before_it() -> None:
    complaints = []
    for module in modules():
        own = engine_room_of(module.name)
        for found in imports_of(module) if own else ():
            other = engine_room_of(found.target)
            if other in (own, None):
                continue
            if LEVEL_OF_ENGINE_ROOM[other] >= LEVEL_OF_ENGINE_ROOM[own]:
                complaints.append(f"{module.at(found.line)}: {own} imports {found.target}")
    fail_with("Imports inside engine/ must point to earlier sub-rooms", complaints)


def test_no_room_has_more_modules_than_a_reader_can_survey() -> None:
    beside = Counter(module.path.parent for module in modules() if not module.is_package)
    complaints = [
        f"{directory.relative_to(SOURCE_ROOT.parent)}: {count} modules"
        for directory, count in beside.items()
        if count > MODULES_BESIDE_EACH_OTHER_MAX
    ]
    fail_with(f"Cut rooms of more than {MODULES_BESIDE_EACH_OTHER_MAX} modules", complaints)


def test_no_modules_import_each_other_in_a_circle() -> None:
    complaints = [" <-> ".join(circle) for circle in circles()]
    fail_with("These modules need each other, and so cannot be read one by one", complaints)


def test_no_public_class_has_the_name_of_another() -> None:
    homes: dict[str, list[str]] = {}
    for module in modules():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(module.at(node.lineno))
    complaints = [f"{name}: {', '.join(at)}" for name, at in homes.items() if len(at) > 1]
    fail_with("Give two ideas two names", complaints)


def test_no_object_asks_which_attributes_it_has() -> None:
    complaints = [
        module.at(node.lineno)
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") == "hasattr"
        and getattr(node.args[0], "id", "") == "self"
    ]
    fail_with("An object that is two objects by turns should be two classes", complaints)


def test_nothing_is_patched_by_a_string() -> None:
    tests = Path(__file__).parent / "unit" / "engine"
    complaints = [
        f"{path.relative_to(SOURCE_ROOT.parent)}:{text.count(chr(10), 0, found.start()) + 1}"
        for place in (SOURCE_ROOT / "headrace" / "testing", tests)
        for path in sorted(place.rglob("*.py"))
        for text in (path.read_text(encoding="utf-8"),)
        for found in PATCH_BY_STRING.finditer(text)
    ]
    fail_with("Pass what a test changes as an argument (System, Limits, Setup)", complaints)


def test_every_rule_that_the_source_cites_is_in_the_protocol() -> None:
    protocol = SOURCE_ROOT.parent / "docs" / "internals" / "protocol.md"
    known = set(RULE.findall(protocol.read_text(encoding="utf-8")))
    complaints = [
        f"{module.at(number)}: {label}"
        for module in modules()
        for number, line in enumerate(module.text.splitlines(), start=1)
        for cited in CITED_RULES.findall(line)
        for label in RULE.findall(cited)
        if label not in known
    ]
    fail_with(f"{protocol.name} does not have these rules", complaints)


def test_no_file_is_longer_than_a_reader_can_hold() -> None:
    lengths = [(module, len(module.text.splitlines())) for module in modules()]
    complaints = [
        f"{module.at(1)}: {lines} lines" for module, lines in lengths if lines > LINES_PER_FILE_MAX
    ]
    fail_with(f"Split files of more than {LINES_PER_FILE_MAX} lines", complaints)


def test_nothing_uses_the_private_doors_of_spark() -> None:
    complaints = []
    for module in modules():
        for node in ast.walk(module.tree):
            name = None
            if isinstance(node, ast.Attribute):
                name = node.attr
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                name = node.value  # As in getattr(session, "_jvm").
            if name in FORBIDDEN_ATTRIBUTES:
                complaints.append(f"{module.at(node.lineno)}: {name}")
    fail_with("Use the DataFrame interface only", complaints)


def test_no_work_is_left_unfinished() -> None:
    complaints = [
        f"{module.at(number)}: {line.strip()}"
        for module in modules()
        for number, line in enumerate(module.text.splitlines(), start=1)
        if UNFINISHED_WORK.search(line)
    ]
    fail_with("Finish these, or open an issue and drop the note", complaints)


def test_no_invariant_rests_on_assert() -> None:
    complaints = [
        module.at(node.lineno)
        for module in modules()
        if module.room != "testing"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Assert)
    ]
    fail_with("assert vanishes under -O: raise an error from headrace.errors", complaints)


def test_every_module_says_what_it_is_for() -> None:
    complaints = [module.at(1) for module in modules() if not ast.get_docstring(module.tree)]
    fail_with("These modules open without a docstring", complaints)


def test_every_public_name_lives_in_exactly_one_namespace() -> None:
    homes: Counter[str] = Counter()
    complaints = []
    for namespace_name in PUBLIC_NAMESPACES:
        if namespace_name not in module_names():
            continue
        namespace = importlib.import_module(namespace_name)
        names = getattr(namespace, "__all__", None)
        if names is None:
            complaints.append(f"{namespace_name} has no __all__")
            continue
        homes.update(names)
        complaints += [
            f"{namespace_name}.__all__ names {name}, which {namespace_name} does not have"
            for name in names
            if not hasattr(namespace, name) and f"{namespace_name}.{name}" not in module_names()
        ]
    # sources.csv and sinks.csv are two things, told apart by the namespace that users write.
    formats = set(importlib.import_module("headrace.sources").__all__) & set(
        importlib.import_module("headrace.sinks").__all__
    )
    complaints += [
        f"{name} is exported {count} times"
        for name, count in homes.items()
        if count > (2 if name in formats else 1)
    ]
    fail_with("The public names are not in order", complaints)


def test_every_module_is_imported_by_another() -> None:
    complaints = [
        f"{module.at(1)}: nothing imports {module.name}"
        for module in modules()
        if module.name not in ENTRY_POINTS and not is_imported(module)
    ]
    fail_with("Use these files or delete them", complaints)


# How the source is read.


@cache
def modules() -> tuple[Module, ...]:
    """Every module under src/headrace, packages included, in order of their paths."""
    found = []
    for path in sorted((SOURCE_ROOT / "headrace").rglob("*.py")):
        parts = path.relative_to(SOURCE_ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.append(Module(name, path, path.read_text(encoding="utf-8")))
    return tuple(found)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def room_of(module_name: str) -> str:
    """The room a dotted name lies in; what lies directly in headrace/ is the ground."""
    parts = module_name.split(".")
    if len(parts) == 1:
        return GROUND
    is_room = parts[1] in LEVEL_OF_ROOM or (SOURCE_ROOT / "headrace" / parts[1]).is_dir()
    return parts[1] if is_room else GROUND


@cache
def imports_of(module: Module) -> tuple[Import, ...]:
    return tuple(find_imports(module))


def find_imports(module: Module) -> Iterator[Import]:
    """Every import, absolute; `from a import b` counts as a.b where that is a module of ours."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = absolute_base(module, node)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield Import(inner if inner in module_names() else base, node.lineno)
        elif isinstance(node, ast.Call) and is_dynamic_import(node):
            target = node.args[0]
            if isinstance(target, ast.Constant) and isinstance(target.value, str):
                yield Import(target.value, node.lineno)
        elif isinstance(node, ast.Dict):  # names and the modules to load them from
            for value in node.values:
                if isinstance(value, ast.Constant) and value.value in module_names() - {"headrace"}:
                    yield Import(value.value, value.lineno)


@cache
def module_names() -> frozenset[str]:
    return frozenset(module.name for module in modules())


def absolute_base(module: Module, node: ast.ImportFrom) -> str:
    if node.level == 0:
        return node.module or ""
    package = module.name if module.is_package else module.name.rpartition(".")[0]
    for _ in range(node.level - 1):
        package = package.rpartition(".")[0]
    return f"{package}.{node.module}" if node.module else package


def is_dynamic_import(node: ast.Call) -> bool:
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in {"import_module", "__import__"} and bool(node.args)


def layering_complaint(module: Module, found: Import) -> str | None:
    if found.target == "headrace":
        if module.room in ROOMS_THAT_USE_THE_PUBLIC_FACE:
            return None
        return f"{module.room} imports headrace itself; import the room that defines the name"
    target_room = room_of(found.target)
    if target_room == module.room or {target_room, module.room} - set(LEVEL_OF_ROOM):
        return None  # A room without a place in the order is another test's complaint.
    if LEVEL_OF_ROOM[target_room] < LEVEL_OF_ROOM[module.room]:
        return None
    return f"{module.room} imports {found.target}, but {target_room} is not before {module.room}"


def engine_room_of(name: str) -> str | None:
    """The sub-room of engine/ that a dotted name lies in; None outside of engine/."""
    parts = name.split(".")
    if parts[:2] != ["headrace", "engine"]:
        return None
    return parts[2] if len(parts) > 2 and parts[2] in LEVEL_OF_ENGINE_ROOM else ENGINE_FACE


def circles() -> list[list[str]]:
    """Modules that need each other, by Tarjan's algorithm; packages do not count."""
    plain = {module.name: module for module in modules() if not module.is_package}
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = lowest[name] = len(index)
        stack.append(name)
        for target in sorted({i.target for i in imports_of(plain[name])} & set(plain)):
            if target not in index:
                visit(target)
                lowest[name] = min(lowest[name], lowest[target])
            elif target in stack:
                lowest[name] = min(lowest[name], index[target])
        if lowest[name] == index[name]:
            at = stack.index(name)
            circle = stack[at:]
            del stack[at:]
            if len(circle) > 1:
                found.append(sorted(circle))

    for name in plain:
        if name not in index:
            visit(name)
    return found


def is_imported(module: Module) -> bool:
    """Whether another module imports this one (or, for a package, anything from outside it)."""
    inside = f"{module.name}."
    for other in modules():
        if other.name == module.name or (module.is_package and other.name.startswith(inside)):
            continue
        for found in imports_of(other):
            if found.target == module.name:
                return True
            if module.is_package and found.target.startswith(inside):
                return True
    return False


def fail_with(headline: str, complaints: list[str]) -> None:
    if complaints:
        pytest.fail(headline + ":\n  " + "\n  ".join(complaints), pytrace=False)
