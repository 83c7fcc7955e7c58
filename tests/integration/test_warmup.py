"""Warmup: every sample kind reaches the model before it is ready, and a faulty sample tells what is wrong."""

import threading
import time

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from nereid_testing import onnx_models as models
from nereid_testing.main_repository import one_instance
from nereid_testing.observe import batch_sizes, metric, statistics, wait_until
from nereid_testing.protocols import PROTOCOLS, text_array
from nereid_testing.raw_http import call
from nereid_testing.repository import Repository, config_type, tensor_section
from nereid_testing.server import is_reference

pytestmark = pytest.mark.skipif(is_reference(), reason="needs ONNX")

EXPLICIT = "--model-control-mode=explicit"


def warm_input(name, datatype, dims, source):
    sizes = ", ".join(map(str, dims))
    return f'inputs {{ key: "{name}" value {{ data_type: {config_type(datatype)} dims: [ {sizes} ] {source} }} }}'


def warm_sample(*inputs, name="first", batch_size=1, count=1):
    return f'model_warmup {{ name: "{name}" batch_size: {batch_size} count: {count} {" ".join(inputs)} }}\n'


ZEROS = warm_input("IN", "FP32", [4], "zero_data: true")
SECTIONS = tensor_section("input", [("IN", "FP32", [4])]) + tensor_section("output", [("OUT", "FP32", [4])])


def write_identity(repository, name, warmup, instances=1, sections=SECTIONS, model=None, max_batch_size=8):
    model = model or models.identity("FP32", ["batch", 4])
    repository.onnx(name, model, f"max_batch_size: {max_batch_size}\n{sections}{one_instance(instances)}{warmup}")
    (repository.directory(name) / "warmup").mkdir(exist_ok=True)


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path / "repository")


@pytest.fixture(params=["http", "grpc"])
def connect(request):
    """Makes clients of one protocol and closes them at the end."""
    clients = []

    def begin(server):
        clients.append(PROTOCOLS[request.param](server))
        return clients[-1]

    yield begin
    for each in clients:
        each.close()


def counts(protocol, model):
    """Executions and inferences, as the client's statistics tell them."""
    reply = protocol.client.get_inference_statistics(model)
    stats = reply["model_stats"][0] if protocol.name == "http" else reply.model_stats[0]
    read = (lambda key: int(stats[key])) if protocol.name == "http" else (lambda key: getattr(stats, key))
    return read("execution_count"), read("inference_count")


def test_every_sample_kind(repository, start, connect):
    sections = tensor_section("input", [("A", "FP32", [3]), ("B", "INT32", [2]), ("S", "BYTES", [2])])
    sections += tensor_section("output", [("OUT_A", "FP32", [3]), ("OUT_B", "INT32", [2]), ("OUT_S", "BYTES", [2])])
    nodes = [models.helper.make_node("Identity", [name], [f"OUT_{name}"]) for name in "ABS"]
    shapes = {"A": ("FP32", ["batch", 3]), "B": ("INT32", ["batch", 2]), "S": ("BYTES", ["batch", 2])}
    model = models.graph_model(
        nodes, [models.value(n, *s) for n, s in shapes.items()], [models.value(f"OUT_{n}", *s) for n, s in shapes.items()]
    )
    warmup = warm_sample(
        warm_input("A", "FP32", [3], 'input_data_file: "a.bin"'),
        warm_input("B", "INT32", [2], "random_data: true"),
        warm_input("S", "BYTES", [2], 'input_data_file: "s.bin"'),
        name="mixed",
    ) + warm_sample(
        warm_input("A", "FP32", [3], "zero_data: true"),
        warm_input("B", "INT32", [2], "zero_data: true"),
        warm_input("S", "BYTES", [2], "random_data: true"),
        name="zeros", batch_size=3, count=2,
    )  # fmt: skip
    write_identity(repository, "kinds", warmup, sections=sections, model=model)
    folder = repository.directory("kinds") / "warmup"
    (folder / "a.bin").write_bytes(np.float32([1.5, 2.5, 3.5, 9]).tobytes())
    (folder / "s.bin").write_bytes(b"".join(len(t).to_bytes(4, "little") + t for t in (b"hello", b"")))
    server = start(repository.root)
    protocol = connect(server)
    assert counts(protocol, "kinds") == (3, 7)
    assert batch_sizes(server, "kinds") == {1: 1, 3: 2}
    assert metric(server, "nv_inference_exec_count", model="kinds") == 3
    assert metric(server, "nv_inference_count", model="kinds") == 7
    assert metric(server, "nereid_inference_inflight_request_count", model="kinds") == 0
    given = {"A": np.ones((1, 3), np.float32), "B": np.ones((1, 2), np.int32), "S": text_array(["x", ""], [1, 2])}
    assert protocol.infer("kinds", given).as_numpy("OUT_S").tolist() == [[b"x", b""]]
    assert counts(protocol, "kinds") == (4, 8)


