"""Errors as users' models see them, and their texts as clients see them."""

from __future__ import annotations

import enum
import os
import sys
import traceback
from types import TracebackType
from typing import Any, List, Optional

_OWN_FOLDER = os.path.dirname(os.path.abspath(__file__))
#: Of texts that models make; whoever reads an error does not need more, and a client may not take more.
_MOST_CHARACTERS = 32 << 10
#: Innermost and outermost frames that are told.
_INNER_FRAMES = 80
_OUTER_FRAMES = 20


class TritonModelException(Exception):
    """A fault in how a model uses this module, or one that the server reports to it."""


class StubError(Exception):
    """A fault that the process itself finds in what a model did: its text goes to the client as it is."""


class _ErrorCode(enum.IntEnum):
    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7


def error_code(number: Any) -> _ErrorCode:
    """The code of that number; UNKNOWN when there is none."""
    try:
        return _ErrorCode(number)
    except ValueError:
        return _ErrorCode.UNKNOWN


class TritonError:
    """The error of one response: a message and a code, INTERNAL when none is given."""

    __slots__ = ("_message", "_code")

    UNKNOWN = _ErrorCode.UNKNOWN
    INTERNAL = _ErrorCode.INTERNAL
    NOT_FOUND = _ErrorCode.NOT_FOUND
    INVALID_ARG = _ErrorCode.INVALID_ARG
    UNAVAILABLE = _ErrorCode.UNAVAILABLE
    UNSUPPORTED = _ErrorCode.UNSUPPORTED
    ALREADY_EXISTS = _ErrorCode.ALREADY_EXISTS
    CANCELLED = _ErrorCode.CANCELLED

    def __init__(self, message: str, code: _ErrorCode = _ErrorCode.INTERNAL) -> None:
        if not isinstance(message, (str, bytes)):
            raise TypeError(f"TritonError(): message must be a str, got {type(message)}")
        if not isinstance(code, _ErrorCode):
            raise TypeError(f"TritonError(): code must be one of TritonError's codes, got {code!r}")
        self._message = message if isinstance(message, str) else message.decode()
        self._code = code

    def message(self) -> str:
        """What went wrong."""
        return self._message

    def code(self) -> _ErrorCode:
        """The code, comparable with `TritonError.INTERNAL` and so on."""
        return self._code


def _is_own(filename: str) -> bool:
    return filename.startswith("<frozen ") or os.path.dirname(filename) == _OWN_FOLDER


def _frames(trace: Optional[TracebackType]) -> List[traceback.FrameSummary]:
    """The frames of the model's code, innermost first. Those that led to it, and this runtime's, do not help."""
    frames = traceback.extract_tb(trace)
    first = 0
    while first < len(frames) and (_is_own(frames[first].filename) or _is_plumbing(frames[first].filename)):
        first += 1
    return [frame for frame in reversed(frames[first:]) if not _is_own(frame.filename)]


def _is_plumbing(filename: str) -> bool:
    folder = os.path.dirname(filename)
    return folder.endswith(os.path.join("concurrent", "futures")) or folder.endswith("importlib")


def _message_of(error: BaseException) -> str:
    try:
        return clip(str(error))
    except BaseException as nested:  # its __str__ may do anything
        return f"<its text cannot be made: {type(nested).__name__}>"


def clip(text: str) -> str:
    """The text, or its begin when it is too long for an error."""
    if len(text) <= _MOST_CHARACTERS:
        return text
    return f"{text[:_MOST_CHARACTERS]}… ({len(text) - _MOST_CHARACTERS} more characters)"


def exception_text(error: BaseException) -> str:
    """`<type>: <message>`, then where it happened, one `file(line): function` a line (python-backend.md §A8)."""
    text = f"{type(error).__name__}: {_message_of(error)}"
    frames = _frames(error.__traceback__)
    if not frames:
        return text
    lines = [f"  {frame.filename}({frame.lineno}): {frame.name}\n" for frame in frames]
    left_out = len(lines) - _INNER_FRAMES - _OUTER_FRAMES
    if left_out > 0:
        lines[_INNER_FRAMES:-_OUTER_FRAMES] = [f"  … ({left_out} more)\n"]
    return f"{text}\n\nAt:\n{''.join(lines)}"


def client_text(error: BaseException) -> str:
    """The text of a fault in `execute`: the model's exceptions with their place, the process's own plain."""
    return str(error) if isinstance(error, StubError) else exception_text(error)


def load_text(error: BaseException) -> str:
    """The text of a fault while a model is loaded; for code that cannot even be compiled with the line itself."""
    if isinstance(error, StubError):
        return str(error)
    text = exception_text(error)
    if isinstance(error, SyntaxError):
        where = "".join(traceback.format_exception_only(type(error), error)).rstrip()
        return f"{text}\n\n{where}\n"
    if isinstance(error, ImportError):
        return f"{text}\nThe interpreter is {sys.executable} (Python {sys.version.split()[0]})\n"
    return text
