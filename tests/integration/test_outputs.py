"""Requested outputs, classification, compression, ids and parameters."""

import gzip
import json
import zlib

import grpc as grpc_runtime
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from nereid_testing.main_repository import DOG_LABELS
from nereid_testing.protocols import sample, status_of
from nereid_testing.raw_http import call, infer_json, infer_path

A = np.arange(16, dtype=np.int32).reshape(1, 16)
B = np.ones((1, 16), np.int32)


def output_names(protocol, result):
    response = result.get_response()
    return [o["name"] for o in response["outputs"]] if protocol.name == "http" else [o.name for o in response.outputs]


@pytest.mark.ours
@pytest.mark.parametrize("wanted", [None, ["OUTPUT1"], ["OUTPUT0", "OUTPUT1"]])
def test_requested_outputs(protocol, wanted):
    result = protocol.infer("add_sub", {"INPUT0": A, "INPUT1": B}, outputs=wanted)
    assert sorted(output_names(protocol, result)) == sorted(wanted or ["OUTPUT0", "OUTPUT1"])
    assert result.as_numpy("OUTPUT1").tolist() == (A - B).tolist()
    if "OUTPUT0" in (wanted or ["OUTPUT0"]):
        assert result.as_numpy("OUTPUT0").tolist() == (A + B).tolist()


@pytest.mark.ours
def test_several_instances(protocol):
    for value in range(12):
        got = protocol.infer("several", {"IN": np.full((2, 4), value, np.float32)}).as_numpy("OUT")
        assert (got == value).all()


def test_unknown_output(protocol):
    with pytest.raises(InferenceServerException, match="unexpected inference output 'NOPE' for model 'slow_pair'"):
        protocol.infer("slow_pair", {"IN": np.zeros(1, np.float32)}, outputs=["NOPE"])


@pytest.mark.ours
@pytest.mark.parametrize("count", [1, 3, 16, 99])
def test_classification(protocol, count):
    output = protocol.output("OUTPUT0", class_count=count)
    result = protocol.infer("add_sub", {"INPUT0": A, "INPUT1": B}, outputs=[output])
    got = result.as_numpy("OUTPUT0")
    assert got.shape == (1, min(count, 16))
    rows = [text.decode() if isinstance(text, bytes) else text for text in got[0]]
    label = [f":{name}" if name else "" for name in DOG_LABELS]
    assert rows == [f"{index + 1}:{index}{label[index]}" for index in range(15, 15 - min(count, 16), -1)]


@pytest.mark.ours
def test_classification_of_floats_without_labels(protocol):
    a = np.array([[0.5, 3.25, -1, 2]], np.float32)
    output = protocol.output("OUTPUT0", class_count=2)
    got = protocol.infer("add_sub_fp32", {"INPUT0": a, "INPUT1": a * 0}, outputs=[output]).as_numpy("OUTPUT0")
    assert got.ravel().tolist() == [b"3.250000:1", b"2.000000:3"]


@pytest.mark.ours
def test_classification_of_every_row(protocol):
    a = np.arange(32, dtype=np.int32).reshape(2, 16)
    output = protocol.output("OUTPUT1", class_count=1)
    got = protocol.infer("add_sub", {"INPUT0": a, "INPUT1": a * 0}, outputs=[output]).as_numpy("OUTPUT1")
    assert got.shape == (2, 1) and got.ravel().tolist() == [b"15:15", b"31:15"]


@pytest.mark.ours  # the real 2.51 dies of this request
def test_classification_of_text_is_refused(protocol):
    output = protocol.output("OUT", class_count=1)
    with pytest.raises(InferenceServerException, match="class result not available for output due to unsupported type"):
        protocol.infer("identity_bytes", {"IN": sample("BYTES", (1, 2))}, outputs=[output])


