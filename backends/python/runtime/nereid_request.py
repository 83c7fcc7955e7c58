"""`InferenceRequest`, as it comes to `execute` and as models make it to call others, and what belongs to it."""

from __future__ import annotations

import enum
from typing import Any, Collection, Optional

import nereid_wire as wire
from nereid_calls import ResponseIterator, calls
from nereid_errors import TritonModelException
from nereid_memory import OutOfMemory
from nereid_parameters import (
    check_flag,
    check_integer,
    check_sequence,
    check_tensors,
    check_text,
    parameters_text,
    received_number,
    travelling_number,
)
from nereid_response import InferenceResponseSender, RequestState, error_response, register_sender
from nereid_session import session
from nereid_tensor import place_tensor, receive_tensor

RELEASE_ALL = 1
RELEASE_RESCHEDULE = 2


class MemoryType(enum.IntEnum):
    """Where the outputs of a call should lie."""

    TRITONSERVER_MEMORY_GPU = 0
    TRITONSERVER_MEMORY_CPU = 1


class PreferredMemory:
    """Where a model wants the outputs of a call; they come in main memory."""

    __slots__ = ("_type", "_device_id")

    def __init__(self, preferred_memory_type: MemoryType, preferred_device_id: int = 0) -> None:
        if not isinstance(preferred_memory_type, MemoryType):
            raise TypeError(
                "PreferredMemory(): preferred_memory_type must be TRITONSERVER_MEMORY_CPU or TRITONSERVER_MEMORY_GPU, "
                f"got {preferred_memory_type!r}"
            )
        self._type = preferred_memory_type
        self._device_id = check_integer("PreferredMemory", "preferred_device_id", preferred_device_id, 64, True)


class InferenceTrace:
    """The trace of a request; passed on with a call it makes the call a part of it."""

    __slots__ = ("_context", "_request")

    def __init__(self, context: Optional[str] = None, request: Optional[int] = None) -> None:
        self._context = context
        self._request = request

    def get_context(self) -> Optional[str]:
        """The context to pass on to other systems, or None."""
        return self._context or None


_NO_TRACE = InferenceTrace()
_ANY_MEMORY = object()
_REQUIRED: Any = object()


