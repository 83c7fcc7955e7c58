"""The connections of this process to the server: who writes, who reads, and what a forked child may do."""

from __future__ import annotations

import _thread
import os
import signal
import socket
import sys
import threading
import time
import traceback
from queue import Empty, SimpleQueue
from typing import Any, Callable, Dict, Optional

import nereid_wire as wire
from nereid_memory import Arena, OutgoingMessage, ServerMemory

# How long slots of the server wait for a frame that takes them along.
_FREE_DELAY_S = 0.05

Handler = Callable[[int, wire.Fields, Any], None]


class ForkedProcessError(Exception):
    """Something that only the process of the model itself may do was tried in a child that it forked."""


def _open(path: str, letter: bytes) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(path)
    connection.sendall(letter)
    return connection


class Link:
    """One process's way to the server. `send` is safe for any thread; `notify` also for finalizers."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._out: Optional[socket.socket] = _open(path, b"A")
        self._events: Optional[socket.socket] = _open(path, b"B")
        self._lock = threading.Lock()
        self._notices: SimpleQueue = SimpleQueue()
        self._is_armed = False
        self._life_read, self._life_write = os.pipe()
        self.is_forked = False
        self.arena: Optional[Arena] = None
        self.memory: Optional[ServerMemory] = None
        #: What frames on B (in a forked child: on C) do. Handlers must not block.
        self.handlers: Dict[int, Handler] = {}
        #: Called in a child that was forked, when the link knows of it.
        self.on_fork: Callable[[], None] = lambda: None
        self.reader = wire.FrameReader(self._out)

    def start(self) -> None:
        """Starts the threads: from now on the other process's events are handled and forks are noticed."""
        os.register_at_fork(after_in_child=self._after_fork)
        self._start_threads(self._events)

    def _start_threads(self, connection: Optional[socket.socket]) -> None:
        for target, args in ((self._read_events, (connection,)), (self._deliver, ())):
            threading.Thread(target=target, args=args, name="nereid", daemon=True).start()

    def open_memory(self, pid: int, segment: int, growth: int, limit: int) -> bool:
        """Tries a segment of the server; without access to it everything travels in frames."""
        memory = ServerMemory(pid, self._on_free)
        try:
            memory.segment(segment, 0)
            self.arena = Arena(growth, limit)
            self.arena.release([self.arena.allocate(1, 0)[:2]])
        except Exception:  # whatever it is: it works without
            self.arena = None
            return False
        self.memory = memory
        return True

    def message(self) -> OutgoingMessage:
        """Where the tensors of a frame to be sent are put."""
        return OutgoingMessage(self.arena)

    def send(
        self, kind: int, number: int, fields: wire.Fields, message: Optional[OutgoingMessage] = None
    ) -> None:
        """Writes one frame. Raises FrameTooLarge; the end of the server is the end of this process."""
        memory = self.memory
        if memory is not None and memory.freed:
            fields["f"] = memory.drain()
        try:
            with self._lock:
                out = self._out
                if out is None:
                    out = self._open_forked(kind)
                if message is None:
                    wire.write_frame(out, kind, number, fields)
                else:
                    body = message.body
                    wire.write_frame(out, kind, number, fields, body.parts, body.size)
        except OSError:
            os._exit(1)
        except BaseException:
            # Nothing was written: the next frame takes them along.
            if memory is not None:
                memory.freed.extend(fields.pop("f", ()))
            raise

    def notify(self, kind: int, number: int, fields: wire.Fields) -> None:
        """Has another thread write the frame: finalizers run anywhere, also while this thread writes one."""
        self._notices.put(lambda: self.send(kind, number, fields))

    def later(self, action: Callable[[], None]) -> None:
        """Has another thread do something short."""
        self._notices.put(action)

    def _on_free(self) -> None:
        if not self._is_armed:
            self._is_armed = True
            self._notices.put(None)

    def _deliver(self) -> None:
        """Writes what `notify` was given, and slots to give back that no frame took along."""
        take = self._notices.get
        due: Optional[float] = None
        while True:
            try:
                notice = take(True, None if due is None else max(0.0, due - time.monotonic()))
            except Empty:
                due, self._is_armed = None, False
                if self.memory is not None and self.memory.freed:
                    self.send(wire.FREE, 0, {})
                continue
            if notice is None:
                due = time.monotonic() + _FREE_DELAY_S if due is None else due
                continue
            try:
                notice()
            except Exception:
                traceback.print_exc()
            del notice

    def _read_events(self, connection: socket.socket) -> None:
        reader = wire.FrameReader(connection)
        handlers = self.handlers
        while True:
            try:
                kind, number, fields, body = reader.read()
            except (EOFError, OSError):
                os._exit(1)
            try:
                if "f" in fields:
                    self.take_back(fields["f"])
                handler = handlers.get(kind)
                if handler is not None:
                    handler(number, fields, body)
            except Exception:
                traceback.print_exc()
            # What the frame brought must not live until the next one comes.
            del fields, body

    def take_back(self, slots: Any) -> None:
        """Slots of this process that the server does not use any more."""
        if self.arena is not None:
            self.arena.release(slots)

    def _open_forked(self, kind: int) -> socket.socket:
        """In a forked child: its own connection, opened when it first has a question."""
        if kind not in (wire.CALL, wire.CALL_CANCEL, wire.CALL_CREDIT, wire.FREE):
            raise ForkedProcessError(
                "A process that the model has forked cannot answer requests: send responses from the process that "
                "received the request"
            )
        self._out = _open(self._path, b"C")
        self._start_threads(self._out)
        return self._out

    def _after_fork(self) -> None:
        """The sockets stay with the parent process: its end must be seen although this one lives on."""
        for connection in (self._out, self._events):
            if connection is not None:
                connection.close()
        self._out = self._events = None
        self._lock = threading.Lock()
        self._notices = SimpleQueue()
        self._is_armed = False
        self.arena = None
        if self.memory is not None:
            self.memory.forget()
        if not self.is_forked:
            os.close(self._life_write)
        self.is_forked = True
        _thread.start_new_thread(self._end_with_parent, ())
        _restore_termination()
        self.on_fork()

    def _end_with_parent(self) -> None:
        try:
            os.read(self._life_read, 1)
        finally:
            os._exit(1)


def _restore_termination() -> None:
    """`multiprocessing` ends its workers with SIGTERM, which the process of the model ignores."""
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    except ValueError:
        print("a forked process keeps ignoring SIGTERM", file=sys.stderr)
