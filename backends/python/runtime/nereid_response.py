"""`InferenceResponse` and the sender of responses."""

from __future__ import annotations

import threading
import weakref
from typing import Any, Collection, Dict, List, Optional

import nereid_wire as wire
from nereid_errors import TritonError, TritonModelException, clip, error_code
from nereid_link import ForkedProcessError
from nereid_memory import OutgoingMessage, OutOfMemory
from nereid_parameters import check_tensors, parameters_text
from nereid_session import session
from nereid_tensor import Tensor, place_tensor, receive_tensor

_FINAL = 1
# A sender that waits looks again after this time, should a wake-up have come too early.
_WAIT_S = 1.0


class InferenceResponse:
    """One response: output tensors and parameters, or an error, beside which they do not count."""

    __slots__ = ("_tensors", "_error", "_parameters", "__weakref__")

    def __init__(
        self,
        output_tensors: Any = (),
        error: Optional[TritonError] = None,
        parameters: Optional[dict] = None,
    ) -> None:
        self._tensors: List[Tensor] = check_tensors(
            "InferenceResponse", "output_tensors", output_tensors,
            "Output tensor for inference response should not be empty.",
        )  # fmt: skip
        if error is not None and not isinstance(error, TritonError):
            raise TypeError(f"InferenceResponse(): error must be a pb_utils.TritonError, got {type(error)}")
        self._error = error
        self._parameters = "{}" if parameters is None else parameters_text(parameters)

    def output_tensors(self) -> List[Tensor]:
        """Its tensors."""
        return self._tensors

    def has_error(self) -> bool:
        """Whether it is an error."""
        return self._error is not None

    def error(self) -> Optional[TritonError]:
        """The error, if it is one."""
        return self._error

    def parameters(self) -> str:
        """Its parameters as JSON text; that of another model's response may be empty."""
        return self._parameters


def error_response(message: str, code: int = 1) -> InferenceResponse:
    """A response that is an error."""
    return InferenceResponse(error=TritonError(message, error_code(code)))


def receive_response(result: Optional[wire.Fields], body: Any) -> InferenceResponse:
    """The response of a frame's result; an empty one when there is none."""
    if result is None:
        return InferenceResponse()
    failure = result.get("e")
    if failure is not None:
        return error_response(failure[1], failure[0])
    response = InferenceResponse.__new__(InferenceResponse)
    response._tensors = [receive_tensor(fields, body) for fields in result.get("o", ())]
    response._error = None
    response._parameters = result.get("p", "")
    return response


def place_response(
    response: InferenceResponse, names: Collection[str], message: OutgoingMessage
) -> wire.Fields:
    """The result for a frame: the outputs that were asked for, or the error. Raises OutOfMemory."""
    error = response._error
    if error is not None:
        return {"e": [int(error._code), clip(error._message)]}
    result: wire.Fields = {
        "o": [place_tensor(tensor, message) for tensor in response._tensors if tensor._name in names]
    }
    if response._parameters != "{}" and response._parameters:
        result["p"] = response._parameters
    return result


class RequestState:
    """What has become of one request of `execute`. It dies with the last reference to the request and its sender."""

    # `responses` is the senders' to count, under `lock`, `taken` the thread's that reads events: no lock is shared,
    # for a sender may wait for memory that this thread brings back.
    __slots__ = ("number", "names", "is_closed", "sent", "responses", "taken", "lock", "__weakref__")

    def __init__(self, number: int, names: Collection[str]) -> None:
        self.number = number
        self.names = names
        self.is_closed = False
        self.sent = 0
        self.responses = 0
        self.taken = 0
        self.lock: Any = None

    def __del__(self) -> None:
        link = session.link
        if link is None or link.is_forked:
            return
        if session.cancelled:
            session.cancelled.discard(self.number)
        if not self.is_closed:
            link.notify(wire.DROPPED, self.number, {})

    def close(self) -> None:
        """Nothing more may be sent: the server answers in the model's place."""
        self.is_closed = True

    def count(self, has_response: bool, is_final: bool) -> None:
        """Notes a response. Raises TritonModelException when there may be no more of them (§A6, checks 3 to 5)."""
        if not session.is_decoupled:
            if has_response and self.sent > 0:
                raise TritonModelException(
                    "Unable to send response. Non-decoupled model cannot send more than one response."
                )
            if not has_response and is_final and self.sent == 0:
                raise TritonModelException(
                    "Unable to send response. Non-decoupled model cannot send complete final before sending a response."
                )
        if self.is_closed:
            raise TritonModelException("Unable to send response. Response sender has been closed.")
        if is_final:
            self.is_closed = True
        self.sent += 1


