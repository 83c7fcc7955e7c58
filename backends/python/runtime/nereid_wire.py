"""Frames between this process and the server, as `wire.md` describes them. Knows no models and no tensors."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any, Callable, Dict, Sequence, Tuple

HELLO = 1
HELLO_RESULT = 2
AUTO_COMPLETE = 3
AUTO_COMPLETED = 4
INITIALIZE = 5
INITIALIZED = 6
EXECUTE = 7
EXECUTED = 8
SEND = 9
DROPPED = 10
CANCELLED = 11
CREDIT = 12
CALL = 13
REPLY = 14
ITEM = 15
CALL_CANCEL = 16
CALL_CREDIT = 17
IS_READY = 18
READY = 19
LOG = 20
FREE = 21
FINALIZE = 22
FINALIZED = 23
LOG_LEVEL = 24

#: Bytes after the head that one frame may have.
MAX_FRAME_BYTES = 256 << 20
# of the JSON in it
MAX_JSON_BYTES = 16 << 20
#: Tensors up to this size travel in the frame.
MAX_INLINE_BYTES = 16 << 10
#: Responses of one request, and items of one stream, that may be on their way.
WINDOW = 64

_HEAD = struct.Struct("<IIII")
_HEAD_BYTES = _HEAD.size
_BUFFER_BYTES = 256 << 10
# Above this size it is cheaper to write pieces one after the other than to join them.
_JOIN_BYTES = 128 << 10

_scan = json.JSONDecoder().scan_once
_unpack_head = _HEAD.unpack_from

Fields = Dict[str, Any]
Frame = Tuple[int, int, Fields, Any]


def _make_encode() -> Callable[[Any], str]:
    """What writes JSON: with CPython's own encoder, which `json` makes anew for each text, once for all."""
    encoder = json.JSONEncoder(separators=(",", ":"), check_circular=False, allow_nan=False)
    try:
        encode_text = json.encoder.encode_basestring_ascii
        write = json.encoder.c_make_encoder(None, encoder.default, encode_text, None, ":", ",", False, False, False)
        sample = {"a": [1, "b", None, 0.5]}
        if "".join(write(sample, 0)) != encoder.encode(sample):
            return encoder.encode
    except Exception:  # it is another Python
        return encoder.encode
    join = "".join
    return lambda fields: join(write(fields, 0))


_encode = _make_encode()


class FrameTooLarge(Exception):
    """A frame would be larger than the wire allows; its text says by how much."""


class FrameReader:
    """Reads frames of one connection. Not for more than one thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._receive = connection.recv_into
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0

    def read(self) -> Frame:
        """The next frame: kind, id, JSON object, and the bytes of tensors (writable, the caller's own).

        Raises EOFError when the other side has closed.
        """
        if self._end - self._start < _HEAD_BYTES:
            self._fill(_HEAD_BYTES)
        length, kind, number, json_length = _unpack_head(self._buffer, self._start)
        if length > MAX_FRAME_BYTES or json_length > length:
            raise EOFError(f"a frame of {length} bytes cannot be right")
        self._start += _HEAD_BYTES
        if length > _BUFFER_BYTES:
            return self._read_large(kind, number, json_length, length)
        if self._end - self._start < length:
            self._fill(length)
        start = self._start
        middle = start + json_length
        end = start + length
        self._start = end
        fields = _scan(str(self._view[start:middle], "utf-8"), 0)[0] if json_length else {}
        body = self._buffer[middle:end] if end > middle else b""
        return kind, number, fields, body

    def _read_large(self, kind: int, number: int, json_length: int, length: int) -> Frame:
        text = self._take(json_length)
        body = self._take(length - json_length)
        return kind, number, _scan(text.decode("utf-8"), 0)[0] if json_length else {}, body

    def _take(self, size: int) -> bytearray:
        """Exactly `size` bytes in an array of their own; what is not in the buffer yet is received in place."""
        taken = bytearray(size)
        view = memoryview(taken)
        have = min(size, self._end - self._start)
        view[:have] = self._view[self._start : self._start + have]
        self._start += have
        while have < size:
            count = self._receive(view[have:])
            if count == 0:
                raise EOFError("the server has closed the connection")
            have += count
        return taken

    def _fill(self, size: int) -> None:
        """Receives until the buffer holds `size` bytes from its start; `size` is at most that of the buffer."""
        while self._end - self._start < size:
            if self._start == self._end:
                self._start = self._end = 0
            elif self._start + size > _BUFFER_BYTES:
                rest = self._end - self._start
                self._buffer[:rest] = self._buffer[self._start : self._end]
                self._start, self._end = 0, rest
            count = self._receive(self._view[self._end :])
            if count == 0:
                raise EOFError("the server has closed the connection")
            self._end += count


def write_frame(
    connection: socket.socket,
    kind: int,
    number: int,
    fields: Fields,
    parts: Sequence[Any] = (),
    size: int = 0,
) -> None:
    """Writes one frame; `parts` are the bytes of tensors, `size` together. The caller holds the writers' lock.

    Raises FrameTooLarge before anything was written, and OSError when the other side is gone.
    """
    text = _encode(fields).encode("ascii") if fields else b""
    if len(text) > MAX_JSON_BYTES:
        raise FrameTooLarge(
            f"names, texts and parameters of a message have {len(text)} bytes, more than the {MAX_JSON_BYTES} bytes that "
            "they may have"
        )
    length = len(text) + size
    if length > MAX_FRAME_BYTES:
        raise FrameTooLarge(
            f"a message of {length} bytes is larger than the {MAX_FRAME_BYTES} bytes that one may have without "
            "shared memory"
        )
    head = _HEAD.pack(length, kind, number, len(text))
    if length <= _JOIN_BYTES:
        connection.sendall(b"".join((head, text, *parts)))
        return
    connection.sendall(head + text)
    for part in parts:
        connection.sendall(part)


class FrameBody:
    """Collects the bytes of tensors that travel in a frame, each at a multiple of 8."""

    __slots__ = ("parts", "size")

    def __init__(self) -> None:
        self.parts: list = []
        self.size = 0

    def add(self, data: Any, size: int) -> int:
        """Appends `size` bytes; returns where they begin."""
        offset = self.size
        self.parts.append(data)
        padding = -size & 7
        if padding:
            self.parts.append(_PADDING[padding])
        self.size = offset + size + padding
        return offset


_PADDING = tuple(bytes(count) for count in range(8))
