"""Every datatype in every encoding, through tritonclient and through raw messages."""

import json

import grpc as grpc_runtime
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import deserialize_bytes_tensor, serialize_byte_tensor

from nereid_testing.main_repository import DATATYPES, REFERENCE_DATATYPES
from nereid_testing.protocols import NUMPY_TYPES, sample
from nereid_testing.raw_http import infer_binary, infer_json
from nereid_testing.server import is_reference

TYPES = REFERENCE_DATATYPES if is_reference() else DATATYPES
JSON_TYPES = [t for t in TYPES if t not in ("FP16", "BF16")]
SHAPES = [(1, 1), (2, 7), (4, 3)]

CONTENTS_FIELD = {
    "BOOL": "bool_contents",
    "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents",
    "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents", "INT64": "int64_contents",
    "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip


def assert_same(got, want):
    assert got.dtype == want.dtype and got.shape == want.shape
    if want.dtype == object:
        assert got.tolist() == want.tolist()
    else:
        assert got.tobytes() == want.tobytes()  # signed zeros included


def wire_bytes(datatype, array):
    if datatype == "BYTES":
        return serialize_byte_tensor(array).item()
    return array.tobytes()


def from_wire(datatype, raw, shape):
    if datatype == "BYTES":
        return deserialize_bytes_tensor(raw).reshape(shape)
    return np.frombuffer(raw, NUMPY_TYPES[datatype]).reshape(shape)


def model_of(datatype):
    return f"identity_{datatype.lower()}"


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("datatype", TYPES)
def test_binary_and_raw(protocol, datatype, shape):
    """HTTP binary both ways, gRPC raw contents both ways."""
    array = sample(datatype, shape)
    result = protocol.infer(model_of(datatype), {"IN": array}, {"IN": datatype})
    assert_same(result.as_numpy("OUT"), array)


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize("datatype", JSON_TYPES)
def test_http_json_and_binary_mixed(http, datatype, binary_in, binary_out):
    array = sample(datatype, (2, 7))
    if datatype == "BYTES" and not (binary_in and binary_out):
        # JSON carries text: only what is UTF-8
        array = np.array([[b"", "schön €".encode(), b'quote"\\', b"tab\t", b"nul\x00byte", b"x" * 300, b"end"]] * 2, object)
    result = http.client.infer(
        model_of(datatype),
        [http.input("IN", array, datatype, binary_data=binary_in)],
        outputs=[http.output("OUT", binary_data=binary_out)],
    )
    got = result.as_numpy("OUT")
    if datatype == "BYTES" and not binary_out:
        got = np.array([[x.encode() if isinstance(x, str) else x for x in row] for row in got], object)
    assert_same(got, array)


def json_values(datatype, array):
    if datatype == "BYTES":
        return [x.decode() for x in array.ravel()]
    return [x.item() for x in array.ravel()]


@pytest.mark.parametrize("datatype", JSON_TYPES)
def test_http_json_nested_data(main_server, datatype):
    """The tensor as nested arrays; the answer is flat."""
    array = sample(datatype, (2, 4)) if datatype != "BYTES" else np.array([[b"a", b"b", b"", "€".encode()]] * 2, object)
    flat = json_values(datatype, array)
    tensor = {"name": "IN", "datatype": datatype, "shape": [2, 4], "data": [flat[:4], flat[4:]]}
    answer = infer_json(main_server, model_of(datatype), [tensor])
    assert answer.status == 200, answer.body
    output = answer.json()["outputs"][0]
    assert (output["name"], output["datatype"], output["shape"]) == ("OUT", datatype, [2, 4])
    got = output["data"]
    if datatype == "FP32":
        got = [float(np.float32(x)) for x in got]
    assert got == flat


@pytest.mark.parametrize("datatype", ["UINT64", "INT64"])
def test_http_json_64_bit_integers_are_exact(main_server, datatype):
    limits = np.iinfo(NUMPY_TYPES[datatype])
    values = [limits.max, limits.min, 2**53 + 1, 9007199254740993]
    tensor = {"name": "IN", "datatype": datatype, "shape": [1, 4], "data": values}
    answer = infer_json(main_server, model_of(datatype), [tensor])
    assert answer.status == 200, answer.body
    assert answer.json()["outputs"][0]["data"] == values
    for value in values:
        assert str(value).encode() in answer.body


@pytest.mark.parametrize("datatype", TYPES)
def test_grpc_raw_bytes_are_kept(main_server, datatype):
    """Through the raw stub, so that no client code touches the bytes."""
    array = sample(datatype, (3, 5), seed=3)
    raw = wire_bytes(datatype, array)
    request = service_pb2.ModelInferRequest(model_name=model_of(datatype), id="raw")
    request.inputs.add(name="IN", datatype=datatype, shape=[3, 5])
    request.raw_input_contents.append(raw)
    with grpc_runtime.insecure_channel(main_server.grpc) as channel:
        reply = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=30)
    assert reply.id == "raw" and reply.model_version == "1"
    assert [(o.name, o.datatype, list(o.shape)) for o in reply.outputs] == [("OUT", datatype, [3, 5])]
    assert list(reply.raw_output_contents) == [raw]


