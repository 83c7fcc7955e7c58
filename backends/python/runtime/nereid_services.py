"""What models ask of the server beside inference: the log, metrics of their own, and other models' life."""

from __future__ import annotations

import enum
import os
import sys
import time
from typing import Any, List, Optional

import nereid_wire as wire
from nereid_calls import calls
from nereid_errors import TritonModelException, clip
from nereid_memory import OutOfMemory
from nereid_parameters import check_flag, check_text, travelling_float
from nereid_session import session


class _LogLevel(enum.IntEnum):
    INFO = 0
    WARNING = 1
    ERROR = 2
    VERBOSE = 3


def write_log(level: str, file: str, line: int, message: str) -> None:
    """Has the server write a line; a process that the model forked writes it to stderr itself."""
    link = session.link
    message = clip(message)
    if link is None or link.is_forked:
        stamp = time.strftime("%m%d %H:%M:%S")
        print(f"{level[0]}{stamp} {os.getpid()} {file}:{line}] {message}", file=sys.stderr, flush=True)
        return
    link.send(wire.LOG, 0, {"l": level, "s": file, "n": line, "m": message})


def _log(message: Any, level: Any) -> None:
    message = check_text("Logger.log", "message", message)
    if not isinstance(level, _LogLevel):
        raise TypeError(f"Logger.log(): level must be one of pb_utils.Logger's levels, got {level!r}")
    if level is _LogLevel.VERBOSE and session.verbose_level < 1:
        return
    caller = sys._getframe(2)
    write_log(level.name, os.path.basename(caller.f_code.co_filename), caller.f_lineno, message)


class Logger:
    """Writes to the server's log, with the file and line of the caller. Used without an object."""

    LogLevel = _LogLevel
    INFO = _LogLevel.INFO
    WARNING = _LogLevel.WARNING
    ERROR = _LogLevel.ERROR
    VERBOSE = _LogLevel.VERBOSE

    @staticmethod
    def log(message: str, level: _LogLevel = _LogLevel.INFO) -> None:
        """Writes a line of the level."""
        _log(message, level)

    @staticmethod
    def log_info(message: str) -> None:
        """Writes a line of level INFO."""
        _log(message, _LogLevel.INFO)

    @staticmethod
    def log_warn(message: str) -> None:
        """Writes a line of level WARNING."""
        _log(message, _LogLevel.WARNING)

    @staticmethod
    def log_error(message: str) -> None:
        """Writes a line of level ERROR."""
        _log(message, _LogLevel.ERROR)

    @staticmethod
    def log_verbose(message: str) -> None:
        """Writes a line when the server logs verbosely."""
        _log(message, _LogLevel.VERBOSE)


class MetricKind(enum.IntEnum):
    """Kinds of metrics."""

    COUNTER = 0
    GAUGE = 1
    HISTOGRAM = 2


def _ask(prefix: str, fields: wire.Fields) -> Any:
    try:
        return calls.ask(fields)
    except TritonModelException as error:
        raise TritonModelException(f"{prefix}{error}") from None


def _drop(fields: wire.Fields) -> None:
    link = session.link
    if link is not None and not link.is_forked:
        link.notify(wire.CALL, 0, {"m": "drop", **fields})


class _FamilyState:
    __slots__ = ("number", "is_gone")

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_gone = False


class Metric:
    """One series of a family; made by `MetricFamily.Metric`. It leaves `/metrics` with its last owner."""

    __slots__ = ("_number", "_family", "__weakref__")

    _number: int
    _family: _FamilyState

    def __init__(self, *_arguments: Any) -> None:
        raise TypeError("Metric(): make metrics with MetricFamily.Metric(labels, buckets)")

    def increment(self, value: float) -> None:
        """Adds to a counter (not less than 0) or a gauge."""
        self._change("increment", "Failed to increment metric value: ", value)

    def set(self, value: float) -> None:
        """Sets a gauge."""
        self._change("set", "Failed to set metric value: ", value)

    def observe(self, value: float) -> None:
        """Puts a value into a histogram."""
        self._change("observe", "Failed to observe metric value: ", value)

    def value(self) -> float:
        """The value of a counter or a gauge."""
        self._check()
        return float(_ask("Failed to get metric value: ", {"m": "value", "metric": self._number}))

    def _change(self, method: str, prefix: str, value: Any) -> None:
        if isinstance(value, (str, bytes)) or not hasattr(value, "__float__") and not hasattr(value, "__index__"):
            raise TypeError(f"{method}(): the value must be a number, got {type(value)}")
        self._check()
        _ask(prefix, {"m": method, "metric": self._number, "x": travelling_float(value)})

    def _check(self) -> None:
        if self._family.is_gone:
            raise TritonModelException(
                "Invalid metric operation as the corresponding 'MetricFamily' has been deleted. The 'MetricFamily' "
                "object should be deleted AFTER its corresponding 'Metric' objects have been deleted."
            )

    def __del__(self) -> None:
        if hasattr(self, "_number"):
            _drop({"metric": self._number})