def test_every_instance_is_warmed_up_and_empty_samples_are_skipped(repository, start, connect):
    write_identity(repository, "several", warm_sample(ZEROS) + warm_sample(ZEROS, name="none", batch_size=0), instances=3)
    write_identity(
        repository, "plain", warm_sample(ZEROS), max_batch_size=0,
        model=models.identity("FP32", [4]),
    )  # fmt: skip
    server = start(repository.root)
    assert counts(connect(server), "several") == (3, 3)
    assert counts(connect(server), "plain") == (1, 1)


def test_warmup_and_cache_do_not_meet(repository, start, connect):
    write_identity(repository, "cached", warm_sample(ZEROS) + "response_cache { enable: true }\n")
    server = start(repository.root, "--cache-config=local,size=100000")
    protocol = connect(server)
    protocol.infer("cached", {"IN": np.zeros((1, 4), np.float32)})
    stats = statistics(server, "cached")["inference_stats"]
    assert (stats["cache_hit"]["count"], stats["cache_miss"]["count"], stats["success"]["count"]) == (0, 1, 2)


def test_sequence_models_are_warmed_up_with_their_controls(repository, start, connect):
    numbers = tensor_section("input", [("IN", "FP32", [1])]) + tensor_section("output", [("OUT", "FP32", [1])])
    start_control = 'control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } }'
    number, flag = warm_input("IN", "FP32", [1], "zero_data: true"), warm_input("START", "INT32", [1], "zero_data: true")
    write_identity(
        repository, "controlled", f"sequence_batching {{ {start_control} }}\n" + warm_sample(number, flag, batch_size=2),
        sections=numbers, model=models.control_sum(),
    )  # fmt: skip
    state = 'state { input_name: "OLD" output_name: "NEW" data_type: TYPE_FP32 dims: 1 }'
    write_identity(
        repository, "stateful", f"sequence_batching {{ {state} }}\n" + warm_sample(warm_input("IN", "FP32", [1], "random_data: true")),
        sections=numbers, model=models.control_sum(state=True),
    )  # fmt: skip
    server = start(repository.root, "--log-verbose=1")
    protocol = connect(server)
    assert "is running warmup sample 'first' for iteration 1" in server.log()
    assert batch_sizes(server, "controlled") == {2: 1}
    assert counts(protocol, "stateful") == (1, 1)

    def turn(model, number, **flags):
        given = {"IN": np.array([[number]], np.float32)}
        return protocol.infer(model, given, sequence_id=7, **flags).as_numpy("OUT").tolist()

    assert turn("controlled", 1, sequence_start=True) == [[101.0]]
    assert turn("controlled", 2, sequence_end=True) == [[2.0]]
    assert turn("stateful", 5, sequence_start=True) == [[5.0]], "nothing of the warmup stays in the state"
    assert turn("stateful", 6, sequence_end=True) == [[11.0]]


def test_decoupled_models_are_warmed_up_with_all_their_responses(repository, start, connect):
    warmup = warm_sample(
        warm_input("IN", "INT32", [3], "random_data: true"),
        warm_input("DELAY", "UINT32", [3], 'input_data_file: "delays"'),
        warm_input("WAIT", "UINT32", [1], "zero_data: true"),
        count=2,
    )  # fmt: skip
    sections = tensor_section("input", [("IN", "INT32", [-1]), ("DELAY", "UINT32", [-1]), ("WAIT", "UINT32", [1])])
    sections += tensor_section("output", [("OUT", "INT32", [1]), ("IDX", "UINT32", [1])])
    repository.config("repeat", f'backend: "repeat"\nmax_batch_size: 0\n{sections}model_transaction_policy {{ decoupled: true }}\n{one_instance()}{warmup}')
    repository.directory("repeat", 1)
    (repository.directory("repeat") / "warmup").mkdir()
    (repository.directory("repeat") / "warmup" / "delays").write_bytes(np.uint32([20, 20, 20]).tobytes())
    server = start(repository.root)
    assert counts(connect(server), "repeat") == (2, 2)
    assert statistics(server, "repeat")["inference_stats"]["success"]["count"] == 2
    assert metric(server, "nereid_inference_inflight_request_count", model="repeat") == 0


def test_the_model_is_ready_only_after_its_warmup(repository, start, connect):
    repository.echo("slow", "FP32", [4], max_batch_size=4, parameters={"execute_delay_ms": 1500}, more=warm_sample(ZEROS))
    server = start(repository.root, EXPLICIT)
    protocol = connect(server)
    began = time.monotonic()
    loader = threading.Thread(target=lambda: call(server, "POST", "/v2/repository/models/slow/load", body=b"{}"), daemon=True)
    loader.start()
    assert wait_until(lambda: state_of(server, "slow") == ("LOADING", ""))
    assert not is_ready(protocol, "slow")
    loader.join(30)
    assert not loader.is_alive() and time.monotonic() - began >= 1.5
    assert protocol.client.is_model_ready("slow")


