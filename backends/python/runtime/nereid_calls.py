"""Questions of this process to the server: calls of other models, model control, metrics (wire.md, CALL)."""

from __future__ import annotations

import itertools
import threading
from queue import Empty, SimpleQueue
from typing import Any, Dict, List, Optional, Tuple

import nereid_wire as wire
from nereid_errors import TritonModelException
from nereid_memory import OutgoingMessage
from nereid_response import InferenceResponse, error_response, receive_response
from nereid_session import session

# The window opens again in steps, not for each item.
_CREDIT_STEP = wire.WINDOW // 4


class _Reply:
    """A call that waits for one answer: in a thread, or in a coroutine of `loop`."""

    __slots__ = ("fields", "body", "_lock", "_loop", "future")

    def __init__(self, loop: Any = None) -> None:
        self.fields: wire.Fields = {}
        self.body: Any = b""
        self._loop = loop
        if loop is None:
            self._lock = threading.Lock()
            self._lock.acquire()
            self.future = None
        else:
            self._lock = None
            self.future = loop.create_future()

    def resolve(self, fields: wire.Fields, body: Any) -> None:
        self.fields, self.body = fields, body
        if self._lock is not None:
            self._lock.release()
            return
        try:
            self._loop.call_soon_threadsafe(self._settle)
        except RuntimeError:  # its loop was closed: nobody waits, but what came must be given back
            response_of(self)

    def _settle(self) -> None:
        try:
            response = response_of(self)
        except Exception as error:
            if not self.future.done():
                self.future.set_exception(error)
            return
        if not self.future.done():
            self.future.set_result(response)

    def wait(self) -> None:
        self._lock.acquire()


class Stream:
    """The items of a stream that have come and were not taken yet."""

    __slots__ = ("number", "queue", "is_open", "_taken", "_waiter")

    def __init__(self) -> None:
        self.number = 0
        self.queue: SimpleQueue = SimpleQueue()
        self.is_open = True
        self._taken = 0
        self._waiter: Any = None

    def begun(self, loop: Any) -> Any:
        """A future of `loop` for an iterator, which is there when the first message is: reading it blocks the loop."""
        future = loop.create_future()
        iterator = ResponseIterator(self)

        def settle() -> None:
            if not future.done():
                future.set_result(iterator)

        self._waiter = (loop, settle)
        if not self.queue.empty():
            self._wake()
        return future

    def put(self, fields: wire.Fields, body: Any) -> None:
        """A message has come."""
        self.queue.put((fields, body))
        if self._waiter is not None:
            self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is None:
            return
        try:
            waiter[0].call_soon_threadsafe(waiter[1])
        except RuntimeError:  # its loop was closed: nobody waits
            pass

    def take(self) -> Tuple[InferenceResponse, bool]:
        """The next message and whether it is the last one; waits for it."""
        fields, body = self.queue.get()
        is_last = bool(fields.get("l"))
        if not is_last:
            self.count()
        return receive_response(fields.get("r"), body), is_last

    def count(self) -> None:
        """Notes that an item was taken."""
        self._taken += 1
        if self._taken >= _CREDIT_STEP:
            taken, self._taken = self._taken, 0
            session.link.send(wire.CALL_CREDIT, self.number, {"n": taken})

    def drain(self) -> None:
        """Throws away what nobody reads any more; shared memory is given back by being received."""
        try:
            while True:
                fields, body = self.queue.get_nowait()
                receive_response(fields.get("r"), body)
                if not fields.get("l"):
                    session.link.notify(wire.CALL_CREDIT, self.number, {"n": 1})
        except Empty:
            return


