"""Health, metadata, configuration and index through the real clients."""

import json
import re

import pytest
from grpc import StatusCode
from tritonclient.grpc import model_config_pb2
from tritonclient.utils import InferenceServerException

from nereid_testing.protocols import status_of
from nereid_testing.raw_http import call
from nereid_testing.server import is_reference

EXTENSIONS = ["classification", "model_repository", "schedule_policy", "model_configuration", "binary_tensor_data",
              "parameters", "statistics"]  # fmt: skip


def as_dict(reply):
    """A metadata reply of either client as JSON-like data."""
    if isinstance(reply, (dict, list)):
        return reply
    from google.protobuf.json_format import MessageToDict

    return MessageToDict(reply, preserving_proto_field_name=True)


def test_server_is_live_and_ready(protocol):
    assert protocol.client.is_server_live()
    assert protocol.client.is_server_ready()
    assert protocol.client.is_model_ready("echo_all")
    assert protocol.client.is_model_ready("echo_all", "1")


@pytest.mark.parametrize(("model", "version"), [("nobody", ""), ("echo_all", "99")])
def test_unknown_model_is_not_ready(protocol, model, version):
    assert protocol.client.is_model_ready(model, version) is False


def test_server_metadata_names_the_extensions(protocol):
    metadata = as_dict(protocol.client.get_server_metadata())
    assert metadata["name"] == "triton"
    assert metadata["version"]
    assert set(EXTENSIONS) <= set(metadata["extensions"])


def test_both_protocols_give_the_same_server_metadata(http, grpc):
    assert as_dict(http.client.get_server_metadata()) == as_dict(grpc.client.get_server_metadata())


def test_model_metadata_has_the_batch_dimension(protocol):
    metadata = as_dict(protocol.client.get_model_metadata("echo_all"))
    assert (metadata["name"], metadata["versions"]) == ("echo_all", ["1"])
    first = metadata["inputs"][0]
    assert (first["name"], first["datatype"]) == ("IN_BOOL", "BOOL")
    assert [int(size) for size in first["shape"]] == [-1, -1]
    assert [each["name"].removeprefix("OUT_") for each in metadata["outputs"]] == [
        each["name"].removeprefix("IN_") for each in metadata["inputs"]
    ]


@pytest.mark.ours
def test_completed_model_metadata(protocol):
    metadata = as_dict(protocol.client.get_model_metadata("identity_fp16"))
    assert metadata["platform"] == "onnxruntime_onnx"
    assert metadata["inputs"][0]["name"] == "IN"
    assert metadata["inputs"][0]["datatype"] == "FP16"
    assert [int(size) for size in metadata["outputs"][0]["shape"]] == [-1, -1]


@pytest.mark.ours
def test_completed_configuration(http, grpc):
    config = http.client.get_model_config("identity_fp32")
    assert config["max_batch_size"] == 4
    assert (config["backend"], config["platform"]) == ("onnxruntime", "onnxruntime_onnx")
    assert config["default_model_filename"] == "model.onnx"
    assert config["dynamic_batching"]["preferred_batch_size"] == [4]
    assert config["input"][0]["dims"] == [-1]
    message = grpc.client.get_model_config("identity_fp32").config
    assert message.max_batch_size == 4
    assert list(message.input[0].dims) == [-1]
    assert message.input[0].data_type == model_config_pb2.TYPE_FP32
    assert message.instance_group[0].name == config["instance_group"][0]["name"]


def test_config_json_prints_every_field(http):
    config = http.client.get_model_config("slow_200")
    assert list(config)[:4] == ["name", "platform", "backend", "version_policy"] or list(config)[:4] == [
        "name", "platform", "backend", "runtime"]  # fmt: skip
    assert config["version_policy"] == {"latest": {"num_versions": 1}}
    assert config["parameters"] == {"execute_delay_ms": {"string_value": "200"}}
    assert config["cc_model_filenames"] == {} and config["model_warmup"] == [] and config["batch_input"] == []
    assert config["input"][0]["allow_ragged_batch"] is False
    assert config["optimization"]["input_pinned_memory"] == {"enable": True}
    assert config["instance_group"][0]["kind"] == "KIND_CPU"


