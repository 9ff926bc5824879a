"""What a class's code shows about what it will do, so that nobody pays for what it does not.

Both questions err on the safe side: a class that cannot be seen through is taken
to use services, and to read the values of its records.
"""

from __future__ import annotations

import dis
from types import CodeType, FunctionType
from typing import Any

_SEEN_THROUGH = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW"})
_WITHOUT_VALUE = frozenset({"timestamp", "key", "stream", "late"})
_LOOKS_AROUND = frozenset(
    {"locals", "vars", "eval", "exec", "dir", "breakpoint", "set_trace", "_getframe"}
    | {"currentframe", "stack"}
)


def mentions(owners: list[type], names: frozenset[str]) -> bool:
    """Whether some method of these classes mentions an attribute or a global of these names."""
    todo = [code for cls in owners for f in vars(cls).values() if (code := _code(f)) is not None]
    while todo:
        code = todo.pop()
        if not names.isdisjoint(code.co_names):
            return True
        todo.extend(c for c in code.co_consts if isinstance(c, CodeType))
    return False


def leaves_value_alone(hook: Any) -> bool:
    """Whether `process_record` provably never looks at its record's value.

    Its record must appear in no other way than as `record.timestamp`, `.key`, `.stream` or
    `.late`: then it cannot get anywhere else, and no value need be built for it.
    """
    if not isinstance(hook, FunctionType):
        return False
    code = hook.__code__
    if code.co_argcount != 3 or code.co_kwonlyargcount or code.co_flags & 0x0C:
        return False
    record = code.co_varnames[1]
    if record in code.co_cellvars or not _LOOKS_AROUND.isdisjoint(code.co_names):
        return False
    instructions = list(dis.get_instructions(code))
    for at, instruction in enumerate(instructions):
        if instruction.opcode not in dis.haslocal:
            continue
        named = instruction.argval
        if record not in (named if isinstance(named, tuple) else (named,)):
            continue
        following = instructions[at + 1]
        if (
            instruction.opname not in _SEEN_THROUGH
            or following.opname != "LOAD_ATTR"
            or following.argval not in _WITHOUT_VALUE
        ):
            return False
    return True


def _code(member: Any) -> CodeType | None:
    function = getattr(member, "__func__", member)
    found = getattr(getattr(function, "__wrapped__", function), "__code__", None)
    return found if isinstance(found, CodeType) else None