class Calls:
    """The calls that are on their way."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._pending: Dict[int, Any] = {}

    def on_reply(self, number: int, fields: wire.Fields, body: Any) -> None:
        """REPLY: the answer, or why a stream could not even begin."""
        call = self._pending.pop(number, None)
        if isinstance(call, Stream):
            if "error" in fields:
                fields = {"r": {"e": fields["error"]}, "l": True}
            else:
                fields = {"r": fields, "l": True}
            call.put(fields, body)
        elif call is not None:
            call.resolve(fields, body)

    def on_item(self, number: int, fields: wire.Fields, body: Any) -> None:
        """ITEM: a message of a stream."""
        stream = self._pending.get(number)
        is_last = bool(fields.get("l"))
        if is_last:
            self._pending.pop(number, None)
        if stream is None:
            return
        stream.put(fields, body)
        if not stream.is_open:
            stream.drain()

    def forget(self) -> None:
        """After a fork the answers go to the parent process."""
        self._pending = {}

    def start(self, call: Any, fields: wire.Fields, message: Optional[OutgoingMessage] = None) -> int:
        """Sends the question. Raises FrameTooLarge."""
        number = next(self._numbers)
        self._pending[number] = call
        try:
            session.link.send(wire.CALL, number, fields, message)
        except BaseException:
            self._pending.pop(number, None)
            raise
        return number

    def ask(self, fields: wire.Fields, message: Optional[OutgoingMessage] = None) -> Any:
        """The value of the answer. Raises TritonModelException with the server's text."""
        reply = _Reply()
        self.start(reply, fields, message)
        reply.wait()
        failure = reply.fields.get("error")
        if failure is not None:
            raise TritonModelException(failure[1])
        return reply.fields.get("v")

    def infer(self, fields: wire.Fields, message: OutgoingMessage) -> InferenceResponse:
        """The response of another model; failures are responses too."""
        reply = _Reply()
        failure = _try(lambda: self.start(reply, fields, message), message)
        if failure is not None:
            return failure
        reply.wait()
        return response_of(reply)

    def infer_soon(self, fields: wire.Fields, message: OutgoingMessage, loop: Any) -> Any:
        """A future of `loop` for the response of another model. Cancelling it ends the call."""
        reply = _Reply(loop)
        numbers: List[int] = []
        failure = _try(lambda: numbers.append(self.start(reply, fields, message)), message)
        if failure is not None:
            reply.future.set_result(failure)
            return reply.future

        def settled(future: Any) -> None:
            if future.cancelled() and numbers[0] in self._pending:
                session.link.send(wire.CALL_CANCEL, numbers[0], {})

        reply.future.add_done_callback(settled)
        return reply.future

    def stream(self, fields: wire.Fields, message: OutgoingMessage) -> Stream:
        """The responses of another model."""
        stream = Stream()
        failure = _try(lambda: setattr(stream, "number", self.start(stream, fields, message)), message)
        return stream if failure is None else self.failed_stream(failure)

    def failed_stream(self, failure: InferenceResponse) -> Stream:
        """A stream of one error."""
        stream, error = Stream(), failure.error()
        stream.put({"r": {"e": [int(error.code()), error.message()]}, "l": True}, b"")
        return stream


def _try(start: Any, message: OutgoingMessage) -> Optional[InferenceResponse]:
    try:
        start()
    except wire.FrameTooLarge as error:
        message.undo()
        return error_response(str(error))
    return None


def response_of(reply: _Reply) -> InferenceResponse:
    """The response that an answer holds."""
    failure = reply.fields.get("error")
    if failure is not None:
        return error_response(failure[1], failure[0])
    return receive_response(reply.fields, reply.body)


calls = Calls()


class ResponseIterator:
    """The responses of a call with `decoupled=True`. Iterating again, after the end, gives all of them anew."""

    __slots__ = ("_stream", "_responses", "_index", "_is_finished", "__weakref__")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._responses: List[InferenceResponse] = []
        self._index = 0
        self._is_finished = False

    def __iter__(self) -> "ResponseIterator":
        if self._is_finished and self._index >= len(self._responses):
            self._index = 0
        return self

    def __next__(self) -> InferenceResponse:
        if self._is_finished:
            if self._index >= len(self._responses):
                raise StopIteration("Iteration is done for the responses.")
            self._index += 1
            return self._responses[self._index - 1]
        response, self._is_finished = self._stream.take()
        self._responses.append(response)
        self._index = len(self._responses)
        return response

    def cancel(self) -> None:
        """Asks the server to end the call; what comes of it is still to be read."""
        if not self._is_finished:
            session.link.send(wire.CALL_CANCEL, self._stream.number, {})

    def __del__(self) -> None:
        stream = self._stream
        if self._is_finished:
            return
        # The call goes on without a reader, as it does in the reference.
        stream.is_open = False
        session.link.later(stream.drain)
