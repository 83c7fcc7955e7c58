"""Plans of TensorRT through tritonclient, on the stand-ins for CUDA and TensorRT 10."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from nereid_testing.protocols import NUMPY_TYPES, PROTOCOLS
from nereid_testing.raw_http import call
from nereid_testing.repository import Repository
from nereid_testing.server import ServerProcess
from nereid_testing.tensorrt import build_stand_ins, identity_plan, plan, write_plan

pytestmark = pytest.mark.ours
FLOATS = [1.5, -2.0, 0.0, 3.25]

BAD_PLANS = {
    "cut_off": (identity_plan()[:70], "the file is cut off or damaged"),
    "other_version": (identity_plan(version=8), "build the plan again with TensorRT 10"),
    "other_device": (identity_plan(capability="12.0"), "build the plan again on this kind of GPU"),
    "garbage": (b"\x00\x01garbage", "the file of 9 bytes is no TensorRT plan"),
    "empty": (b"", "the file is empty"),
}


def write_repository(root):
    repository = Repository(root)
    write_plan(repository, "auto", identity_plan())
    for datatype in ("HALF", "INT8", "BF16", "FP8"):
        write_plan(repository, datatype.lower(), identity_plan(datatype))
    profile = [((1, 2), (4, 2), (8, 2))]
    shapes = plan(
        [("x", "FLOAT", (-1, 2), profile), ("sizes", "INT64", (3,), [], "shape")],
        [("filled", "FLOAT", (-1, -1, -1)), ("shape", "INT64", (2,), "shape")],
        ["fill sizes filled", "shapeof x shape"],
    )
    write_plan(repository, "shape_tensors", shapes)
    nonzero = plan([("x", "FLOAT", (3, 4), [])], [("y", "INT64", (2, -1))], ["nonzero x y"])
    write_plan(repository, "nonzero", nonzero)
    write_plan(
        repository,
        "tuned",
        identity_plan(),
        'instance_group [{ kind: KIND_GPU count: 2 gpus: [0, 1] profile: ["0"] }] '
        "optimization { priority: PRIORITY_MAX eager_batching: true "
        "cuda { graphs: true busy_wait_events: true output_copy_stream: true } }",
    )
    write_plan(
        repository,
        "dla",
        identity_plan(),
        "instance_group [{ kind: KIND_GPU gpus: 0 secondary_devices [{ kind: KIND_NVDLA device_id: 1 }] }]",
    )
    rows = [((1, 1), (4, 1), (8, 1))]
    total = plan(
        [("INPUT", "INT32", (-1, 1), rows), ("STATE", "INT32", (-1, 1), rows)],
        [("OUTPUT", "INT32", (-1, 1)), ("NEW_STATE", "INT32", (-1, 1))],
        ["add INPUT STATE OUTPUT", "add INPUT STATE NEW_STATE"],
    )
    write_plan(
        repository,
        "running_total",
        total,
        'sequence_batching { state [{ input_name: "STATE" output_name: "NEW_STATE" data_type: TYPE_INT32 dims: [1] '
        'initial_state { data_type: TYPE_INT32 dims: [1] zero_data: true name: "zero" } }] }',
    )
    for name, (data, _) in BAD_PLANS.items():
        write_plan(repository, name, data)
    write_plan(repository, "on_cpu", identity_plan(), "instance_group [{ kind: KIND_CPU }]")
    return root


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    base = tmp_path_factory.mktemp("tensorrt")
    folder, reason = build_stand_ins(base / "lib")
    if folder is None:
        pytest.skip(reason)
    report = base / "report"
    root = write_repository(base / "repository")
    prefix = ("env", f"LD_LIBRARY_PATH={folder}", f"STAND_IN_REPORT={report}")
    flags = ("--exit-on-error=false", "--strict-readiness=false", "--log-verbose=1")
    with ServerProcess(root, *flags, prefix=prefix) as process:
        yield process
        assert process.alive(), process.log()[-4000:]
    lines = report.read_text().splitlines()
    assert any(line.startswith("tensorrt") for line in lines), lines
    # Of the server and of the self-checks before: nothing is left, and no call was wrong.
    for line in lines:
        values = [field.split("=") for field in line.split()[1:]]
        assert all(value == "0" for key, value in values if key not in ("pid", "version")), lines


@pytest.fixture(params=["http", "grpc"])
def protocol(request, server):
    each = PROTOCOLS[request.param](server)
    yield each
    each.close()


def test_identity_is_completed_from_the_plan(protocol, server):
    config = json.loads(call(server, "GET", "/v2/models/auto/config").body)
    assert config["backend"] == "tensorrt" and config["platform"] == "tensorrt_plan"
    assert config["max_batch_size"] == 8
    assert config["input"][0]["dims"] == [4] and config["input"][0]["data_type"] == "TYPE_FP32"
    assert config["instance_group"][0]["kind"] == "KIND_GPU"
    assert config["instance_group"][0]["gpus"] == [0, 1]
    array = np.array([FLOATS, FLOATS[::-1]], dtype=np.float32)
    result = protocol.client.infer("auto", [protocol.input("INPUT0", array)])
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), array)


@pytest.mark.parametrize("model", ["auto", "tuned"])
@pytest.mark.parametrize("name", ["http", "grpc"])
def test_many_requests_at_once(server, name, model):
    def infer(first):
        each = PROTOCOLS[name](server)
        for number in range(first, first + 20):
            array = np.full((1 + number % 8, 4), number, dtype=np.float32)
            output = each.client.infer(model, [each.input("INPUT0", array)]).as_numpy("OUTPUT0")
            np.testing.assert_array_equal(output, array)
        each.close()
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(infer, range(0, 160, 20)))


@pytest.mark.parametrize("model,datatype", [("half", "FP16"), ("int8", "INT8"), ("bf16", "BF16"), ("fp8", "UINT8")])
def test_short_types_pass_as_they_are(protocol, server, model, datatype):
    config = json.loads(call(server, "GET", f"/v2/models/{model}/config").body)
    assert config["input"][0]["data_type"] == f"TYPE_{datatype}"
    array = np.array([[1, 2, 3, 4]]).astype(NUMPY_TYPES[datatype])
    tensor = protocol.input("INPUT0", array, datatype)
    result = protocol.client.infer(model, [tensor])
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0").astype(np.float32), array.astype(np.float32))


def test_shape_tensors_carry_the_batch_size(protocol):
    inputs = [
        protocol.input("x", np.ones((2, 2), dtype=np.float32)),
        protocol.input("sizes", np.array([2, 3, 4], dtype=np.int64)),
    ]
    result = protocol.client.infer("shape_tensors", inputs)
    np.testing.assert_array_equal(result.as_numpy("filled"), np.ones((2, 3, 4), dtype=np.float32))
    np.testing.assert_array_equal(result.as_numpy("shape"), [2, 2])


def test_the_data_decides_about_the_shape(protocol):
    array = np.zeros((3, 4), dtype=np.float32)
    array[0, 1] = array[2, 3] = 7
    result = protocol.client.infer("nonzero", [protocol.input("x", array)])
    np.testing.assert_array_equal(result.as_numpy("y"), np.array(np.nonzero(array)))


def test_sequences_keep_their_state(protocol):
    totals = []
    for number in range(1, 6):
        inputs = [protocol.input("INPUT", np.array([[number]], dtype=np.int32))]
        flags = {"sequence_id": 77, "sequence_start": number == 1, "sequence_end": number == 5}
        totals.append(int(protocol.client.infer("running_total", inputs, **flags).as_numpy("OUTPUT")[0, 0]))
    assert totals == [1, 3, 6, 10, 15]


def test_a_batch_beyond_the_profile_is_refused(protocol):
    with pytest.raises(InferenceServerException, match="batch-size must be <= 8"):
        protocol.client.infer("auto", [protocol.input("INPUT0", np.zeros((9, 4), dtype=np.float32))])


def test_a_secondary_device_is_the_core_of_an_accelerator(server):
    group = call(server, "GET", "/v2/models/dla/config").json()["instance_group"][0]
    assert group["secondary_devices"] == [{"kind": "KIND_NVDLA", "device_id": "1"}]
    # For that model only: the runtime is that of all models on the GPU.
    assert server.log().count("DLA core 1") == 1
    assert "which backend 'tensorrt' does not use" not in server.log()


def test_bad_plans_are_refused_with_the_way_out(server):
    index = {entry["name"]: entry for entry in json.loads(call(server, "POST", "/v2/repository/index").body)}
    for name, (_, words) in BAD_PLANS.items():
        assert index[name]["state"] == "UNAVAILABLE"
        assert words in index[name]["reason"], index[name]
        assert f"{name}/1/model.plan" in index[name]["reason"]
    assert "KIND_GPU" in index["on_cpu"]["reason"]
    assert index["auto"]["state"] == "READY"
