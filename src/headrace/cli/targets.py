"""Finds the pipeline that `module:name` names; each possible mistake has its own message."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import traceback
from types import ModuleType
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError, InvalidPipeline

if TYPE_CHECKING:
    from headrace import Pipeline

_OURS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
"""Where the files of the package lie."""


def load_pipeline(target: str) -> Pipeline:
    """The pipeline named by `module:name`, or returned by the function of that name."""
    from headrace import Pipeline

    module_name, name = _parts(target)
    module = _module(module_name)
    found = _attribute(module, name)
    if callable(found) and not isinstance(found, type):
        found = _called(found, target)
    if not isinstance(found, Pipeline):
        raise InvalidPipeline(
            f"{target} is {_a(found)}, not a Pipeline or a function that returns one."
            f"{_pipelines_in(module)}"
        )
    return found


def _parts(target: str) -> tuple[str, str]:
    module, colon, name = target.partition(":")
    if module.endswith(".py") or os.sep in module:
        dotted = module.removesuffix(".py").strip("./").replace(os.sep, ".")
        raise InvalidPipeline(
            f"{module!r} is a path; name the module instead, from the directory in which you "
            f"start headrace: {dotted}:{name or 'pipeline'}"
        )
    if not (module and colon and name):
        raise InvalidPipeline(
            f"{target!r} names no pipeline: write module:name, as in "
            f"`headrace run {module or 'shop.orders'}:{name or 'pipeline'} --checkpoint DIR`, "
            "where name is a Pipeline or a function that returns one."
        )
    return module, name


def _module(name: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        if name == missing or name.startswith(f"{missing}."):
            raise InvalidPipeline(
                f"there is no module {missing!r}: it is looked for in {here} and among the "
                f"installed packages of {sys.executable}."
            ) from error
        raise InvalidPipeline(
            f"module {name!r} imports {missing!r}, which is not installed for {sys.executable}."
        ) from error
    except HeadraceError:
        raise  # A pipeline that is built on import gives the best message itself.
    except Exception as error:
        raise InvalidPipeline(f"module {name!r} cannot be imported: {_where(error)}") from error
    except SystemExit as error:
        raise InvalidPipeline(
            f"module {name!r} ends the program when it is imported: {_where(error)}. Put what only "
            "a script does under `if __name__ == '__main__':`"
        ) from error


def _attribute(module: ModuleType, name: str) -> Any:
    found: Any = module
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            near = difflib.get_close_matches(part, _names(found), n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise InvalidPipeline(
                f"module {module.__name__!r} has no {name!r}.{hint}{_pipelines_in(module)}"
            ) from error
    return found


def _called(function: Any, target: str) -> Any:
    try:
        return function()
    except HeadraceError:
        raise
    except Exception as error:
        raise InvalidPipeline(
            f"{target} is called without arguments to get a pipeline, and raised {_where(error)}"
        ) from error
    except SystemExit as error:
        raise InvalidPipeline(
            f"{target} is called without arguments to get a pipeline, and ended the program: "
            f"{_where(error)}. Does it read the command's own arguments?"
        ) from error


def _pipelines_in(module: ModuleType) -> str:
    from headrace import Pipeline

    names = [name for name in _names(module) if isinstance(getattr(module, name, None), Pipeline)]
    if not names:
        return ""
    return f" Pipelines there: {', '.join(f'{module.__name__}:{name}' for name in names)}."


def _names(found: Any) -> list[str]:
    return [name for name in dir(found) if not name.startswith("_")]


def _a(found: Any) -> str:
    return "None" if found is None else f"of type {type(found).__name__}"


def _where(error: BaseException) -> str:
    """An error with the line of the user's code that raised it."""
    every = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in every if not frame.filename.startswith(_OURS)] or every
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    if isinstance(error, SyntaxError):
        place = f" ({error.filename}:{error.lineno})"
    return f"{type(error).__name__}: {error}{place}"
