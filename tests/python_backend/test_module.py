"""`triton_python_backend_utils` without a server: objects, checks, conversions, DLPack (§A4, §A5, §A6)."""

import json
import sys
import types

import numpy as np
import pytest
import stub_parent  # noqa: F401  puts the runtime on the path

import triton_python_backend_utils as pb_utils
from nereid_memory import Arena, OutOfMemory, slot_size
from nereid_tensor import Tensor, receive_tensor

X = pb_utils.Tensor("X", np.zeros(2, np.float32))


def request(**more):
    return pb_utils.InferenceRequest(**{"inputs": [X], "requested_output_names": ["Y"], "model_name": "m", **more})


@pytest.mark.parametrize(
    "arguments",
    [
        {"inputs": None}, {"inputs": "text"}, {"inputs": [1]}, {"requested_output_names": None},
        {"requested_output_names": [None]}, {"requested_output_names": "Y"}, {"model_name": None}, {"model_name": 3},
        {"model_version": None}, {"model_version": 1.5}, {"request_id": None}, {"correlation_id": None},
        {"correlation_id": -1}, {"flags": None}, {"flags": -1}, {"flags": 2**32}, {"timeout": -1}, {"timeout": None},
        {"preferred_memory": None}, {"trace": None}, {"no_such": 1},
    ],
)  # fmt: skip
def test_requests_of_wrong_types(arguments):
    with pytest.raises(TypeError):
        request(**arguments)


@pytest.mark.parametrize("missing", ["inputs", "requested_output_names", "model_name"])
def test_requests_without_what_they_need(missing):
    arguments = {"inputs": [X], "requested_output_names": ["Y"], "model_name": "m"}
    del arguments[missing]
    with pytest.raises(TypeError, match=f"{missing} is missing"):
        pb_utils.InferenceRequest(**arguments)


@pytest.mark.parametrize(
    "arguments, text",
    [
        ({"inputs": [None], "request_id": "r"},
         "Input tensor for request with id 'r' and model name 'm' should not be empty."),
        ({"requested_output_names": [""]},
         "Requested output name for request with id '' and model name 'm' should not be empty."),
        ({"correlation_id": 1.5}, "Correlation ID must be integer or string"),
        ({"parameters": [1]}, "Expect parameters to be a dict, got <class 'list'>"),
        ({"parameters": dict.fromkeys(map(str, range(10_001)), 1)}, "Expect at most 10000 parameters, got 10001"),
        ({"parameters": {1: 2}}, "Expect parameters keys to have type str, found type <class 'int'>"),
        ({"parameters": {"a": 1.5}}, "Expect parameters values to have type bool/int/str, found type <class 'float'>"),
    ],
)  # fmt: skip
def test_requests_with_wrong_values(arguments, text):
    with pytest.raises(pb_utils.TritonModelException) as caught:
        request(**arguments)
    assert str(caught.value) == text


def test_what_a_request_keeps():
    made = request(request_id="i", correlation_id="seq", flags=1, timeout=2**40, parameters={"b": True},
                   model_version=np.int64(2), preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU))  # fmt: skip
    made.set_flags(3)
    assert (made.request_id(), made.correlation_id(), made.flags(), made.timeout()) == ("i", "seq", 3, 2**40)
    assert made.parameters() == '{"b": true}' and made.requested_output_names() == {"Y"}
    assert made.inputs() == [X] and made.is_cancelled() is False
    with pytest.raises(pb_utils.TritonModelException, match="no reference to the decoupled state"):
        made.get_response_sender().send(flags=1)


def test_responses():
    assert pb_utils.InferenceResponse().output_tensors() == []
    assert pb_utils.InferenceResponse([X], parameters=None).parameters() == "{}"
    error = pb_utils.TritonError("m", pb_utils.TritonError.UNAVAILABLE)
    response = pb_utils.InferenceResponse(output_tensors=[X], error=error)
    assert response.has_error() and response.error() is error
    assert (error.message(), error.code()) == ("m", pb_utils.TritonError.UNAVAILABLE)
    assert pb_utils.TritonError("x").code() == pb_utils.TritonError.INTERNAL
    for wrong in (None, "text", [1], 5):
        with pytest.raises(TypeError):
            pb_utils.InferenceResponse(wrong)
    with pytest.raises(TypeError):
        pb_utils.InferenceResponse([], "an error")
    with pytest.raises(pb_utils.TritonModelException, match="Output tensor for inference response should not be empty."):
        pb_utils.InferenceResponse([None])
    for wrong in ((None,), ("m", None), ("m", 3), (1,)):
        with pytest.raises(TypeError):
            pb_utils.TritonError(*wrong)


