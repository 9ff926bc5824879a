"""Records the service calls of a hook."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from headrace.causal.questions import Question
from headrace.errors import CallUncertain, HeadraceError, ServiceError


class Asked(msgspec.Struct, frozen=True):
    """A call of an outside service and its outcome."""

    what: str
    answer: Any = None
    failure: str | None = None


def asking(ctx: Any, asked: list[Asked]) -> dict[str, Callable[..., Any]]:
    """The methods of a context that ask, and that write down what was asked."""
    if not hasattr(type(ctx), "ask"):
        return {}
    own, own_many = type(ctx).ask, type(ctx).ask_many

    def ask(question: Question) -> bytes:
        if question.options.batch:
            value: bytes = own(ctx, question)  # which calls `ask_many`
            return value
        try:
            value = own(ctx, question)
        except Exception as error:
            asked.append(_asked(question, error))
            raise
        asked.append(_asked(question, value))
        return value

    def ask_many(questions: Sequence[Question]) -> list[bytes | HeadraceError]:
        try:
            values: list[bytes | HeadraceError] = own_many(ctx, questions)
        except Exception as error:
            asked.extend(_asked(question, error) for question in questions)
            raise
        asked.extend(map(_asked, questions, values))
        return values

    return {"ask": ask, "ask_many": ask_many}


def _asked(question: Question, found: bytes | Exception) -> Asked:
    if isinstance(found, (ServiceError, CallUncertain)):
        return Asked(question.what, failure=str(found))
    if isinstance(found, Exception):
        return Asked(question.what, failure=f"{type(found).__name__}: {found}")
    try:
        return Asked(question.what, msgspec.msgpack.decode(found))
    except msgspec.DecodeError:
        return Asked(question.what, found)