@pytest.mark.ours
def test_all_versions_are_served(protocol):
    metadata = as_dict(protocol.client.get_model_metadata("versions"))
    assert metadata["versions"] == ["1", "2", "3", "10"]
    assert as_dict(protocol.client.get_model_metadata("versions", "3"))["versions"] == ["3"]


def test_index_lists_every_model(protocol, http, main_server):
    index = protocol.client.get_model_repository_index()
    rows = index if isinstance(index, list) else as_dict(index)["models"]
    names = {row["name"] for row in rows}
    assert {"echo_all", "slow_200", "short_queue"} <= names
    assert all(row["state"] == "READY" for row in rows), rows


UNKNOWN = "Request for unknown model: 'nobody' is not found"


@pytest.mark.parametrize("method", ["get_model_metadata", "get_model_config"])
def test_unknown_model(protocol, method):
    with pytest.raises(InferenceServerException) as caught:
        getattr(protocol.client, method)("nobody")
    assert caught.value.message() == UNKNOWN
    assert status_of(caught.value, protocol) == ("404" if protocol.name == "http" else "NOT_FOUND")


@pytest.mark.parametrize("method", ["get_model_metadata", "get_model_config"])
def test_unknown_version(protocol, method):
    with pytest.raises(InferenceServerException) as caught:
        getattr(protocol.client, method)("echo_all", "77")
    assert caught.value.message() == "Request for unknown model: 'echo_all' version 77 is not found"


def test_bad_version_text(grpc):
    with pytest.raises(InferenceServerException, match="version should be an integral value > 0") as caught:
        grpc.client.get_model_metadata("echo_all", "latest")
    assert status_of(caught.value, grpc) == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("method", "path", "status", "error"),
    [
        ("GET", "/v3", 404, "Not Found"),
        ("GET", "/v2/", 404, "Not Found"),
        ("POST", "/v2", 405, "Method Not Allowed"),
        ("POST", "/v2/health/live", 405, "Method Not Allowed"),
        ("GET", "/v2/models/echo_all/infer", 405, "Method Not Allowed"),
        ("GET", "/v2/models/echo_all/versions/1x/infer", 404, "Not Found"),
        ("GET", "/v2/models/nobody", 404, UNKNOWN),
        ("GET", "/v2/models/nobody/ready", 404, UNKNOWN),
        ("GET", "/v2/models/nobody/stats", 400, "requested model 'nobody' is not available"),
    ],
)
def test_http_routes(main_server, method, path, status, error):
    answer = call(main_server, method, path)
    if is_reference() and path.endswith("/nobody/ready"):
        pytest.skip("2.51 says 400 here")
    assert (answer.status, answer.json()) == (status, {"error": error})


def test_metrics_page(main_server):
    answer = call(main_server, "GET", "/metrics", port=main_server.metrics_port)
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain")
    assert re.search(r'^nv_inference_request_success\{.*model="echo_all".*\} \d+', answer.body.decode(), re.M)


def test_grpc_health_service(main_server):
    import grpc as grpc_runtime

    with grpc_runtime.insecure_channel(main_server.grpc) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert check(b"", timeout=10) == b"\x08\x01"
        unknown = channel.unary_unary("/inference.GRPCInferenceService/Nothing")
        with pytest.raises(grpc_runtime.RpcError) as caught:
            unknown(b"", timeout=10)
        assert caught.value.code() == StatusCode.UNIMPLEMENTED


def test_log_names_the_listeners(main_server):
    if is_reference():
        assert "Started GRPCInferenceService at" in main_server.log()
    for port in (main_server.http_port, main_server.grpc_port, main_server.metrics_port):
        assert str(port) in main_server.log()


def test_curl_style_index_request(main_server):
    answer = call(main_server, "POST", "/v2/repository/index", json.dumps({"ready": True}))
    assert answer.status == 200
    assert {"name": "echo_all", "version": "1", "state": "READY"} in answer.json()