class MetricFamily:
    """Metrics of one name and kind on `/metrics`; same name and kind is the same family."""

    __slots__ = ("_kind", "_state", "__weakref__")

    COUNTER = MetricKind.COUNTER
    GAUGE = MetricKind.GAUGE
    HISTOGRAM = MetricKind.HISTOGRAM

    def __init__(self, name: str, description: str, kind: MetricKind) -> None:
        name = check_text("MetricFamily", "name", name)
        description = check_text("MetricFamily", "description", description)
        if not isinstance(kind, MetricKind):
            raise TypeError(f"MetricFamily(): kind must be one of its kinds, as MetricFamily.COUNTER, got {kind!r}")
        self._kind = kind
        question = {"m": "family", "kind": kind.name.lower(), "name": name, "description": description}
        self._state = _FamilyState(_ask("Error when creating MetricFamily: ", question))

    def Metric(self, labels: Optional[dict] = None, buckets: Optional[List[float]] = None) -> Metric:
        """A series with these labels; histograms need ascending upper bounds of their buckets."""
        if labels is not None and not isinstance(labels, dict):
            raise TritonModelException("Failed to create metric. Labels must be a dictionary.")
        question = {"m": "metric", "family": self._state.number, "labels": _labels(labels or {})}
        if buckets is not None:
            question["buckets"] = self._buckets(buckets)
        elif self._kind is MetricKind.HISTOGRAM:
            raise TritonModelException("Failed to create metric. Missing required buckets.")
        metric = Metric.__new__(Metric)
        metric._family = self._state
        metric._number = _ask("Error when creating Metric: ", question)
        return metric

    def _buckets(self, buckets: Any) -> List[Any]:
        if not isinstance(buckets, list):
            raise TritonModelException("Failed to create metric. Buckets must be a list.")
        if self._kind is not MetricKind.HISTOGRAM:
            raise TritonModelException("Failed to create metric. Unexpected buckets found.")
        return [travelling_float(bound) for bound in buckets]

    def __del__(self) -> None:
        if hasattr(self, "_state"):
            self._state.is_gone = True
            _drop({"family": self._state.number})


def _labels(labels: dict) -> dict:
    for key, value in labels.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TritonModelException(
                f"Error when creating Metric: labels must be texts with texts for names, got {key!r}: {value!r}"
            )
    return labels


def load_model(model_name: str, config: str = "", files: Optional[dict] = None) -> None:
    """Loads a model and waits for it; `config` is JSON text, `files` has contents by `file:<path>`."""
    name = check_text("load_model", "model_name", model_name)
    fields: wire.Fields = {"m": "load", "model": name, "config": check_text("load_model", "config", config)}
    if files is not None and not isinstance(files, dict):
        raise TritonModelException(
            f"failed to load model '{name}', files should be a dictionary of file paths and file contents"
        )
    message = session.link.message()
    try:
        if files:
            fields["files"] = _place_files(files, message)
        calls.ask(fields, message)
    except (TritonModelException, OutOfMemory, wire.FrameTooLarge) as error:
        if not isinstance(error, TritonModelException):
            message.undo()
        raise TritonModelException(f"Failed to load model: {error}") from None


def _place_files(files: dict, message: Any) -> list:
    placed = []
    for path, content in files.items():
        if not isinstance(content, (bytes, bytearray, str)):
            raise TypeError(f"load_model(): the content of {path} must be bytes, got {type(content)}")
        data = content.encode() if isinstance(content, str) else bytes(content)
        placed.append([check_text("load_model", "path", path), *message.place(data, len(data)), len(data)])
    return placed


def unload_model(model_name: str, unload_dependents: bool = False) -> None:
    """Starts to unload a model."""
    fields = {
        "m": "unload",
        "model": check_text("unload_model", "model_name", model_name),
        "dependents": check_flag("unload_model", "unload_dependents", unload_dependents),
    }
    _ask("Failed to unload model: ", fields)


def is_model_ready(model_name: str, model_version: str = "") -> bool:
    """Whether a model is ready, in its own opinion too."""
    fields = {
        "m": "ready",
        "model": check_text("is_model_ready", "model_name", model_name),
        "version": check_text("is_model_ready", "model_version", model_version),
    }
    return bool(_ask("Failed to check model readiness: ", fields))
