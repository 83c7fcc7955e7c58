"""Checks of what models pass: a wrong type is a TypeError, a wrong value a TritonModelException (§A6)."""

from __future__ import annotations

import json
import operator
from typing import Any, List, Optional

from nereid_errors import TritonModelException
from nereid_tensor import Tensor

_MAX_EXACT = 1 << 53
_LEAST_INT, _MOST_INT = -(1 << 63), (1 << 63) - 1
_EMPTY = "{}"
# Whoever passes them on reads each of them: a million hold up everybody else.
_MOST_PARAMETERS = 10_000


def check_text(where: str, name: str, value: Any) -> str:
    """A str; bytes are taken for UTF-8."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode()
    raise TypeError(f"{where}(): {name} must be a str, got {type(value)}")


def check_integer(where: str, name: str, value: Any, bits: int, is_signed: bool = False) -> int:
    """An int, or what can stand for one, that fits into so many bits."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{where}(): {name} must be an int, got {type(value)}") from None
    least = -(1 << (bits - 1)) if is_signed else 0
    most = (1 << (bits - 1 if is_signed else bits)) - 1
    if not least <= number <= most:
        raise TypeError(f"{where}(): {name} must be from {least} to {most}, got {number}")
    return number


def check_flag(where: str, name: str, value: Any) -> bool:
    """A bool."""
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        return bool(value)
    raise TypeError(f"{where}(): {name} must be a bool, got {type(value)}")


def check_sequence(where: str, name: str, value: Any) -> list:
    """A list or another sequence, but no text; as a list of its own."""
    if isinstance(value, (list, tuple)):
        return list(value)
    if isinstance(value, (str, bytes)) or not hasattr(value, "__getitem__") or not hasattr(value, "__len__"):
        raise TypeError(f"{where}(): {name} must be a list, got {type(value)}")
    return list(value)


def check_tensors(where: str, name: str, value: Any, empty_text: str) -> List[Tensor]:
    """A list of tensors; one that is None is a TritonModelException with `empty_text`."""
    for tensor in value if type(value) is list else (None,):
        if type(tensor) is not Tensor:
            break
    else:
        return value.copy()
    tensors = check_sequence(where, name, value)
    for tensor in tensors:
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"{where}(): {name} must be a list of pb_utils.Tensor, it has a {type(tensor)}")
    if None in [tensor if tensor is None else True for tensor in tensors]:
        raise TritonModelException(empty_text)
    return tensors


def parameters_text(parameters: Optional[dict]) -> str:
    """Parameters as JSON text. Raises TritonModelException."""
    if parameters is None:
        return _EMPTY
    if not isinstance(parameters, dict):
        raise TritonModelException(f"Expect parameters to be a dict, got {type(parameters)}")
    if len(parameters) > _MOST_PARAMETERS:
        raise TritonModelException(f"Expect at most {_MOST_PARAMETERS} parameters, got {len(parameters)}")
    for key, value in parameters.items():
        if not isinstance(key, str):
            raise TritonModelException(f"Expect parameters keys to have type str, found type {type(key)}")
        if not isinstance(value, (bool, int, str)):
            raise TritonModelException(f"Expect parameters values to have type bool/int/str, found type {type(value)}")
        if isinstance(value, int) and not _LEAST_INT <= value <= _MOST_INT:
            raise TritonModelException(
                f"Expect parameters values of type int to have 64 bits with sign, got a larger one for {key!r}"
            )
    return json.dumps(parameters) if parameters else _EMPTY


def travelling_number(number: Any) -> Any:
    """A number or text for JSON that JavaScript reads: beyond 2^53 its digits."""
    return {"n": str(number)} if isinstance(number, int) and number > _MAX_EXACT else number


def received_number(value: Any) -> Any:
    """The opposite of `travelling_number`."""
    return int(value["n"]) if isinstance(value, dict) else value


def travelling_float(number: float) -> Any:
    """A float for JSON: what JSON has no numbers for goes as text."""
    number = float(number)
    if number != number:
        return "NaN"
    if number in (float("inf"), float("-inf")):
        return "Infinity" if number > 0 else "-Infinity"
    return number