@pytest.mark.parametrize("answer", [None, "gzip", "deflate"])
@pytest.mark.parametrize("request_encoding", [None, "gzip", "deflate"])
def test_http_compression(http, request_encoding, answer):
    array = sample("FP32", (4, 5000))
    result = http.client.infer(
        "identity_fp32",
        [http.input("IN", array)],
        request_compression_algorithm=request_encoding,
        response_compression_algorithm=answer,
    )
    assert result.as_numpy("OUT").tobytes() == array.tobytes()


@pytest.mark.parametrize(("encoding", "open_body"), [("gzip", gzip.decompress), ("deflate", zlib.decompress)])
def test_http_compressed_answer_is_labelled(main_server, encoding, open_body):
    body = json.dumps({"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1, 1000], "data": [7] * 1000}]})
    answer = call(main_server, "POST", infer_path("identity_int32"), body, {"Accept-Encoding": encoding})
    assert answer.headers["content-encoding"] == encoding
    assert len(answer.body) < 500
    assert json.loads(open_body(answer.body))["outputs"][0]["data"] == [7] * 1000


def test_http_unknown_compression(main_server):
    answer = call(main_server, "POST", infer_path("identity_int32"), b"{}", {"Content-Encoding": "br"})
    assert answer.status == 501 and answer.error() == "Unsupported compression type"
    assert answer.headers["accept-encoding"] == "gzip, deflate"


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_grpc_request_compression(grpc, algorithm):
    array = sample("FP32", (4, 5000))
    result = grpc.infer("identity_fp32", {"IN": array}, compression_algorithm=algorithm)
    assert result.as_numpy("OUT").tobytes() == array.tobytes()


@pytest.mark.parametrize("request_id", ["", "1", "a-b.c", "schön €", "x" * 2000])
def test_request_id_comes_back(protocol, request_id):
    result = protocol.infer("identity_fp32", {"IN": np.zeros((1, 1), np.float32)}, request_id=request_id)
    response = result.get_response()
    assert (response.get("id", "") if protocol.name == "http" else response.id) == request_id


def test_custom_parameters_are_accepted(protocol):
    parameters = {"text": "x", "number": 5, "flag": True, "ratio": 0.5}
    protocol.infer("identity_fp32", {"IN": np.zeros((1, 1), np.float32)}, parameters=parameters, priority=1, timeout=1000)


RESERVED = "parameter keys starting with 'triton_' are reserved for Triton usage"


def test_http_reserved_parameter(main_server):
    tensor = {"name": "IN", "datatype": "FP32", "shape": [1, 1], "data": [0]}
    answer = infer_json(main_server, "identity_fp32", [tensor], parameters={"triton_x": 1})
    assert answer.status == 400
    assert answer.error() == f"{RESERVED} and should not be specified."


def test_grpc_reserved_parameter(main_server):
    request = service_pb2.ModelInferRequest(model_name="identity_fp32")
    request.parameters["triton_x"].int64_param = 1
    with grpc_runtime.insecure_channel(main_server.grpc) as channel:
        with pytest.raises(grpc_runtime.RpcError) as caught:
            service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=30)
    assert caught.value.code() == grpc_runtime.StatusCode.INVALID_ARGUMENT
    assert caught.value.details().startswith(RESERVED)


def test_wrong_datatype(protocol):
    with pytest.raises(InferenceServerException) as caught:
        protocol.infer("identity_fp32", {"IN": np.zeros((1, 1), np.int32)})
    assert "inference input 'IN' data-type is 'INT32', but model 'identity_fp32' expects 'FP32'" in caught.value.message()
    assert status_of(caught.value, protocol) == ("400" if protocol.name == "http" else "INVALID_ARGUMENT")


def test_unknown_input(protocol):
    with pytest.raises(InferenceServerException, match="unexpected inference input 'WRONG' for model 'identity_fp32'"):
        protocol.infer("identity_fp32", {"WRONG": np.zeros((1, 1), np.float32)})


def test_missing_input(protocol):
    with pytest.raises(InferenceServerException) as caught:
        protocol.infer("identity_fp32", {}, request_id="r7")
    if "expected 1 inputs but got 0 inputs" not in caught.value.message():
        raise caught.value
    assert caught.value.message().startswith("[request id: r7] ")