class InferenceRequest:
    """A request: one of those that `execute` is given, or one to another model (python-backend.md §A6, §A9)."""

    # `_fields` holds what the wire holds: of incoming requests as it came.
    __slots__ = ("_fields", "_body", "_inputs", "_names", "_model", "_version", "_trace", "_state", "_sender",
                 "_release", "__weakref__")  # fmt: skip

    _body: Any
    _model: Optional[str]
    _state: Optional[RequestState]
    _sender: Optional[InferenceResponseSender]

    def __init__(
        self,
        request_id: str = "",
        correlation_id: Any = 0,
        inputs: Any = _REQUIRED,
        requested_output_names: Any = _REQUIRED,
        model_name: str = _REQUIRED,
        model_version: int = -1,
        flags: int = 0,
        timeout: int = 0,
        preferred_memory: Any = _ANY_MEMORY,
        trace: InferenceTrace = _NO_TRACE,
        parameters: Optional[dict] = None,
    ) -> None:
        where = "InferenceRequest"
        for name, value in (
            ("inputs", inputs), ("requested_output_names", requested_output_names), ("model_name", model_name),
        ):  # fmt: skip
            if value is _REQUIRED:
                raise TypeError(f"{where}(): {name} is missing")
        request_id = check_text(where, "request_id", request_id)
        self._model = check_text(where, "model_name", model_name)
        self._version = check_integer(where, "model_version", model_version, 64, is_signed=True)
        names = [
            check_text(where, "requested_output_names", name)
            for name in check_sequence(where, "requested_output_names", requested_output_names)
        ]
        if preferred_memory is not _ANY_MEMORY and not isinstance(preferred_memory, PreferredMemory):
            raise TypeError(f"{where}(): preferred_memory must be a PreferredMemory, got {type(preferred_memory)}")
        if not isinstance(trace, InferenceTrace):
            raise TypeError(f"{where}(): trace must be what request.trace() gives, got {type(trace)}")
        self._fields: wire.Fields = {
            "id": request_id,
            "c": _check_correlation_id(correlation_id),
            "g": check_integer(where, "flags", flags, 32),
            "t": check_integer(where, "timeout", timeout, 64),
            "p": parameters_text(parameters),
        }
        about = f"for request with id '{request_id}' and model name '{self._model}' should not be empty."
        self._inputs = check_tensors(where, "inputs", inputs, f"Input tensor {about}")
        if "" in names:
            raise TritonModelException(f"Requested output name {about}")
        self._names: Collection[str] = set(names)
        self._trace = trace
        self._body = self._state = self._sender = None
        self._release = RELEASE_ALL

    def inputs(self) -> list:
        """Its tensors; optional ones may be missing."""
        tensors = self._inputs
        if tensors is None:
            body = self._body
            tensors = self._inputs = [receive_tensor(fields, body) for fields in self._fields["n"]]
        return tensors

    def request_id(self) -> str:
        """Its id; empty when the client gave none."""
        return self._fields.get("id", "")

    def correlation_id(self) -> Any:
        """The correlation id of its sequence, an int or a str; 0 = none."""
        return received_number(self._fields.get("c", 0))

    def flags(self) -> int:
        """Flags of its sequence."""
        return self._fields.get("g", 0)

    def set_flags(self, flags: int) -> None:
        """Changes the flags of its sequence."""
        self._fields["g"] = check_integer("set_flags", "flags", flags, 32)

    def timeout(self) -> int:
        """The timeout of the request, µs; 0 = none."""
        return received_number(self._fields.get("t", 0))

    def parameters(self) -> str:
        """Its parameters as JSON text."""
        return self._fields.get("p", "{}")

    def requested_output_names(self) -> set:
        """Names of the outputs to compute."""
        return set(self._names)

    def trace(self) -> InferenceTrace:
        """Its trace, to be passed on with calls of other models."""
        if self._trace is None:
            fields = self._fields
            self._trace = InferenceTrace(fields.get("x"), fields["i"] if fields.get("y") else None)
        return self._trace

    def is_cancelled(self) -> bool:
        """Whether the client has gone."""
        return self._state is not None and self._state.number in session.cancelled

    def set_release_flags(self, flags: int) -> None:
        """With `TRITONSERVER_REQUEST_RELEASE_RESCHEDULE` the request gets another turn (iterative sequences)."""
        self._release = check_integer("set_release_flags", "flags", flags, 32)

    def get_response_sender(self) -> InferenceResponseSender:
        """The one sender of its responses."""
        if self._sender is None:
            if self._state is not None:
                register_sender(self._state)
            self._sender = InferenceResponseSender(self._state)
        return self._sender

    def exec(self, decoupled: bool = False) -> Any:
        """Runs the request on its model and waits: the response, or with `decoupled` an iterator of responses."""
        is_stream = check_flag("exec", "decoupled", decoupled)
        prepared = self._prepare(is_stream)
        if is_stream:
            return ResponseIterator(_stream_of(prepared))
        return prepared if not isinstance(prepared, tuple) else calls.infer(*prepared)

    def async_exec(self, decoupled: bool = False) -> Any:
        """As `exec`, to be awaited in a coroutine."""
        import asyncio

        is_stream = check_flag("async_exec", "decoupled", decoupled)
        loop = asyncio.get_running_loop()
        prepared = self._prepare(is_stream)
        if is_stream:
            return _stream_of(prepared).begun(loop)
        if isinstance(prepared, tuple):
            return calls.infer_soon(*prepared, loop)
        future = loop.create_future()
        future.set_result(prepared)
        return future

    def _prepare(self, is_stream: bool) -> Any:
        """The call's fields and bytes, or a response with the reason why it cannot be made."""
        if not session.may_call:
            raise TritonModelException("BLS is only supported during the 'execute' function.")
        own, message = self._fields, session.link.message()
        fields: wire.Fields = {"m": "stream" if is_stream else "infer", "version": self._version}
        fields["model"] = session.model_name if self._model is None else self._model
        for key in ("id", "c", "g", "t", "p"):
            value = own.get(key)
            if value and value != "{}":
                fields[key] = travelling_number(value)
        fields["o"] = sorted(self._names)
        trace = self.trace()
        if trace._request is not None:
            fields["y"] = trace._request
        try:
            fields["n"] = [place_tensor(tensor, message) for tensor in self.inputs()]
        except OutOfMemory as error:
            message.undo()
            return error_response(str(error))
        return fields, message


def _stream_of(prepared: Any) -> Any:
    return calls.stream(*prepared) if isinstance(prepared, tuple) else calls.failed_stream(prepared)


def _check_correlation_id(value: Any) -> Any:
    if value is None:
        raise TypeError("InferenceRequest(): correlation_id must be an int or a str, got None")
    if isinstance(value, str):
        return value
    if not isinstance(value, int):
        raise TritonModelException("Correlation ID must be integer or string")
    return check_integer("InferenceRequest", "correlation_id", value, 64)


def receive_request(fields: wire.Fields, body: Any) -> InferenceRequest:
    """The request of an EXECUTE frame. Tensors in shared memory are taken at once: they must be given back."""
    request = InferenceRequest.__new__(InferenceRequest)
    request._fields = fields
    request._body = body
    request._inputs = None
    names = fields.get("o")
    request._names = session.outputs if names is None else names
    request._model = request._trace = request._sender = None
    request._version = -1
    request._release = RELEASE_ALL
    request._state = RequestState(fields["i"], request._names)
    for tensor in fields["n"]:
        if tensor[3] >= 0:
            request.inputs()
            break
    return request