class InferenceResponseSender:
    """Sends responses of one request, from any thread, also when `execute` has returned."""

    __slots__ = ("_state", "__weakref__")

    def __init__(self, state: Optional[RequestState]) -> None:
        self._state = state

    def send(self, response: Optional[InferenceResponse] = None, flags: int = 0) -> None:
        """Sends a response, the final flag, or both. Waits while too many responses are on their way."""
        if response is not None and not isinstance(response, InferenceResponse):
            raise TypeError(f"send(): response must be a pb_utils.InferenceResponse, got {type(response)}")
        if isinstance(flags, bool) or not isinstance(flags, int):
            raise TypeError(f"send(): flags must be an int, got {type(flags)}")
        if flags not in (0, _FINAL):
            raise TritonModelException("Unable to send response. Unsupported flag provided.")
        if flags == 0 and response is None:
            raise TritonModelException(
                "Inference Response object must be provided when the response flags is set to zero."
            )
        state = self._state
        if state is None:
            raise TritonModelException(
                "Unable to send response. Response sender has no reference to the decoupled state of the model."
            )
        if session.link.is_forked:
            raise TritonModelException(
                "Unable to send response. The process that received the request must send its responses."
            )
        _windows.enter(state, response is not None)
        with state.lock:
            state.count(response is not None, flags == _FINAL)
            if response is not None:
                state.responses += 1
            _write(state, response, flags == _FINAL)

    def is_cancelled(self) -> bool:
        """Whether the client has gone."""
        return self._state is not None and self._state.number in session.cancelled


def _write(state: RequestState, response: Optional[InferenceResponse], is_final: bool) -> None:
    """Sends what `state` counts already. One that finds no memory becomes an error for the client and the model."""
    link = session.link
    fields: wire.Fields = {"l": True} if is_final else {}
    message = None
    try:
        if response is not None:
            message = link.message()
            fields["r"] = place_response(response, state.names, message)
        link.send(wire.SEND, state.number, fields, message)
    except ForkedProcessError as error:
        raise TritonModelException(str(error)) from None
    except Exception as error:
        if message is not None:
            message.undo()
        fields["r"] = {"e": [1, clip(str(error))]}
        link.send(wire.SEND, state.number, fields)
        if isinstance(error, (OutOfMemory, wire.FrameTooLarge)):
            raise TritonModelException(str(error)) from None
        raise


class _Windows:
    """Senders by the number of their request: the server tells how many responses it has taken."""

    def __init__(self) -> None:
        self._states: Dict[int, Any] = {}
        self._taken = threading.Condition(threading.Lock())
        self._waiting = 0

    def register(self, state: RequestState) -> None:
        """From now on credits for the request count. The state needs its lock."""
        state.lock = threading.Lock()
        states, number = self._states, state.number

        def forget(reference: Any) -> None:
            if states.get(number) is reference:
                del states[number]

        states[number] = weakref.ref(state, forget)

    def enter(self, state: RequestState, has_response: bool) -> None:
        """Waits until another response of the request may be on its way."""
        if not has_response or state.responses - state.taken < wire.WINDOW or state.is_closed:
            return
        with self._taken:
            self._waiting += 1
            try:
                while state.responses - state.taken >= wire.WINDOW and not state.is_closed:
                    self._taken.wait(_WAIT_S)
            finally:
                self._waiting -= 1

    def credit(self, number: int, count: int) -> None:
        """The server has taken so many responses of a request."""
        reference = self._states.get(number)
        state = reference() if reference is not None else None
        if state is None:
            return
        state.taken += count
        if self._waiting:
            with self._taken:
                self._taken.notify_all()


_windows = _Windows()
register_sender = _windows.register
credit_sender = _windows.credit
