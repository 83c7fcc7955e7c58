"""ONNX models on the WebGPU provider of the native library, over a Vulkan driver that runs on the CPU."""

import json
import subprocess

import numpy as np
import pytest
from onnx import helper

from nereid_testing.gpu import environment
from nereid_testing.onnx_models import add_sub, graph_model, identity, value
from nereid_testing.protocols import PROTOCOLS
from nereid_testing.raw_http import call
from nereid_testing.repository import Repository
from nereid_testing.server import PROJECT, ServerProcess, deno

pytestmark = pytest.mark.ours
GPU = "instance_group { kind: KIND_GPU }\n"
STRICT = 'parameters { key: "session.disable_cpu_ep_fallback" value { string_value: "1" } }\n'
SOFTWARE = "--backend-config=onnxruntime,webgpu-software=true"
LEFT, RIGHT = np.float32([[1, 2, 3, 4]]), np.float32([[10, 20, 30, 40]])


def with_hardmax():
    """An operator that the provider has, and one that it lacks."""
    nodes = [helper.make_node("Abs", ["IN"], ["A"], "first"), helper.make_node("Hardmax", ["A"], ["OUT"], "second")]
    return graph_model(nodes, [value("IN", "FP32", [2, 2])], [value("OUT", "FP32", [2, 2])])


def unknown_operator():
    model = identity("FP32", [2])
    model.graph.node[0].op_type = "NoSuchOperator"
    return model


@pytest.fixture(scope="module")
def vulkan():
    """Words in front of a server's command, so that it finds the driver."""
    program = PROJECT / "tests" / "native" / "webgpu" / "software_vulkan.ts"
    found = subprocess.run([deno(), "run", "-A", program], capture_output=True, text=True, timeout=200)
    if found.returncode:
        pytest.skip(found.stderr)
    variables = json.loads(found.stdout)
    return environment(variables.pop("LD_LIBRARY_PATH"), **variables)


def write_models(root):
    repository = Repository(root)
    floats = add_sub("FP32", [1, 4])
    repository.onnx("auto", floats)
    repository.onnx("on_gpu", floats, GPU)
    repository.onnx("on_cpu", floats, "instance_group { kind: KIND_CPU }\n")
    repository.onnx("both", floats, GPU + "instance_group { kind: KIND_CPU }\n")
    repository.onnx("mixed", with_hardmax(), GPU)
    repository.onnx("strict", with_hardmax(), GPU + STRICT)
    repository.onnx("auto_strict", with_hardmax(), STRICT)
    repository.onnx("unknown", unknown_operator())
    return root


@pytest.fixture(scope="module")
def server(vulkan, tmp_path_factory):
    root = write_models(tmp_path_factory.mktemp("repository"))
    flags = ("--exit-on-error=false", "--strict-readiness=false", SOFTWARE)
    with ServerProcess(root, *flags, prefix=vulkan) as started:
        yield started
        assert started.alive(), started.log()[-4000:]


def reasons_of(server):
    rows = call(server, "POST", "/v2/repository/index").json()
    return {row["name"]: row.get("reason", "") for row in rows}


def device_of(server, model):
    config = call(server, "GET", f"/v2/models/{model}/config").json()
    group = config["instance_group"][0]
    told = config["parameters"].get(f"nereid.device.{group['name']}", {}).get("string_value", "")
    return group["kind"], told


@pytest.mark.parametrize("name", ["http", "grpc"])
@pytest.mark.parametrize("model", ["auto", "on_gpu", "on_cpu", "both"])
def test_models_answer(server, name, model):
    protocol = PROTOCOLS[name](server)
    for _ in range(4):
        result = protocol.infer(model, {"INPUT0": LEFT, "INPUT1": RIGHT})
        np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), LEFT + RIGHT)
        np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), LEFT - RIGHT)
    protocol.close()


def test_config_and_log_tell_the_device(server):
    kind, told = device_of(server, "auto")
    assert kind == "KIND_GPU" and told.startswith("webgpu: KIND_AUTO; CUDA: no NVIDIA driver"), told
    kind, told = device_of(server, "on_gpu")
    assert kind == "KIND_GPU" and told.startswith("webgpu: CUDA: no NVIDIA driver"), told
    assert device_of(server, "on_cpu") == ("KIND_CPU", "")
    assert "instance group auto of model auto (KIND_AUTO) runs on WebGPU 0" in server.log()


@pytest.mark.parametrize("name", ["http", "grpc"])
def test_what_the_device_lacks_runs_on_the_cpu(server, name):
    protocol = PROTOCOLS[name](server)
    answer = protocol.infer("mixed", {"IN": np.float32([[-1, -2], [-3, -4]])}).as_numpy("OUT")
    np.testing.assert_array_equal(answer, [[0, 1], [0, 1]])
    protocol.close()
    assert "model 'mixed' on WebGPU: 1 nodes run on the CPU" in server.log()
    assert "Hardmax" in server.log()


def test_strict_model_names_operator_and_way_out(server):
    reason = reasons_of(server)["strict"]
    assert "cannot run on WebGPU alone, which lacks 'Hardmax' (node 'second')" in reason, reason
    assert "session.disable_cpu_ep_fallback" in reason and "KIND_AUTO" in reason


def test_auto_takes_the_cpu_for_what_the_device_lacks(server):
    assert reasons_of(server)["auto_strict"] == ""
    kind, told = device_of(server, "auto_strict")
    assert kind == "KIND_CPU" and told.startswith("cpu: KIND_AUTO; CUDA: no NVIDIA driver"), told
    assert "WebGPU: loading failed" in told and "Hardmax" in told


def test_operator_that_nobody_has_is_named_with_a_way_out(server):
    reason = reasons_of(server)["unknown"]
    assert "NoSuchOperator" in reason and "library=FILE" in reason, reason


def test_without_native_library_devices_lack_operators_too(vulkan, tmp_path):
    """onnxruntime-web runs what navigator.gpu lacks on the CPU, or refuses the model that forbids it."""
    repository = Repository(tmp_path)
    repository.onnx("mixed", with_hardmax(), GPU)
    repository.onnx("strict", with_hardmax(), GPU + STRICT)
    repository.onnx("auto_strict", with_hardmax(), STRICT)
    flags = ("--exit-on-error=false", "--strict-readiness=false", "--backend-config=onnxruntime,runtime=web")
    with ServerProcess(tmp_path, *flags, prefix=vulkan) as server:
        reasons = reasons_of(server)
        assert "the model cannot run on WebGPU alone" in reasons["strict"], reasons
        assert "KIND_CPU or KIND_AUTO" in reasons["strict"]
        assert device_of(server, "mixed")[0] == "KIND_GPU" and device_of(server, "auto_strict")[0] == "KIND_CPU"
        protocol = PROTOCOLS["grpc"](server)
        for model in ("mixed", "auto_strict"):
            answer = protocol.infer(model, {"IN": np.float32([[-1, -2], [-3, -4]])}).as_numpy("OUT")
            np.testing.assert_array_equal(answer, [[0, 1], [0, 1]])
        protocol.close()


def test_software_adapter_is_not_taken_unasked(vulkan, tmp_path):
    Repository(tmp_path).onnx("auto", add_sub("FP32", [1, 4]))
    with ServerProcess(tmp_path, prefix=vulkan) as server:
        assert device_of(server, "auto")[0] == "KIND_CPU"
        assert "runs on the CPU" in server.log() and "webgpu-software=true" in server.log()
