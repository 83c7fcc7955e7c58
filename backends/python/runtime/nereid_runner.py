"""Runs one model: its import, `initialize`, `execute`, `is_ready` and `finalize` (python-backend.md §A2, §A8)."""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Coroutine
from queue import SimpleQueue
from typing import Any, List, Optional, Tuple

import nereid_wire as wire
from nereid_calls import calls
from nereid_errors import StubError, TritonModelException, client_text, exception_text, load_text
from nereid_memory import OutgoingMessage, OutOfMemory
from nereid_model_config import ModelConfig
from nereid_request import RELEASE_RESCHEDULE, InferenceRequest, receive_request
from nereid_response import InferenceResponse, RequestState, credit_sender, place_response
from nereid_services import write_log
from nereid_session import session

_LOOP_STOP_S = 1.0
_now_ns = time.perf_counter_ns


class EventLoop:
    """The one asyncio loop of this process, in a thread of its own; made when the first coroutine comes."""

    def __init__(self) -> None:
        self._loop: Any = None
        self._thread: Optional[threading.Thread] = None
        self._lock = threading.Lock()
        self._background: set = set()

    def submit(self, coroutine: Any) -> Any:
        """Runs a coroutine; a future of another thread's."""
        import asyncio

        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                asyncio.set_event_loop(self._loop)
                self._thread = threading.Thread(target=self._loop.run_forever, name="nereid-asyncio", daemon=True)
                self._thread.start()
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def submit_alone(self, coroutine: Any) -> None:
        """Runs a coroutine that nobody waits for; what it raises is logged."""
        future = self.submit(coroutine)
        self._background.add(future)
        future.add_done_callback(self._finished)

    def _finished(self, future: Any) -> None:
        self._background.discard(future)
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
            name = os.path.basename(session.model_path)
            write_log("ERROR", name, _last_line(error), f"the coroutine of `execute` has failed: {text}")

    def stop(self) -> None:
        """Stops the loop; what it runs is not waited for."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_LOOP_STOP_S)


def _last_line(error: BaseException) -> int:
    frames = traceback.extract_tb(error.__traceback__)
    return (frames[-1].lineno or 0) if frames else 0


class ModelRunner:
    """One instance of the user's class. All but readiness happens on the main thread."""

    def __init__(self, hello: wire.Fields) -> None:
        self._module_name: str = hello["model"]["module"]
        self._model: Any = None
        self._loop = EventLoop()
        self._queries: Optional[SimpleQueue] = None
        link = session.link
        link.on_fork = calls.forget
        link.handlers.update(
            {
                wire.CANCELLED: lambda number, _fields, _body: _remember_cancelled(number),
                wire.CREDIT: lambda number, fields, _body: credit_sender(number, fields["n"]),
                wire.REPLY: calls.on_reply,
                wire.ITEM: calls.on_item,
                wire.IS_READY: lambda number, _fields, _body: self._query(number),
            }
        )

    @staticmethod
    def set_verbose_level(level: int) -> None:
        """What the server's log writes from now on."""
        session.verbose_level = level

    def auto_complete(self, config: dict) -> wire.Fields:
        """What AUTO_COMPLETED says."""
        try:
            model_class = self._load()
            complete = getattr(model_class, "auto_complete_config", None)
            completed = ModelConfig(json.dumps(config))
            if complete is not None:
                completed = complete(completed)
            if not isinstance(completed, ModelConfig):
                raise StubError(
                    f"auto_complete_config function in model '{session.model_name}' must return a valid "
                    "pb.ModelConfig object."
                )
            return {"config": json.loads(json.dumps(completed.as_dict(), allow_nan=False))}
        except BaseException as error:
            return {"error": load_text(error)}

    def initialize(self, args: dict) -> wire.Fields:
        """What INITIALIZED says."""
        try:
            self._model = self._load()()
            initialize = getattr(self._model, "initialize", None)
            if initialize is not None:
                initialize(dict(args))
        except BaseException as error:
            return {"error": load_text(error)}
        session.may_call = True
        return {"isReady": hasattr(self._model, "is_ready")}

    def _load(self) -> Any:
        if not os.path.isfile(session.model_path):
            raise StubError(f"Python model file not found in '{session.model_path}'")
        folder = os.path.dirname(session.model_path)
        folders = [folder, os.path.dirname(folder)] if "." in self._module_name else [folder]
        own = os.path.dirname(os.path.abspath(__file__))
        sys.path[:] = [path for path in sys.path if path != own] + folders + [own]
        module = importlib.import_module(self._module_name)
        model_class = getattr(module, "TritonPythonModel", None)
        if model_class is None:
            raise StubError(
                f"AttributeError: module '{self._module_name}' has no attribute 'TritonPythonModel'\n\nAt:\n"
                f"  {session.model_path}(1): the file must define a class of that name\n"
            )
        if not isinstance(model_class, type) and not callable(model_class):
            raise StubError(
                f"TypeError: '{type(model_class).__name__}' object is not callable\n\nAt:\n"
                f"  {session.model_path}(1): TritonPythonModel must be a class\n"
            )
        return model_class

    def execute(self, number: int, frames: List[wire.Fields], body: Any) -> None:
        """Runs a batch and answers with EXECUTED. Inputs that nobody keeps go back with the answer."""
        begin = _now_ns()
        link = session.link
        message = link.message()
        states: List[RequestState] = []
        try:
            answer = self._run_batch(frames, body, states, message)
        except BaseException as error:
            answer = _refuse(client_text(error), states, message)
            message = link.message()
        if link.is_forked:  # the model came back twice: the child has nothing to say here
            os._exit(0)
        answer["u"] = (_now_ns() - begin) // 1000
        try:
            link.send(wire.EXECUTED, number, answer, message)
        except wire.FrameTooLarge as error:
            link.send(wire.EXECUTED, number, _refuse(str(error), states, message))

    def _run_batch(
        self, frames: List[wire.Fields], body: Any, states: List[RequestState], message: OutgoingMessage
    ) -> wire.Fields:
        requests: List[InferenceRequest] = []
        for fields in frames:
            request = receive_request(fields, body)
            requests.append(request)
            states.append(request._state)
        returned = self._call_execute(requests)
        rescheduled: List[int] = []
        for index, request in enumerate(requests):
            if request._release == RELEASE_RESCHEDULE:
                rescheduled.append(index)
                # The server runs it again, so its end is not missed here.
                states[index].close()
        results: List[Optional[wire.Fields]]
        if returned is not None:
            _check_returned(returned, requests, states)
            results = []
            for response, state in zip(returned, states):
                results.append(None if response is None else _place(response, state, message))
        else:
            results = [None] * len(states)
        return {"r": results, "k": rescheduled} if rescheduled else {"r": results}

    def _call_execute(self, requests: List[InferenceRequest]) -> Any:
        execute = getattr(self._model, "execute", None)
        if execute is None:
            raise StubError(f"Python model {session.model_path} does not implement `execute` method.")
        returned = execute(requests.copy())
        if returned is not None and type(returned) is not list and isinstance(returned, Coroutine):
            if not session.is_decoupled:
                return self._loop.submit(returned).result()
            self._loop.submit_alone(returned)
            return None
        return returned

    def _query(self, number: int) -> None:
        if self._queries is None:
            self._queries = SimpleQueue()
            threading.Thread(target=self._answer_queries, name="nereid-ready", daemon=True).start()
        self._queries.put(number)

    def _answer_queries(self) -> None:
        while True:
            number = self._queries.get()
            try:
                value = self._model.is_ready()
                if isinstance(value, Coroutine):
                    value = self._loop.submit(value).result()
                if not isinstance(value, bool):
                    raise StubError("is_ready() must return a boolean value")
                answer: wire.Fields = {"v": value}
            except BaseException as error:
                answer = {"error": client_text(error)}
            session.link.send(wire.READY, number, answer)

    def finalize(self) -> None:
        """Lets the model end; what it raises is logged."""
        session.may_call = False
        self._loop.stop()
        try:
            finalize = getattr(self._model, "finalize", None)
            if finalize is not None:
                finalize()
        except BaseException as error:
            text = f"Failed to finalize model '{session.instance_name}': {exception_text(error)}"
            write_log("INFO", os.path.basename(session.model_path), _last_line(error), text)
        self._model = None