def is_ready(protocol, model):
    """Over gRPC the server says NOT_FOUND or UNAVAILABLE instead of false."""
    try:
        return protocol.client.is_model_ready(model)
    except InferenceServerException:
        return False


def state_of(server, model):
    index = call(server, "POST", "/v2/repository/index", body=b"{}").json()
    entry = next(row for row in index if row["name"] == model)
    return entry.get("state"), entry.get("reason", "")


def test_a_failing_sample_fails_the_load_by_name_and_the_server_goes_on(repository, start, connect):
    table = tensor_section("input", [("INDEX", "INT64", [1])]) + tensor_section("output", [("OUT", "FP32", [1])])
    beyond = warm_sample(warm_input("INDEX", "INT64", [1], 'input_data_file: "index"'), name="beyond", batch_size=2)
    inside = warm_sample(warm_input("INDEX", "INT64", [1], "zero_data: true"), name="inside")
    write_identity(repository, "lookup", inside + beyond, sections=table, model=models.table_lookup())
    file = repository.directory("lookup") / "warmup" / "index"
    file.write_bytes(np.int64([9]).tobytes())
    server = start(repository.root, EXPLICIT)
    protocol = connect(server)
    with pytest.raises(InferenceServerException, match="failed to run warmup sample 'beyond': .*idx=9") as caught:
        protocol.client.load_model("lookup")
    assert "inside" not in str(caught.value)
    state, reason = state_of(server, "lookup")
    assert state == "UNAVAILABLE" and "beyond" in reason
    assert protocol.client.is_server_live() and not is_ready(protocol, "lookup")
    file.write_bytes(np.int64([3]).tobytes())
    protocol.client.load_model("lookup")
    assert counts(protocol, "lookup") == (2, 3), "nothing of the failed load is counted"
    answer = protocol.infer("lookup", {"INDEX": np.int64([[2]])})
    assert answer.as_numpy("OUT").tolist() == [[200.0]]


def test_a_failing_reload_leaves_the_old_version(repository, start, connect):
    write_identity(repository, "kept", warm_sample(ZEROS))
    server = start(repository.root, EXPLICIT, "--load-model=kept")
    protocol = connect(server)
    write_identity(repository, "kept", warm_sample(warm_input("IN", "FP32", [5], "zero_data: true")))
    with pytest.raises(InferenceServerException, match="unexpected shape for input 'IN'"):
        protocol.client.load_model("kept")
    assert protocol.client.is_model_ready("kept")
    protocol.infer("kept", {"IN": np.zeros((1, 4), np.float32)})


def test_all_faults_of_all_samples_are_told_at_once(repository, start, connect):
    warmup = (
        warm_sample(warm_input("IN", "FP32", [4], 'input_data_file: "short"'), name="too short")
        + warm_sample(warm_input("IN", "FP32", [-1], "zero_data: true"), name="open")
        + warm_sample(warm_input("IN", "FP32", [4], ""), name="nothing")
        + warm_sample(ZEROS, name="large", batch_size=9)
        + warm_sample(warm_input("IMPUT", "FP32", [4], "zero_data: true"), name="misspelled")
        + warm_sample(warm_input("IN", "FP32", [4], 'input_data_file: "none"'), name="lost")
    )
    write_identity(repository, "faulty", warmup)
    (repository.directory("faulty") / "warmup" / "short").write_bytes(b"1234")
    server = start(repository.root, EXPLICIT)
    with pytest.raises(InferenceServerException) as caught:
        connect(server).client.load_model("faulty")
    text = str(caught.value)
    for fragment in (
        "warmup setting expects 16 bytes, but the data provided from shortonly has 4 bytes", "'too short'",
        "all variable-size dimensions are specified for input 'IN'", "'open'",
        "input 'IN' to have input_data_type set", "'nothing'",
        "failed to run warmup sample 'large': batch size 9 for 'faulty', max allowed is 8",
        "missing required input(s) ['IN']", "'misspelled'",
        "faulty/warmup/none: No such file or directory", "'lost'",
    ):  # fmt: skip
        assert fragment in text, fragment


@pytest.mark.parametrize("path", ["../1/model.onnx", "link"])
def test_files_outside_the_folder_are_not_read(repository, start, connect, path, tmp_path):
    (tmp_path / "secret").write_bytes(b"x" * 64)
    write_identity(repository, "outside", warm_sample(warm_input("IN", "FP32", [4], f'input_data_file: "{path}"')))
    (repository.directory("outside") / "warmup" / "link").symlink_to(tmp_path / "secret")
    server = start(repository.root, EXPLICIT)
    with pytest.raises(InferenceServerException, match="outside model directory|leads out of the directory"):
        connect(server).client.load_model("outside")
