"""Writes the reference: one Markdown page per public namespace, from docstrings and signatures.

    python tools/reference.py docs/reference

The pages are generated for every build of the site and are not kept in the repository.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

NAMESPACES = (
    "headrace", "headrace.agg", "headrace.sources", "headrace.sinks", "headrace.formats",
    "headrace.testing",
)  # fmt: skip
WIDTH = 92
"""The widest signature that is shown in one line."""


def main() -> None:
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for namespace in NAMESPACES:
        path = directory / page_name(namespace)
        path.write_text(page(namespace), encoding="utf-8")


def page_name(namespace: str) -> str:
    return f"{namespace.removeprefix('headrace.')}.md"


def page(namespace: str) -> str:
    module = module_of(namespace)
    parts = [f"# {namespace}", prose(module.__doc__)]
    for name in public_names(module):
        parts += described(name, getattr(module, name))
    return "\n\n".join(part for part in parts if part) + "\n"


def module_of(namespace: str) -> ModuleType:
    """`headrace.agg` is an attribute of headrace; its module has another name."""
    package, _, name = namespace.partition(".")
    found = getattr(importlib.import_module(package), name, None) if name else None
    return found or importlib.import_module(namespace)


def public_names(module: ModuleType) -> list[str]:
    """The names in `__all__`; without one, the functions and classes that the module defines."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return list(listed)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]


def described(name: str, value: Any) -> Iterator[str]:
    yield f"## {name}"
    if inspect.ismodule(value):
        yield f"The namespace [headrace.{name}]({page_name(f'headrace.{name}')})."
    elif inspect.isclass(value):
        yield from described_class(name, value)
    elif callable(value):
        yield code(name + signature(value))
        yield prose(value.__doc__)
    else:
        yield code(f"{name} = {value!r}" if isinstance(value, int) else name)
        if not isinstance(value, int | str):
            yield prose(type(value).__doc__)


def described_class(name: str, cls: type) -> Iterator[str]:
    bases = ", ".join(base.__name__ for base in cls.__bases__ if base is not object)
    made = "" if issubclass(cls, BaseException) else constructor(cls)
    yield code(f"class {name}{made}" if made else f"class {name}" + (f"({bases})" if bases else ""))
    yield prose(cls.__doc__)
    if issubclass(cls, BaseException):
        return
    fields = list(documented_fields(cls))
    if fields:
        yield "\n".join(f"- **`{field}`**: {' '.join(text.split())}" for field, text in fields)
    for method, function in methods(cls):
        yield f"### {name}.{method}"
        yield code(method + signature(function) if callable(function) else method)
        yield prose(inspect.getdoc(function))


def constructor(cls: type) -> str:
    """The parameters of a class that has an `__init__` of its own."""
    own = next((base for base in ours(cls) if "__init__" in vars(base)), None)
    return "" if own is None else signature(vars(own)["__init__"]).partition(" -> ")[0]


def methods(cls: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties, of its own and of its bases in Headrace."""
    seen = set()
    for base in ours(cls):
        for name, value in vars(base).items():
            function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            shown = inspect.isfunction(function) or isinstance(function, property)
            if not name.startswith("_") and shown and name not in seen:
                seen.add(name)
                yield name, function


def documented_fields(cls: type) -> Iterator[tuple[str, str]]:
    """Attributes with a docstring below them."""
    for base in ours(cls):
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        except (OSError, TypeError):
            continue
        body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
        for statement, after in itertools.pairwise(body):
            if (
                isinstance(statement, ast.AnnAssign)
                and isinstance(statement.target, ast.Name)
                and not statement.target.id.startswith("_")
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
                and isinstance(after.value.value, str)
            ):
                yield statement.target.id, escaped(after.value.value)


def ours(cls: type) -> list[type]:
    return [base for base in cls.__mro__ if base.__module__.startswith("headrace")]


def signature(function: Callable[..., Any]) -> str:
    """`(a: int, *, b: str = "x") -> int`, over several lines where it is long."""
    found = inspect.signature(function)
    shown: list[str] = []
    keyword_only = False
    for parameter in found.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            shown.append("*")
        if parameter.kind is parameter.VAR_POSITIONAL:
            keyword_only = True
        shown.append(parameter_text(parameter))
    given = found.return_annotation
    returns = "" if given is found.empty else f" -> {annotation(given)}"
    line = f"({', '.join(shown)}){returns}"
    if len(line) <= WIDTH:
        return line
    return "(\n" + "".join(f"    {text},\n" for text in shown) + f"){returns}"


def parameter_text(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = stars + parameter.name
    annotated = parameter.annotation is not parameter.empty
    if annotated:
        text += f": {annotation(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        default = repr(parameter.default)
        if default.startswith("<"):
            default = "..."  # A default that has no form in source, such as a mark for "not given".
        text += f" = {default}" if annotated else f"={default}"
    return text


def annotation(given: Any) -> str:
    return given if isinstance(given, str) else inspect.formatannotation(given)


def code(text: str) -> str:
    return f"```text\n{text}\n```"


def prose(docstring: str | None) -> str:
    return escaped(inspect.cleandoc(docstring or ""))


def escaped(text: str) -> str:
    """`<name>` outside of code is text, not a tag of HTML."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(
        piece if piece.startswith("`") else re.sub(r"<(?=[A-Za-z/])", "&lt;", piece)
        for piece in pieces
    )


if __name__ == "__main__":
    main()
