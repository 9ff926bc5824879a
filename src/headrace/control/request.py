"""Requests and answers as bytes: sealed JSON of at most 64 KB. Data, never code.

Whoever may write into a checkpoint may ask anything of its pipeline, and may also write nonsense
there. So a request is decoded by its type, and what is not a request is `Damage`: it gets an
outcome like any other, and the queue goes on (I2).
"""

from __future__ import annotations

import msgspec

from headrace.errors import HeadraceError, InvalidPipeline
from headrace.log.sealed import seal, unseal
from headrace.plan.control import Answer, ControlRequest
from headrace.plan.decisions.control import Damage

REQUEST_BYTES_MAX = 64 << 10

_REQUEST, _ANSWER = b"headrace-request", b"headrace-answer"


def encode_request(request: ControlRequest) -> bytes:
    """The bytes of a request; InvalidPipeline if it is too large."""
    body = msgspec.json.encode(request)
    if len(body) > REQUEST_BYTES_MAX:
        raise InvalidPipeline(
            f"a request has at most {REQUEST_BYTES_MAX:,} bytes of JSON; this one "
            f"({request.verb}) has {len(body):,}"
        )
    return seal(_REQUEST, body)


def decode_request(data: bytes, where: str) -> ControlRequest | Damage:
    """The request in some bytes, or why there is none."""
    if len(data) > 2 * REQUEST_BYTES_MAX:
        return Damage(f"{where} has {len(data):,} bytes; a request has {REQUEST_BYTES_MAX:,}")
    try:
        return msgspec.json.decode(unseal(_REQUEST, data, where), type=ControlRequest)
    except (HeadraceError, msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return Damage(f"it is not a request: {error}")


def encode_answer(answer: Answer) -> bytes:
    """The bytes of an answer: a function of the outcome, so all drivers write the same."""
    return seal(_ANSWER, msgspec.json.encode(answer))


def decode_answer(data: bytes, where: str) -> Answer | None:
    """The answer in some bytes; None if there is none, or it is damaged."""
    try:
        return msgspec.json.decode(unseal(_ANSWER, data, where), type=Answer)
    except (HeadraceError, msgspec.DecodeError, UnicodeError, RecursionError):
        return None
