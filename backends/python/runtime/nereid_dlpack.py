"""DLPack capsules, made and read without a compiled module.

Capsules are NumPy's own, changed in place: a destructor written in Python would run with a pending exception when a
frame is unwound, and lose it.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any, List, Tuple

import numpy as np

from nereid_datatypes import BITS
from nereid_errors import TritonModelException

CPU = 1
_CUDA_HOST = 3


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

_KINDS = {"b": 6, "i": 0, "u": 1, "f": 2}
_CODES = {name: (_KINDS[dtype.kind], dtype.itemsize * 8) for name, dtype in BITS.items()}
_CODES["BF16"] = (4, 16)
_NAMES = {code: name for name, code in _CODES.items()}
# The name of a consumed capsule; it must live as long as the capsule, so for ever.
_USED = ctypes.create_string_buffer(b"used_dltensor")


def _python_call(name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(ctypes.pythonapi, name)
    return ctypes.PYFUNCTYPE(result, *arguments)(ctypes.cast(function, ctypes.c_void_p).value)


_pointer_of = _python_call("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_rename = _python_call("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_void_p)


class _Source:
    """Lets NumPy make an array over somebody's memory that keeps `owner` alive."""

    def __init__(self, owner: Any, interface: dict) -> None:
        self._owner = owner
        self.__array_interface__ = interface


def to_capsule(owner: Any, array: np.ndarray, datatype: str, shape: List[int]) -> Any:
    """A capsule named `dltensor` over the bytes of `array` (C order); it adds one reference to `owner`."""
    if not hasattr(np.ndarray, "__dlpack__"):
        raise TritonModelException(f"DLPack needs NumPy 1.22 or newer, this is {np.__version__}")
    # Types that NumPy cannot export go as plain integers of their size and get their name afterwards.
    stand_in = np.dtype(f"u{array.dtype.itemsize}") if datatype in ("BOOL", "BF16") else array.dtype
    interface = {
        "version": 3,
        "typestr": stand_in.str,
        "shape": tuple(shape),
        "data": (array.ctypes.data, False),
    }
    capsule = np.asarray(_Source(owner, interface)).__dlpack__()
    managed = _Managed.from_address(_pointer_of(capsule, b"dltensor"))
    managed.tensor.dtype.code, managed.tensor.dtype.bits = _CODES[datatype]
    managed.tensor.strides = None
    return capsule


def _capsule_of(value: Any) -> Any:
    if type(value).__name__ == "PyCapsule":
        return value
    if not hasattr(value, "__dlpack__") or not hasattr(value, "__dlpack_device__"):
        raise TritonModelException(
            "Provided tensor is not supported. Tensor must be a DLPack capsule or have `__dlpack__` and "
            f"`__dlpack_device__` attributes, got {type(value)}"
        )
    _check_device(value.__dlpack_device__()[0])
    return value.__dlpack__()


def _check_device(device: int) -> None:
    if device not in (CPU, _CUDA_HOST):
        raise TritonModelException(
            f"DLDevice type {int(device)} is not support by Python backend. Move the tensor to the CPU first."
        )


def _check_order(tensor: _Tensor, shape: List[int]) -> None:
    if not tensor.strides or 0 in shape:
        return
    stride = 1
    for axis in range(len(shape) - 1, -1, -1):
        if shape[axis] == 1:
            continue
        if tensor.strides[axis] != stride:
            raise TritonModelException(
                "DLPack tensor is not contiguous. Only contiguous DLPack tensors that are stored in C-Order are "
                "supported."
            )
        stride *= shape[axis]


def from_capsule(value: Any) -> Tuple[np.ndarray, str, List[int]]:
    """The bytes of a capsule, or of an object that can make one, as a vector: bits of its datatype, and the shape.

    The producer is told when the last array over them is gone. Raises TritonModelException.
    """
    capsule = _capsule_of(value)
    try:
        address = _pointer_of(capsule, b"dltensor")
    except ValueError as error:
        raise TritonModelException(f"The DLPack capsule cannot be used, perhaps it was used before: {error}") from None
    managed = _Managed.from_address(address)
    tensor = managed.tensor
    _check_device(tensor.device.type)
    shape = [tensor.shape[axis] for axis in range(tensor.ndim)]
    _check_order(tensor, shape)
    datatype = _NAMES.get((tensor.dtype.code, tensor.dtype.bits)) if tensor.dtype.lanes == 1 else None
    if datatype is None:
        kind = (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes)
        raise TritonModelException(f"DLPack dtype (code, bits, lanes) {kind} is not supported.")
    count = 1
    for extent in shape:
        count *= extent
    dtype = BITS[datatype]
    begin = (tensor.data or 0) + tensor.byte_offset
    _rename(capsule, ctypes.addressof(_USED))
    if count:
        array = np.frombuffer((ctypes.c_uint8 * (count * dtype.itemsize)).from_address(begin), dtype=dtype)
    else:
        array = np.empty(0, dtype=dtype)
    if managed.deleter:
        weakref.finalize(array, _Deleter(managed.deleter), address).atexit = False
    return array, datatype, shape