def test_tensors():
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    tensor = pb_utils.Tensor("T", array)
    assert (tensor.name(), tensor.shape(), tensor.is_cpu(), tensor.triton_dtype()) == ("T", [2, 3], True, 7)
    assert tensor.as_numpy() is array
    turned = pb_utils.Tensor("T", array.T)
    assert turned.as_numpy().flags.c_contiguous and turned.shape() == [3, 2]
    for wrong in (("T", [1, 2]), (1, array), ("T", None), ("T",), ("", None)):
        with pytest.raises(TypeError):
            pb_utils.Tensor(*wrong)
    with pytest.raises(TypeError):
        pb_utils.Tensor(name="T", numpy_array=array)
    with pytest.raises(pb_utils.TritonModelException, match="Tensor name cannot be an empty string."):
        pb_utils.Tensor("", array)
    for wrong in (np.zeros(1, np.complex64), np.array(["text"])):
        with pytest.raises(pb_utils.TritonModelException, match="NumPy dtype is not supported."):
            pb_utils.Tensor("T", wrong)


def incoming(datatype, shape, data):
    return receive_tensor(["T", datatype, shape, -1, 0, len(data)], bytearray(data))


@pytest.mark.parametrize("dtype", ["bool", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"])
def test_dlpack_there_and_back(dtype):
    array = np.array([[1, 0, 1], [0, 1, 1]], dtype=dtype)
    back = pb_utils.Tensor.from_dlpack("B", pb_utils.Tensor("A", array))
    assert back.as_numpy().dtype == array.dtype and np.array_equal(back.as_numpy(), array)
    back.as_numpy()[0, 1] = 1
    assert array[0, 1] == 1, "the memory is the same"


def test_dlpack_of_bf16():
    tensor = incoming("BF16", [2, 1], np.array([16256, 16384], np.uint16).tobytes())
    with pytest.raises(pb_utils.TritonModelException, match="Tensor dtype is BF16 and cannot be converted to NumPy"):
        tensor.as_numpy()
    back = pb_utils.Tensor.from_dlpack("B", tensor.to_dlpack())
    assert back.triton_dtype() == 14 and back.shape() == [2, 1]
    assert bytes(back._bytes()[0]) == np.array([16256, 16384], np.uint16).tobytes()


def test_dlpack_with_numpy_as_the_other_side():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert np.array_equal(pb_utils.Tensor.from_dlpack("A", array).as_numpy(), array)
    tensor = pb_utils.Tensor("A", array)
    assert tensor.__dlpack_device__() == (1, 0)
    with pytest.raises(pb_utils.TritonModelException, match="DLPack tensor is not contiguous"):
        pb_utils.Tensor.from_dlpack("A", array.T)
    with pytest.raises(pb_utils.TritonModelException, match="DLPack does not have support for string tensors."):
        pb_utils.Tensor("A", np.array([b"x"], object)).to_dlpack()
    with pytest.raises(pb_utils.TritonModelException, match="Provided tensor is not supported"):
        pb_utils.Tensor.from_dlpack("A", [1])
    with pytest.raises(pb_utils.TritonModelException, match="cannot be an empty string"):
        pb_utils.Tensor.from_dlpack("", array)
    capsule = tensor.to_dlpack()
    pb_utils.Tensor.from_dlpack("A", capsule)
    with pytest.raises(pb_utils.TritonModelException, match="cannot be used"):
        pb_utils.Tensor.from_dlpack("A", capsule)


@pytest.mark.parametrize("shape", [(), (0, 3), (1,)])
def test_dlpack_of_small_shapes(shape):
    zeros = np.zeros(shape, np.float32)
    assert pb_utils.Tensor.from_dlpack("A", zeros).shape() == list(shape)  # strides of nothing mean nothing
    back = pb_utils.Tensor.from_dlpack("B", pb_utils.Tensor("A", zeros))
    assert back.as_numpy().shape == shape


def test_dlpack_keeps_the_memory_and_lets_it_go():
    tensor = pb_utils.Tensor("A", np.arange(1000, dtype=np.float64))
    before = sys.getrefcount(tensor)
    capsule = tensor.to_dlpack()
    assert sys.getrefcount(tensor) == before + 1
    del capsule
    assert sys.getrefcount(tensor) == before
    back = pb_utils.Tensor.from_dlpack("B", tensor)
    view = back.as_numpy()[10:20]
    del back
    assert sys.getrefcount(tensor) == before + 1
    assert view.tolist() == list(range(10, 20))
    del view
    assert sys.getrefcount(tensor) == before


def test_a_capsule_that_dies_with_an_exception_does_not_lose_it():
    def fail():
        capsule = X.to_dlpack()
        raise KeyError(str(bool(capsule)))

    with pytest.raises(KeyError, match="True"):
        fail()


def test_incoming_strings():
    tensor = incoming("BYTES", [2, 1], b"\x01\0\0\0a\x00\0\0\0")
    assert tensor.as_numpy().tolist() == [[b"a"], [b""]] and tensor.as_numpy() is tensor.as_numpy()
    for wrong in (b"\x01\0\0", b"\x05\0\0\0ab"):
        with pytest.raises(pb_utils.TritonModelException, match="Invalid bytes tensor data"):
            incoming("BYTES", [1], wrong).as_numpy()


def test_strings_as_bytes():
    array = np.array(["ü", b"\xff\0", 5], dtype=object)
    packed = pb_utils.serialize_byte_tensor(array)
    assert packed == b"\x02\0\0\0\xc3\xbc\x02\0\0\0\xff\0\x01\0\0\x005"
    assert pb_utils.deserialize_bytes_tensor(packed).tolist() == ["ü".encode(), b"\xff\0", b"5"]
    assert pb_utils.serialize_byte_tensor(np.zeros(0, object)) == ()
    assert pb_utils.serialize_byte_tensor(np.zeros(1, np.float32)) is None
    assert pb_utils.deserialize_bytes_tensor(b"").shape == (0,)


def test_conversions():
    assert pb_utils.triton_string_to_numpy("TYPE_BOOL") is bool
    assert pb_utils.triton_string_to_numpy("TYPE_FP32") is np.float32
    assert pb_utils.triton_string_to_numpy("TYPE_STRING") is np.object_
    with pytest.raises(KeyError):
        pb_utils.triton_string_to_numpy("TYPE_BF16")
    assert pb_utils.TRITON_STRING_TO_NUMPY["TYPE_INT64"] is np.int64
    for code in range(1, 14):
        assert pb_utils.numpy_to_triton_type(pb_utils.triton_to_numpy_type(code)) == code
    assert pb_utils.triton_to_numpy_type(14) is None and pb_utils.numpy_to_triton_type(np.complex64) is None


def test_look_ups():
    config = {"input": [{"name": "I"}], "output": [{"name": "O"}], "model_transaction_policy": {"decoupled": True}}
    assert pb_utils.get_input_config_by_name(config, "I") == {"name": "I"}
    assert pb_utils.get_output_config_by_name(config, "no") is None
    assert pb_utils.get_input_config_by_name({}, "I") is None
    assert pb_utils.using_decoupled_model_transaction_policy(config) is True
    assert pb_utils.using_decoupled_model_transaction_policy({}) is False
    assert pb_utils.get_input_tensor_by_name(request(), "X") is X
    assert pb_utils.get_input_tensor_by_name(request(), "no") is None
    assert pb_utils.get_output_tensor_by_name(pb_utils.InferenceResponse([X]), "X") is X


def test_constants():
    assert pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START == 1
    assert pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END == 2
    assert pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL == 1
    assert (pb_utils.TRITONSERVER_REQUEST_RELEASE_ALL, pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE) == (1, 2)
    assert not hasattr(pb_utils, "Metric") and not hasattr(pb_utils, "InferenceTrace")
    assert isinstance(pb_utils, types.ModuleType)


@pytest.mark.parametrize("level", [1, None, "INFO"])
def test_the_logger_refuses_wrong_levels(level):
    with pytest.raises(TypeError):
        pb_utils.Logger.log("text", level)
    with pytest.raises(TypeError):
        pb_utils.Logger.log_info(None)


EMPTY = {"name": "m", "max_batch_size": 4, "input": [], "output": []}


def config(**more):
    return pb_utils.ModelConfig(json.dumps({**EMPTY, **more}))


I = {"name": "I", "data_type": "TYPE_FP32", "dims": [4]}


@pytest.mark.parametrize(
    "given, change, text",
    [
        ({}, lambda c: c.set_max_batch_size(2),
         "configuration specified max_batch_size 4, but in auto-complete-config function for model 'm' specified "
         "max_batch_size 2"),
        ({"sequence_batching": {}}, lambda c: c.set_dynamic_batching(),
         "Configuration specified scheduling_choice as 'sequence_batching', but auto-complete-config function for model "
         "'m' tries to set scheduling_choice as 'dynamic_batching'"),
        ({}, lambda c: c.add_input({**I, "extra": 1}),
         "input 'I' in auto-complete-config function for model 'm' contains property other than 'name', 'data_type', "
         "'dims' and 'optional'."),
        ({}, lambda c: c.add_output({**I, "optional": True}),
         "output 'I' in auto-complete-config function for model 'm' contains property other than 'name', 'data_type' and "
         "'dims'."),
        ({}, lambda c: c.add_input({}), "input in auto-complete-config function for model 'm' is missing 'name' property."),
        ({}, lambda c: c.add_output({"name": "O"}),
         "output 'O' in auto-complete-config function for model 'm' is missing 'data_type' property."),
        ({}, lambda c: c.add_output({"name": "O", "data_type": "TYPE_FP32"}),
         "output 'O' in auto-complete-config function for model 'm' is missing 'dims' property."),
        ({"input": [I]}, lambda c: c.add_input({**I, "data_type": "TYPE_INT8"}),
         "unable to load model 'm', configuration expects datatype TYPE_FP32 for input 'I', model provides TYPE_INT8"),
        ({"output": [I]}, lambda c: c.add_output({**I, "dims": [8]}),
         "model 'm', tensor 'I': the model expects dims [8] but the model configuration specifies dims [4]"),
        ({"input": [{**I, "optional": False}]}, lambda c: c.add_input({**I, "optional": True}),
         "model 'm', tensor 'I': the model expects optional True but the model configuration specifies optional False"),
        ({}, lambda c: c.set_model_transaction_policy({"x": 1}),
         "model transaction property in auto-complete-config function for model 'm' contains property other than "
         "'decoupled'."),
        ({"model_transaction_policy": {"decoupled": False}},
         lambda c: c.set_model_transaction_policy({"decoupled": True}),
         "trying to change decoupled property in auto-complete-config for model 'm', which is already set to 'False'."),
    ],
)  # fmt: skip
def test_what_a_configuration_refuses(given, change, text):
    with pytest.raises(ValueError) as caught:
        change(config(**given))
    assert str(caught.value) == text


def test_what_a_configuration_takes():
    made = config(input=[{"name": "I", "data_type": "TYPE_INVALID", "dims": [], "optional": True}], dynamic_batching={"a": 1})
    made.set_max_batch_size(8)
    made.set_dynamic_batching()
    made.add_input(I)
    made.add_output(I)
    made.set_model_transaction_policy({})
    assert made.as_dict() == {
        "name": "m", "max_batch_size": 8, "dynamic_batching": {"a": 1}, "model_transaction_policy": {},
        "input": [{**I, "optional": True}], "output": [I],
    }  # fmt: skip


def test_slots_waste_at_most_an_eighth():
    for size in (1, 63, 64, 65, 1000, 16_385, 602_112, 5_000_001):
        assert size <= slot_size(size) <= max(64, size + size // 8 + 64) and slot_size(size) % 64 == 0


def test_the_arena_uses_memory_again_for_other_sizes():
    arena = Arena(1 << 20, 1 << 20)
    first = [arena.allocate(100_000, 0)[:2] for _ in range(8)]
    arena.release(first)
    arena.release(first)
    whole = arena.allocate(1 << 20, 0)
    assert arena.in_use() == 1
    with pytest.raises(OutOfMemory, match="Failed to increase the shared memory pool size to 2097152 bytes"):
        arena.allocate(1 << 20, 1)
    arena.release([whole[:2]])


def test_received_tensors_are_writable_arrays():
    array = incoming("INT32", [1, 2], np.array([1, 2], np.int32).tobytes()).as_numpy()
    array += 1
    assert array.tolist() == [[2, 3]] and isinstance(X, Tensor)


def test_the_classes_have_the_name_of_the_compiled_module_as_well():
    import c_python_backend_utils as compiled

    for name in ("Tensor", "InferenceRequest", "InferenceResponse", "TritonError", "TritonModelException",
                 "PreferredMemory", "MetricFamily", "Logger", "load_model", "is_model_ready"):  # fmt: skip
        assert getattr(compiled, name) is getattr(pb_utils, name)
    assert compiled.InferenceResponseSender and compiled.ResponseIterator and compiled.Metric and compiled.MetricKind
