"""Shared memory: the segments that this process allocates from, and those of the server that it maps."""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
import time
import weakref
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

import nereid_wire as wire

Slot = Tuple[int, int]

_F_ADD_SEALS = 1033
_F_GET_SEALS = 1034
_F_SEAL_SHRINK = 2
_SLOT_ALIGNMENT = 64
# How long an allocation waits until the server has given something back.
_ALLOCATE_TIMEOUT_S = 10.0


class OutOfMemory(Exception):
    """The process may not have as much shared memory as a message needs; the text is for the client."""


def slot_size(size: int) -> int:
    """The size class of `size` bytes: multiples of 64, at most an eighth larger than asked for."""
    step = max(_SLOT_ALIGNMENT, 1 << max(0, size.bit_length() - 4))
    return max(step, -(-size // step) * step)


class _Segment:
    """One anonymous file of this process, allocated from front to back; freed slots are used again by size class."""

    __slots__ = ("number", "size", "top", "live", "view")

    def __init__(self, size: int) -> None:
        self.number = os.memfd_create("nereid", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.number, size)
            fcntl.fcntl(self.number, _F_ADD_SEALS, _F_SEAL_SHRINK)
            self.view = memoryview(mmap.mmap(self.number, size))
        except BaseException:
            os.close(self.number)
            raise
        self.size = size
        self.top = 0
        self.live = 0


class Arena:
    """Slots of this process's own memory. They are given back by the server. Safe for any thread."""

    def __init__(self, growth: int, limit: int) -> None:
        """`growth`: bytes of a new segment, `limit`: bytes of all segments."""
        self._growth = growth
        self._limit = limit
        self._total = 0
        self._segments: Dict[int, _Segment] = {}
        self._free: Dict[int, List[Slot]] = {}
        self._sizes: Dict[Slot, int] = {}
        self._changed = threading.Condition(threading.Lock())

    def allocate(self, size: int, mine: int) -> Tuple[int, int, memoryview]:
        """A slot for `size` bytes: segment, offset and its bytes. Waits while the server holds what would do.

        `mine`: slots that the message being built has already; when there are no others, waiting cannot help.
        """
        wanted = slot_size(size)
        until: Optional[float] = None
        with self._changed:
            while True:
                slot = self._take(wanted)
                if slot is not None:
                    segment = self._segments[slot[0]]
                    segment.live += 1
                    return slot[0], slot[1], segment.view[slot[1] : slot[1] + size]
                now = time.monotonic()
                until = now + _ALLOCATE_TIMEOUT_S if until is None else until
                if wanted > self._limit or len(self._sizes) <= mine or now >= until:
                    raise OutOfMemory(self._refusal(wanted, waited=now >= until))
                self._changed.wait(until - now)

    def _refusal(self, wanted: int, waited: bool) -> str:
        why = (
            f"nothing was given back within {_ALLOCATE_TIMEOUT_S:.0f} s" if waited else "it would not fit beside the rest"
        )
        return (
            f"Failed to increase the shared memory pool size to {self._total + wanted} bytes: this process may have "
            f"{self._limit} bytes of shared memory, has {self._total} and needs {wanted} more at once; {why}. Send "
            "smaller tensors or fewer at a time, or raise the limit"
        )

    def _take(self, wanted: int) -> Optional[Slot]:
        slots = self._free.get(wanted)
        if slots:
            return self._claim(slots.pop(), wanted)
        for segment in self._segments.values():
            if segment.live == 0 and segment.top:
                self._reset(segment)
            if segment.top + wanted <= segment.size:
                return self._cut(segment, wanted)
        larger = min((size for size, free in self._free.items() if free and size > wanted), default=None)
        if self._total + wanted > self._limit:
            return self._claim(self._free[larger].pop(), larger) if larger else None
        segment = self._grow(max(self._growth, wanted), wanted)
        return self._cut(segment, wanted) if segment else None

    def _claim(self, slot: Slot, size: int) -> Slot:
        self._sizes[slot] = size
        return slot

    def _cut(self, segment: _Segment, size: int) -> Slot:
        slot = (segment.number, segment.top)
        segment.top += size
        return self._claim(slot, size)

    def _reset(self, segment: _Segment) -> None:
        """Forgets how an unused segment was cut up: sizes change with the load."""
        for size, slots in self._free.items():
            self._free[size] = [slot for slot in slots if slot[0] != segment.number]
        segment.top = 0

    def _grow(self, size: int, wanted: int) -> Optional[_Segment]:
        size = max(wanted, min(size, self._limit - self._total))
        size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        try:
            segment = _Segment(size)
        except OSError as error:
            raise OutOfMemory(
                f"Failed to increase the shared memory pool size to {self._total + size} bytes: {error}"
            ) from error
        self._segments[segment.number] = segment
        self._total += size
        return segment

    def release(self, slots: Any) -> None:
        """Takes slots back. Unknown ones are ignored: both sides come from one server, so there are none."""
        with self._changed:
            for segment, offset in slots:
                slot = (segment, offset)
                size = self._sizes.pop(slot, None)
                if size is not None:
                    self._segments[segment].live -= 1
                    self._free.setdefault(size, []).append(slot)
            self._changed.notify_all()

    def in_use(self) -> int:
        """Slots that were not given back yet."""
        return len(self._sizes)


class OutgoingMessage:
    """Places the tensors of one message: small ones in the frame, others in the arena, one copy each."""

    __slots__ = ("body", "_arena", "_slots")

    def __init__(self, arena: Optional[Arena]) -> None:
        self.body = wire.FrameBody()
        self._arena = arena
        self._slots: List[Slot] = []

    def place(self, data: Any, size: int) -> Tuple[int, int]:
        """Segment (-1: the frame) and offset. `data`: contiguous bytes. Raises OutOfMemory."""
        if size <= wire.MAX_INLINE_BYTES or self._arena is None:
            return -1, self.body.add(data, size)
        segment, offset, view = self._arena.allocate(size, len(self._slots))
        self._slots.append((segment, offset))
        view[:] = data
        return segment, offset

    def mark(self) -> int:
        """A point to which `undo` can return."""
        return len(self._slots)

    def undo(self, mark: int = 0) -> None:
        """Gives back the slots since `mark`: what they were for is not sent."""
        if self._arena is not None and len(self._slots) > mark:
            self._arena.release(self._slots[mark:])
            del self._slots[mark:]


class _SlotReference(weakref.ref):
    __slots__ = ("slot",)

    slot: Slot


class ServerMemory:
    """The server's segments, mapped when they are first seen. Slots go back when the last array over them is gone."""

    def __init__(self, pid: int, on_free: Callable[[], None]) -> None:
        """`on_free` is called when a slot can go back; from any thread, also in the middle of a collection."""
        self._pid = pid
        self._maps: Dict[int, mmap.mmap] = {}
        self._lock = threading.Lock()
        self._live: Dict[int, _SlotReference] = {}
        self._on_free = on_free
        self.freed: Deque[Slot] = deque()

    def segment(self, number: int, end: int) -> mmap.mmap:
        """The mapping of a segment, at least `end` bytes long. Raises OSError or ValueError."""
        mapped = self._maps.get(number)
        if mapped is not None and len(mapped) >= end:
            return mapped
        with self._lock:
            descriptor = os.open(f"/proc/{self._pid}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)
            try:
                if not fcntl.fcntl(descriptor, _F_GET_SEALS) & _F_SEAL_SHRINK:
                    raise ValueError(f"segment {number} may shrink, so it cannot be mapped")
                size = os.fstat(descriptor).st_size
                if size < end:
                    raise ValueError(f"segment {number} has {size} bytes, a tensor ends at {end}")
                mapped = mmap.mmap(descriptor, size)
            finally:
                os.close(descriptor)
            self._maps[number] = mapped
            return mapped

    def track(self, array: Any, segment: int, offset: int) -> None:
        """Gives the slot back when `array` (the one over the mapping; views keep it) has died."""
        reference = _SlotReference(array, self._gone)
        reference.slot = (segment, offset)
        self._live[id(reference)] = reference

    def _gone(self, reference: _SlotReference) -> None:
        if self._live.pop(id(reference), None) is not None:
            self.freed.append(reference.slot)
            self._on_free()

    def drain(self) -> List[Slot]:
        """The slots to give back with the next frame."""
        slots: List[Slot] = []
        freed = self.freed
        try:
            while True:
                slots.append(freed.popleft())
        except IndexError:
            return slots

    def forget(self) -> None:
        """After a fork: what was mapped stays so, but its slots are the parent process's to give back."""
        self._lock = threading.Lock()
        self._live.clear()
        self.freed.clear()

    def in_use(self) -> int:
        """Slots that arrays of this process lie over."""
        return len(self._live)