def _refuse(text: str, states: List[RequestState], message: OutgoingMessage) -> wire.Fields:
    message.undo()
    for state in states:
        state.close()
    return {"error": f"Failed to process the request(s) for model '{session.instance_name}', message: {text}"}


def _check_returned(returned: Any, requests: List[InferenceRequest], states: List[RequestState]) -> None:
    if session.is_decoupled:
        raise StubError(
            f"Python model '{session.instance_name}' is using the decoupled mode and the execute function must return "
            "None."
        )
    if not isinstance(returned, list):
        raise StubError(f"Expected a list in the execute return, found type '{type(returned)}'.")
    if len(returned) != len(requests):
        raise StubError(
            "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
            f"InferenceRequest(s) size is:{len(requests)}, and InferenceResponse(s) size is:{len(returned)}\n"
        )
    for response, request, state in zip(returned, requests, states):
        if response is None:
            continue
        if request._release == RELEASE_RESCHEDULE:
            raise StubError(
                "Expected a None object in the execute function return list for reschduled request, found type "
                f"'{type(response)}'."
            )
        if not isinstance(response, InferenceResponse):
            raise StubError(
                "Expected an 'InferenceResponse' object in the execute function return list, found type "
                f"'{type(response)}'."
            )
        if state.sent == 0 and not state.is_closed:
            state.is_closed, state.sent = True, 1
            continue
        try:
            state.count(True, True)
        except TritonModelException as error:
            raise StubError(str(error)) from None


def _place(response: InferenceResponse, state: RequestState, message: OutgoingMessage) -> wire.Fields:
    mark = message.mark()
    try:
        return place_response(response, state.names, message)
    except OutOfMemory as error:
        message.undo(mark)
        return {"e": [1, f"Failed to process the request(s) for model '{session.instance_name}', message: {error}"]}


_MOST_CANCELLED = 10_000


def _remember_cancelled(number: int) -> None:
    """Numbers grow, so when there are too many of them the small ones belong to requests that are long gone."""
    cancelled = session.cancelled
    cancelled.add(number)
    if len(cancelled) > _MOST_CANCELLED:
        least: Tuple[int, ...] = tuple(sorted(cancelled)[: _MOST_CANCELLED // 2])
        cancelled.difference_update(least)
