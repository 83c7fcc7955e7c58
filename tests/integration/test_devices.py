"""Kinds of instances, GPU metrics and the list of devices, on GPUs of a stand-in with the ABI of NVML and CUDA."""

import time

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from nereid_testing.gpu import UUID, build_stand_ins, environment, missing_compiler
from nereid_testing.protocols import PROTOCOLS
from nereid_testing.raw_http import call
from nereid_testing.repository import Repository
from nereid_testing.server import ServerProcess

pytestmark = pytest.mark.ours
FLOATS = np.arange(4, dtype=np.float32)
GROUPS = {
    "auto": "",
    "strict": "instance_group { kind: KIND_GPU gpus: 1 count: 2 }",
    "on_cpu": "instance_group { kind: KIND_CPU }",
}
IDENTITY = """
backend: "identity"
input [ {{ name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] }} ]
output [ {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] }} ]
{group}
"""
PLACED = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.place = args["model_instance_kind"] + args["model_instance_device_id"]

    def execute(self, requests):
        array = np.array([self.place.encode()], dtype=object)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", array)]) for _ in requests]
"""
PYTHON = """
backend: "python"
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_STRING dims: [ 1 ] } ]
instance_group { kind: KIND_GPU gpus: 1 }
"""


def write_models(root, groups):
    for name, group in groups.items():
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(IDENTITY.format(group=group))
    return root


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    if missing_compiler():
        pytest.skip(missing_compiler())
    return build_stand_ins(tmp_path_factory.mktemp("gpu"))


@pytest.fixture(scope="module")
def server(libraries, tmp_path_factory):
    root = write_models(tmp_path_factory.mktemp("repository"), GROUPS)
    (root / "placed" / "1").mkdir(parents=True)
    (root / "placed" / "config.pbtxt").write_text(PYTHON)
    (root / "placed" / "1" / "model.py").write_text(PLACED)
    with ServerProcess(root, "--metrics-interval-ms=100", prefix=environment(libraries)) as started:
        yield started
        assert started.alive(), started.log()[-4000:]


def metrics_of(server):
    text = call(server, "GET", "/metrics", port=server.metrics_port).body.decode()
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def group_of(server, model):
    config = call(server, "GET", f"/v2/models/{model}/config").json()
    return config["instance_group"][0], config["parameters"]


@pytest.mark.parametrize("name", ["http", "grpc"])
def test_models_on_gpus_answer(server, name):
    protocol = PROTOCOLS[name](server)
    for model in GROUPS:
        answer = protocol.infer(model, {"INPUT0": FLOATS}).as_numpy("OUTPUT0")
        np.testing.assert_array_equal(answer, FLOATS)
    assert protocol.infer("placed", {"INPUT0": FLOATS}).as_numpy("OUTPUT0")[0] == b"GPU1"
    protocol.close()
    inflight = {k: v for k, v in metrics_of(server).items() if "inflight_request_count" in k}
    assert inflight and set(inflight.values()) == {0}


def test_config_tells_kind_and_devices(server):
    group, parameters = group_of(server, "auto")
    assert (group["kind"], group["count"], group["gpus"]) == ("KIND_GPU", 1, [0, 1])
    assert parameters["nereid.device.auto"]["string_value"].startswith("cuda: KIND_AUTO")
    group, parameters = group_of(server, "strict")
    assert (group["kind"], group["count"], group["gpus"], parameters) == ("KIND_GPU", 2, [1], {})
    group, parameters = group_of(server, "on_cpu")
    assert (group["kind"], group["gpus"], parameters) == ("KIND_CPU", [], {})
    assert "instance group auto of model auto (KIND_AUTO) runs on CUDA 0, 1" in server.log()


def test_metrics_of_gpus(server):
    first = metrics_of(server)
    time.sleep(0.25)
    second = metrics_of(server)
    for index in (0, 1):
        label = '{gpu_uuid="%s"}' % (UUID % index)
        assert first[f"nv_gpu_utilization{label}"] == pytest.approx(0.40 + index / 100)
        assert first[f"nv_gpu_memory_total_bytes{label}"] == 8 * 2**30
        assert first[f"nv_gpu_memory_used_bytes{label}"] == pytest.approx(2 * 2**30, abs=100)
        assert first[f"nv_gpu_power_usage{label}"] == 100 + index
        assert first[f"nv_gpu_power_limit{label}"] == 300
        energy = [values[f"nv_energy_consumption{label}"] for values in (first, second)]
        assert 0 <= energy[0] < energy[1] < 1000
    assert first["nv_pinned_memory_pool_total_bytes"] == 256 * 2**20
    assert first["nv_pinned_memory_pool_used_bytes"] == 0


def test_metrics_of_models_on_gpus_name_the_gpu(server):
    """Each GPU has a child of its own; what ran on none of them, and on the CPU, has none."""
    protocol = PROTOCOLS["http"](server)
    before = metrics_of(server)
    for model in ("strict", "on_cpu"):
        for _ in range(3):
            protocol.infer(model, {"INPUT0": FLOATS})
    protocol.close()
    after = metrics_of(server)
    grown = {name: value - before[name] for name, value in after.items() if value != before[name]}
    strict = '{gpu_uuid="%s",model="strict",version="1"}' % (UUID % 1)
    assert grown[f"nv_inference_request_success{strict}"] == 3
    assert grown[f"nv_inference_count{strict}"] == 3
    assert grown[f"nv_inference_exec_count{strict}"] == 3
    assert f"nv_inference_request_duration_us{strict}" in grown
    assert grown['nv_inference_request_success{model="on_cpu",version="1"}'] == 3
    assert after['nv_inference_request_success{model="strict",version="1"}'] == 0
    auto = [name for name in after if name.startswith("nv_inference_count{") and 'model="auto"' in name]
    assert sorted("gpu_uuid" in name for name in auto) == [False, True, True]
    assert not [name for name in after if "gpu_uuid" in name and 'model="on_cpu"' in name]
    assert not [name for name in after if "pending_request_count" in name and "gpu_uuid" in name]


def test_devices(server):
    answer = call(server, "GET", "/v2/devices")
    assert answer.status == 200
    devices = answer.json()
    assert [gpu["uuid"] for gpu in devices["gpus"]] == [UUID % 0, UUID % 1]
    assert [gpu["compute_capability"] for gpu in devices["gpus"]] == ["9.0", "8.6"]
    assert devices["driver"] == {"version": "555.42.01", "cuda_version": "12.5"}
    identity = next(each for each in devices["backends"] if each["name"] == "identity")
    assert identity["kinds"][0] == {"kind": "KIND_GPU", "device": "cuda", "device_ids": [0, 1], "usable": True}
    missing = [library for library in devices["libraries"] if not library["found"]]
    assert all(library["reason"] and library["packages"] for library in missing)
    assert call(server, "POST", "/v2/devices").status == 405
    assert call(server, "GET", "/v2/devices/0").status == 404


def reason_of(server, model):
    index = call(server, "POST", "/v2/repository/index", "{}").json()
    return next(entry for entry in index if entry["name"] == model).get("reason", "")


def test_gpus_below_the_minimum_are_not_used(libraries, tmp_path):
    root = write_models(tmp_path / "models", {"auto": "", "strict": GROUPS["strict"]})
    with ServerProcess(
        root,
        "--exit-on-error=false",
        "--strict-readiness=false",
        "--min-supported-compute-capability=8.9",
        prefix=environment(libraries),
    ) as server:
        assert group_of(server, "auto")[0]["gpus"] == [0]
        assert (
            "specifies invalid or unsupported gpu id 1. GPUs with at least the minimum required CUDA compute "
            "compatibility of 8.900000 are: 0" in reason_of(server, "strict")
        )


def test_strict_kind_fails_without_gpu_and_falls_back_where_allowed(libraries, tmp_path):
    root = write_models(tmp_path / "models", {"strict": "instance_group { kind: KIND_GPU }"})
    flags = ("--exit-on-error=false", "--strict-readiness=false")
    none = environment(libraries, NVML_STAND_IN_DEVICES="0")
    with ServerProcess(root, *flags, prefix=none) as server:
        reason = reason_of(server, "strict")
        assert "has kind KIND_GPU but no GPUs are available" in reason
        assert "tried CUDA: the CUDA driver finds no GPU" in reason
        assert "--backend-config=identity,fallback=true" in reason
        assert not [name for name in metrics_of(server) if name.startswith("nv_gpu")]
    with ServerProcess(root, *flags, "--backend-config=identity,fallback=true", prefix=none) as server:
        group, parameters = group_of(server, "strict")
        assert (group["kind"], group["gpus"]) == ("KIND_CPU", [])
        assert parameters["nereid.device.strict_0"]["string_value"].startswith("cpu: KIND_GPU fell back")
        assert metrics_of(server)['nereid_instance_group_fallback_count{model="strict",version="1"}'] == 1
        assert "falls back to CPU: CUDA: the CUDA driver finds no GPU" in server.log()
        protocol = PROTOCOLS["grpc"](server)
        np.testing.assert_array_equal(protocol.infer("strict", {"INPUT0": FLOATS}).as_numpy("OUTPUT0"), FLOATS)
        protocol.close()


def test_gpu_limit_refuses_further_models(libraries, tmp_path):
    root = write_models(tmp_path / "models", {"one": GROUPS["strict"], "two": "instance_group { kind: KIND_GPU gpus: 0 }"})
    flags = ("--exit-on-error=false", "--strict-readiness=false", "--model-load-gpu-limit=1:0.5")
    full = environment(libraries, NVML_STAND_IN_USED_PERCENT="60")
    with ServerProcess(root, *flags, "--allow-gpu-metrics=false", prefix=full) as server:
        reason = reason_of(server, "one")
        assert "can not create model 'one': memory limit set for KIND_GPU 1 has exceeded" in reason
        assert reason_of(server, "two") == ""
        assert not [name for name in metrics_of(server) if name.startswith("nv_gpu")]


def test_failing_readings_disappear_and_nothing_else(libraries, tmp_path):
    root = write_models(tmp_path / "models", {"auto": ""})
    failures = tmp_path / "failures"
    failures.write_text("")
    prefix = environment(libraries, NVML_STAND_IN_FAIL_FILE=failures)
    with ServerProcess(root, "--metrics-interval-ms=1", prefix=prefix) as server:
        power = 'nv_gpu_power_usage{gpu_uuid="%s"}' % (UUID % 0)
        assert power in metrics_of(server)
        failures.write_text("PowerUsage=15,MemoryInfo=15")
        for _ in range(4):
            time.sleep(0.01)
            metrics = metrics_of(server)
        assert power not in metrics
        failures.write_text("")
        time.sleep(0.01)
        metrics = metrics_of(server)
        assert power not in metrics
        assert metrics['nv_gpu_utilization{gpu_uuid="%s"}' % (UUID % 0)] == pytest.approx(0.4)
        protocol = PROTOCOLS["http"](server)
        with pytest.raises(InferenceServerException):
            protocol.infer("nobody", {"INPUT0": FLOATS})
        np.testing.assert_array_equal(protocol.infer("auto", {"INPUT0": FLOATS}).as_numpy("OUTPUT0"), FLOATS)
        protocol.close()