@pytest.mark.parametrize("datatype", list(CONTENTS_FIELD))
def test_grpc_typed_contents(main_server, datatype):
    array = sample(datatype, (2, 6), seed=5)
    request = service_pb2.ModelInferRequest(model_name=model_of(datatype))
    tensor = request.inputs.add(name="IN", datatype=datatype, shape=[2, 6])
    getattr(tensor.contents, CONTENTS_FIELD[datatype]).extend(x if isinstance(x, bytes) else x.item() for x in array.ravel())
    with grpc_runtime.insecure_channel(main_server.grpc) as channel:
        reply = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=30)
    assert not reply.outputs[0].HasField("contents")
    assert_same(from_wire(datatype, reply.raw_output_contents[0], (2, 6)), array)


def test_grpc_contents_of_the_wrong_kind(main_server):
    request = service_pb2.ModelInferRequest(model_name="identity_fp32")
    request.inputs.add(name="IN", datatype="FP32", shape=[1, 1]).contents.int_contents.append(1)
    with grpc_runtime.insecure_channel(main_server.grpc) as channel:
        with pytest.raises(grpc_runtime.RpcError) as caught:
            service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=30)
    assert caught.value.code() == grpc_runtime.StatusCode.INVALID_ARGUMENT
    assert "unexpected explicit tensor data for input tensor 'IN' for model 'identity_fp32'" in caught.value.details()


def test_all_datatypes_in_one_request(protocol):
    arrays = {f"IN_{t}": sample(t, (2, 5), seed=i) for i, t in enumerate(TYPES)}
    result = protocol.infer("echo_all", arrays, {f"IN_{t}": t for t in TYPES})
    for datatype in TYPES:
        assert_same(result.as_numpy(f"OUT_{datatype}"), arrays[f"IN_{datatype}"])


def test_http_one_request_with_json_and_binary_inputs(main_server):
    """Binary blocks follow the header in the order of the inputs that use them."""
    arrays = {t: sample(t, (1, 3), seed=9) for t in TYPES}
    arrays["BYTES"] = np.array([[b"x", b"", b"zz"]], object)
    rows, blocks = [], []
    for index, (datatype, array) in enumerate(arrays.items()):
        row = {"name": f"IN_{datatype}", "datatype": datatype, "shape": [1, 3]}
        if index % 2 == 0 or datatype in ("FP16", "BF16"):
            blocks.append(wire_bytes(datatype, array))
            row["parameters"] = {"binary_data_size": len(blocks[-1])}
        else:
            row["data"] = json_values(datatype, array)
        rows.append(row)
    outputs = [{"name": f"OUT_{t}", "parameters": {"binary_data": i % 3 == 0 or t in ("FP16", "BF16")}} for i, t in enumerate(arrays)]
    answer = infer_binary(main_server, "echo_all", {"inputs": rows, "outputs": outputs}, blocks)
    assert answer.status == 200, answer.body
    length = int(answer.headers["inference-header-content-length"])
    body, offset = json.loads(answer.body[:length]), length
    for output, (datatype, array) in zip(body["outputs"], arrays.items()):
        assert output["name"] == f"OUT_{datatype}"
        if "data" in output:
            assert output["data"] == json_values(datatype, array)
        else:
            size = output["parameters"]["binary_data_size"]
            assert_same(from_wire(datatype, answer.body[offset : offset + size], (1, 3)), array)
            offset += size
    assert offset == len(answer.body)


@pytest.mark.parametrize("datatype", ["FP16", "BF16", "FP32", "FP64"])
def test_every_bit_pattern_passes(protocol, datatype):
    """NaN payloads, denormals and infinities are bytes like others."""
    if datatype not in TYPES:
        pytest.skip("not on the reference")
    width = {"FP16": 2, "BF16": 2, "FP32": 4, "FP64": 8}[datatype]
    raw = np.random.default_rng(1).integers(0, 256, 64 * width, dtype=np.uint8).tobytes()
    tensor = protocol.module.InferInput("IN", [4, 16], datatype)
    tensor.set_data_from_numpy(np.zeros((4, 16), NUMPY_TYPES[datatype]))
    if protocol.name == "http":
        tensor._raw_data = raw
    else:
        tensor._raw_content = raw
    result = protocol.client.infer(model_of(datatype), [tensor])
    got = bytes(result._buffer) if protocol.name == "http" else result.get_response().raw_output_contents[0]
    assert got == raw
