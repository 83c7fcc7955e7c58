"""Datatypes: the protocol's names, Triton's numbers, NumPy's types, and elements of type BYTES."""

from __future__ import annotations

import struct
from typing import Any, Dict, List

import numpy as np

from nereid_errors import TritonModelException

#: Triton's numbers are the places in this list.
NAMES = (
    "INVALID", "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
    "FP16", "FP32", "FP64", "BYTES", "BF16",
)  # fmt: skip

_SCALARS = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
}

#: NumPy's type of each datatype that has one; that of BF16 holds its bits.
NUMPY: Dict[str, np.dtype] = {name: np.dtype(scalar) for name, scalar in _SCALARS.items()}
BITS: Dict[str, np.dtype] = {**NUMPY, "BF16": np.dtype(np.uint16)}
_BY_DTYPE: Dict[np.dtype, str] = {dtype: name for name, dtype in NUMPY.items()}

TRITON_STRING_TO_NUMPY: Dict[str, Any] = {
    **{f"TYPE_{name}": scalar for name, scalar in _SCALARS.items()},
    "TYPE_BOOL": bool,
    "TYPE_STRING": np.object_,
}

_LENGTH = struct.Struct("<I")


def datatype_of(dtype: np.dtype) -> str:
    """The protocol's name for arrays of `dtype`. Raises TritonModelException."""
    name = _BY_DTYPE.get(dtype)
    if name is not None:
        return name
    if dtype.kind in "OS":
        return "BYTES"
    raise TritonModelException("NumPy dtype is not supported.")


def pack_bytes(array: np.ndarray) -> bytes:
    """The elements in Triton's form: four bytes of length before each; what is not `bytes` as its text."""
    parts: List[bytes] = []
    pack = _LENGTH.pack
    for element in array.ravel().tolist():
        if type(element) is not bytes:
            element = bytes(element) if isinstance(element, bytes) else str(element).encode("utf-8")
        parts.append(pack(len(element)))
        parts.append(element)
    return b"".join(parts)


def unpack_bytes(data: Any) -> np.ndarray:
    """A vector of `bytes` objects. Raises TritonModelException when lengths do not fit."""
    elements: List[bytes] = []
    unpack = _LENGTH.unpack_from
    view = memoryview(data)
    offset, size = 0, len(view)
    while offset < size:
        if offset + 4 > size:
            raise TritonModelException("Invalid bytes tensor data: incomplete length field")
        begin = offset + 4
        offset = begin + unpack(view, offset)[0]
        if offset > size:
            raise TritonModelException("Invalid bytes tensor data: string extends beyond buffer")
        elements.append(bytes(view[begin:offset]))
    array = np.empty(len(elements), dtype=np.object_)
    array[:] = elements
    return array


def serialize_byte_tensor(input_tensor: np.ndarray) -> Any:
    """The bytes of a tensor of strings; `()` when it has no elements, None when its type is another one."""
    if input_tensor.size == 0:
        return ()
    return pack_bytes(input_tensor) if input_tensor.dtype.kind in "OS" else None


def deserialize_bytes_tensor(encoded_tensor: Any) -> np.ndarray:
    """The elements of serialized strings as a vector of `bytes` objects."""
    return unpack_bytes(encoded_tensor)


def triton_to_numpy_type(data_type: int) -> Any:
    """NumPy's type for one of Triton's numbers; None when there is none."""
    if data_type == NAMES.index("BYTES"):
        return np.object_
    return _SCALARS.get(NAMES[data_type]) if 0 < data_type < len(NAMES) else None


def numpy_to_triton_type(data_type: Any) -> Any:
    """Triton's number for one of NumPy's types; None when there is none."""
    dtype = np.dtype(data_type)
    name = "BYTES" if dtype.kind in "OS" else _BY_DTYPE.get(dtype)
    return None if name is None else NAMES.index(name)


def triton_string_to_numpy(triton_type_string: str) -> Any:
    """NumPy's type for a datatype of a model configuration, as `TYPE_FP32`. Raises KeyError, also for TYPE_BF16."""
    return TRITON_STRING_TO_NUMPY[triton_type_string]
