"""`Tensor`: a name, a datatype, a shape, and bytes that are NumPy's or the server's."""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

import numpy as np

import nereid_dlpack as dlpack
from nereid_datatypes import BITS, NAMES, datatype_of, pack_bytes, unpack_bytes
from nereid_errors import TritonModelException
from nereid_memory import OutgoingMessage
from nereid_session import session
from nereid_wire import MAX_INLINE_BYTES

_frombuffer = np.frombuffer
_UINT8 = np.dtype(np.uint8)


def _check_name(name: Any) -> str:
    if isinstance(name, bytes):
        name = name.decode()
    if not isinstance(name, str):
        raise TypeError(f"Tensor(): name must be a str, got {type(name)}")
    return name


def _refuse_empty() -> None:
    raise TritonModelException("Tensor name cannot be an empty string.")


class Tensor:
    """A tensor on its way in or out (python-backend.md §A6). Construct it from a name and a NumPy array."""

    # An array of the datatype, or for BYTES of objects; None until somebody wants it. `_raw` are the bytes that
    # came: a vector over shared memory, or (bytes of the frame, offset, size).
    __slots__ = ("_name", "_datatype", "_shape", "_array", "_raw", "__weakref__")

    _raw: Any

    def __init__(self, name: str, numpy_array: np.ndarray, /) -> None:
        if type(name) is not str:
            name = _check_name(name)
        if not isinstance(numpy_array, np.ndarray):
            raise TypeError(f"Tensor(): the value of tensor '{name}' must be a NumPy array, got {type(numpy_array)}")
        if not name:
            _refuse_empty()
        self._name = name
        self._datatype = datatype_of(numpy_array.dtype)
        if not numpy_array.flags.c_contiguous:
            numpy_array = np.ascontiguousarray(numpy_array)
        self._array: Optional[np.ndarray] = numpy_array
        self._shape = numpy_array.shape
        self._raw = None

    def name(self) -> str:
        """Its name."""
        return self._name

    def shape(self) -> List[int]:
        """Its shape, a list of its own."""
        return list(self._shape)

    def triton_dtype(self) -> int:
        """The number of its datatype."""
        return NAMES.index(self._datatype)

    def is_cpu(self) -> bool:
        """Whether its bytes are in main memory: always."""
        return True

    def as_numpy(self) -> np.ndarray:
        """The array, the same at each call. Incoming ones are writable, and valid while anything refers to them."""
        array = self._array
        if array is None:
            if self._datatype == "BF16":
                raise TritonModelException(
                    "Tensor dtype is BF16 and cannot be converted to NumPy. Use to_dlpack() and from_dlpack() instead."
                )
            array = self._make_array()
        return array

    def _make_array(self) -> np.ndarray:
        raw = self._raw
        if self._datatype == "BYTES":
            array = unpack_bytes(self._bytes()[0]).reshape(self._shape)
            # The model may change the elements, so the bytes that came do not count any more.
            self._raw = None
        elif type(raw) is tuple:
            body, offset, size = raw
            dtype = BITS[self._datatype]
            array = _frombuffer(body, dtype, size // dtype.itemsize, offset) if size else np.empty(0, dtype)
            if len(self._shape) != 1:
                array = array.reshape(self._shape)
        else:
            array = raw.view(BITS[self._datatype]).reshape(self._shape)
        self._array = array
        return array

    def _bits(self) -> np.ndarray:
        """The array for DLPack: of BF16 as integers."""
        if self._array is not None:
            return self._array
        if self._datatype != "BF16":
            return self._make_array()
        if type(self._raw) is tuple:
            body, offset, size = self._raw
            self._raw = np.frombuffer(body, _UINT8, size, offset) if size else np.empty(0, _UINT8)
        return self._raw.view(np.uint16)

    def _bytes(self) -> Tuple[Any, int]:
        """The bytes as they travel, and how many."""
        array = self._array
        if array is None:
            raw = self._raw
            if type(raw) is not tuple:
                return raw.data, raw.nbytes
            body, offset, size = raw
            return memoryview(body)[offset : offset + size], size
        if self._datatype == "BYTES":
            packed = pack_bytes(array)
            return packed, len(packed)
        size = array.nbytes
        return array.tobytes() if size <= MAX_INLINE_BYTES else array.reshape(-1).view(_UINT8).data, size

    def to_dlpack(self) -> Any:
        """A DLPack capsule over its bytes, which keeps the tensor alive."""
        if self._datatype == "BYTES":
            raise TritonModelException("DLPack does not have support for string tensors.")
        return dlpack.to_capsule(self, self._bits(), self._datatype, list(self._shape))

    def __dlpack__(self, stream: Any = None) -> Any:
        return self.to_dlpack()

    def __dlpack_device__(self) -> Tuple[int, int]:
        return (dlpack.CPU, 0)

    @staticmethod
    def from_dlpack(name: str, tensor: Any, /) -> "Tensor":
        """A tensor over the memory of a DLPack capsule, or of an object with `__dlpack__`; nothing is copied."""
        if not _check_name(name):
            _refuse_empty()
        array, datatype, shape = dlpack.from_capsule(tensor)
        made = Tensor.__new__(Tensor)
        made._name, made._datatype, made._shape = _check_name(name), datatype, shape
        made._array = None if datatype == "BF16" else array.reshape(shape)
        made._raw = array.view(np.uint8) if datatype == "BF16" else None
        return made


def receive_tensor(fields: list, body: Any) -> Tensor:
    """The tensor of a frame (wire.md). Raises ValueError or OSError when its memory cannot be mapped."""
    tensor = Tensor.__new__(Tensor)
    tensor._name, tensor._datatype, tensor._shape, segment, offset, size = fields
    tensor._array = None
    if segment < 0:
        tensor._raw = (body, offset, size)
    else:
        memory = session.link.memory
        raw = _frombuffer(memory.segment(segment, offset + size), _UINT8, size, offset)
        memory.track(raw, segment, offset)
        tensor._raw = raw
    return tensor


def place_tensor(tensor: Tensor, message: OutgoingMessage) -> list:
    """Copies its bytes into a message; what the frame says of it. Raises OutOfMemory."""
    array = tensor._array
    if array is not None and tensor._datatype != "BYTES":
        size = array.nbytes
        if size <= MAX_INLINE_BYTES:
            offset = message.body.add(array.tobytes(), size)
            return [tensor._name, tensor._datatype, tensor._shape, -1, offset, size]
    data, size = tensor._bytes()
    segment, offset = message.place(data, size)
    return [tensor._name, tensor._datatype, tensor._shape, segment, offset, size]
