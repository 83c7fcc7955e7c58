"""System shared memory with tritonclient.utils.shared_memory (the rows of L0_shared_memory, and more)."""

import asyncio
import os
import queue
import random
import re
import subprocess
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc.aio as grpc_aio
import tritonclient.http.aio as http_aio
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

from nereid_testing import onnx_models as models
from nereid_testing.decoupled import Stream, add_repeat, repeat_inputs
from nereid_testing.main_repository import DATATYPES
from nereid_testing.protocols import NUMPY_TYPES, PROTOCOLS, sample, status_of
from nereid_testing.raw_http import call
from nereid_testing.repository import Repository
from nereid_testing.server import ServerProcess

from test_perf_analyzer import PERF_ANALYZER

pytestmark = pytest.mark.ours
PAGE = 4096
# The steps pass their input on by reference: so does the ensemble, but for what lies in shared memory.
ENSEMBLE = '''
platform: "ensemble"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "FIRST" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "LAST" data_type: TYPE_FP32 dims: [ -1 ] } ]
ensemble_scheduling { step [
  { model_name: "echo" model_version: -1
    input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "FIRST" } },
  { model_name: "echo" model_version: -1
    input_map { key: "IN" value: "FIRST" } output_map { key: "OUT" value: "LAST" } }
] }
'''


def write_repository(root):
    repository = Repository(root)
    for datatype in DATATYPES:
        repository.onnx(f"identity_{datatype.lower()}", models.identity(datatype, ["batch", "n"]))
    repository.onnx("add_sub", models.add_sub("INT32", ["batch", 16]))
    repository.onnx("add_sub_large", models.add_sub("INT32", ["batch", 32 * PAGE]))
    repository.onnx("transpose", models.matrix_transpose(512, 512))
    repository.onnx("slow_ones", models.sleepy_loop(whole=True))
    repository.echo("echo", "FP32", [-1])
    repository.echo("echo_text", "BYTES", [-1])
    repository.echo("slow", "FP32", [-1], parameters={"execute_delay_ms": 500})
    add_repeat(repository, "repeat_int32")
    repository.config("twice", ENSEMBLE)
    repository.directory("twice", 1)
    return root


@pytest.fixture(scope="module", params=["in place", "copied"])
def server(request, tmp_path_factory):
    root = write_repository(tmp_path_factory.mktemp("shm") / "repository")
    flags = ["--allow-client-shm=true", *(["--client-shm-copy=true"] if request.param == "copied" else [])]
    with ServerProcess(root, *flags) as running:
        running.copies = request.param == "copied"
        yield running
        assert running.alive(), running.log()[-4000:]


@pytest.fixture(params=["http", "grpc"])
def protocol(request, server):
    each = PROTOCOLS[request.param](server)
    yield each
    each.client.unregister_system_shared_memory()
    each.close()


@pytest.fixture
def create():
    """create(byte_size) → (handle, key) of a shared memory object; all are removed at the end."""
    handles = []

    def begin(byte_size, name="region"):
        key = f"/nereid_test_{uuid.uuid4().hex}"
        handles.append(shm.create_shared_memory_region(name, key, byte_size, create_only=True))
        return handles[-1], key

    yield begin
    for handle in handles:
        shm.destroy_shared_memory_region(handle)


def object_path(key):
    return Path("/dev/shm") / key.lstrip("/")


def shared_input(protocol, name, shape, datatype, region, byte_size, offset=0):
    tensor = protocol.module.InferInput(name, list(shape), datatype)
    tensor.set_shared_memory(region, byte_size, offset)
    return tensor


def shared_output(protocol, name, region, byte_size, offset=0):
    tensor = protocol.module.InferRequestedOutput(name)
    tensor.set_shared_memory(region, byte_size, offset)
    return tensor


def output_shape(protocol, result, name):
    output = result.get_output(name)
    return list(output["shape"] if protocol.name == "http" else output.shape)


def packed_size(array):
    return sum(4 + len(each) for each in array.ravel()) if array.dtype == object else array.nbytes


@pytest.mark.parametrize("datatype", DATATYPES)
def test_every_datatype(protocol, create, datatype):
    array = sample(datatype, (2, 7))
    size = packed_size(array)
    handle, key = create(3 * PAGE)
    if datatype == "BYTES":
        from tritonclient.utils import serialize_byte_tensor

        shm.set_shared_memory_region(handle, [serialize_byte_tensor(array)], offset=64)
    else:
        shm.set_shared_memory_region(handle, [array], offset=64)
    protocol.client.register_system_shared_memory("r", key, 3 * PAGE)
    inputs = [shared_input(protocol, "IN", array.shape, datatype, "r", size, 64)]
    outputs = [shared_output(protocol, "OUT", "r", PAGE, PAGE)]
    result = protocol.client.infer(f"identity_{datatype.lower()}", inputs, outputs=outputs)
    assert output_shape(protocol, result, "OUT") == [2, 7]
    got = shm.get_contents_as_numpy(handle, NUMPY_TYPES[datatype], array.shape, offset=PAGE)
    assert got.tobytes() == array.tobytes() if datatype != "BYTES" else (got == array).all()
    if datatype != "BYTES":
        # The same without shared memory for the output.
        plain = protocol.client.infer(f"identity_{datatype.lower()}", inputs)
        if datatype != "BF16":
            assert plain.as_numpy("OUT").tobytes() == array.tobytes()


def test_several_tensors_in_one_region(protocol, create):
    a, b = np.arange(16, dtype=np.int32).reshape(1, 16), np.full((1, 16), 3, np.int32)
    handle, key = create(256)
    shm.set_shared_memory_region(handle, [a, b])
    protocol.client.register_system_shared_memory("all", key, 256)
    inputs = [
        shared_input(protocol, "INPUT0", a.shape, "INT32", "all", 64, 0),
        shared_input(protocol, "INPUT1", b.shape, "INT32", "all", 64, 64),
    ]
    outputs = [shared_output(protocol, "OUTPUT1", "all", 64, 192), shared_output(protocol, "OUTPUT0", "all", 64, 128)]
    protocol.client.infer("add_sub", inputs, outputs=outputs)
    assert (shm.get_contents_as_numpy(handle, np.int32, [1, 16], offset=128) == a + b).all()
    assert (shm.get_contents_as_numpy(handle, np.int32, [1, 16], offset=192) == a - b).all()


def test_mixed_with_bytes_and_classes(protocol, create):
    """One input in a region, one in the request; one output in a region, one as classes."""
    a, b = np.arange(16, dtype=np.int32).reshape(1, 16), np.ones((1, 16), np.int32)
    handle, key = create(128)
    shm.set_shared_memory_region(handle, [a])
    protocol.client.register_system_shared_memory("r", key, 128)
    inputs = [shared_input(protocol, "INPUT0", a.shape, "INT32", "r", 64), protocol.input("INPUT1", b)]
    outputs = [shared_output(protocol, "OUTPUT0", "r", 64, 64), protocol.output("OUTPUT1", class_count=2)]
    result = protocol.client.infer("add_sub", inputs, outputs=outputs)
    assert (shm.get_contents_as_numpy(handle, np.int32, [1, 16], offset=64) == a + b).all()
    assert [bytes(each, "utf8") if isinstance(each, str) else each for each in result.as_numpy("OUTPUT1").ravel()] == [
        b"14:15",
        b"13:14",
    ]


@pytest.mark.parametrize("offset", [PAGE, 3 * PAGE, 64, PAGE + 4])
def test_region_inside_an_object(protocol, create, offset):
    """The offset of the region counts once, and need not be a multiple of the page size."""
    array = np.arange(16, dtype=np.float32)
    handle, key = create(8 * PAGE)
    shm.set_shared_memory_region(handle, [array], offset=offset + 32)
    protocol.client.register_system_shared_memory("r", key, PAGE, offset)
    inputs = [shared_input(protocol, "IN", [16], "FP32", "r", 64, 32)]
    protocol.client.infer("echo", inputs, outputs=[shared_output(protocol, "OUT", "r", 64, 128)])
    assert (shm.get_contents_as_numpy(handle, np.float32, [16], offset=offset + 128) == array).all()


def test_output_onto_its_own_input(protocol, create):
    array = np.arange(32, dtype=np.float32)
    handle, key = create(256)
    shm.set_shared_memory_region(handle, [array])
    protocol.client.register_system_shared_memory("r", key, 256)
    inputs = [shared_input(protocol, "IN", [32], "FP32", "r", 128)]
    protocol.client.infer("echo", inputs, outputs=[shared_output(protocol, "OUT", "r", 128, 64)])
    assert (shm.get_contents_as_numpy(handle, np.float32, [32], offset=64) == array).all()


def test_text_that_is_no_text(protocol, create):
    handle, key = create(64)
    shm.set_shared_memory_region(handle, [np.full(16, 0xFFFFFFFF, np.uint32)])
    protocol.client.register_system_shared_memory("r", key, 64)
    inputs = [shared_input(protocol, "IN", [2], "BYTES", "r", 64)]
    with pytest.raises(InferenceServerException, match="incomplete string|element"):
        protocol.client.infer("echo_text", inputs)


def test_register_status_unregister(protocol, create):
    _, key = create(2 * PAGE)
    client = protocol.client
    client.register_system_shared_memory("a", key, PAGE)
    client.register_system_shared_memory("b", key, 64, PAGE)
    expected = {"a": (key, 0, PAGE), "b": (key, PAGE, 64)}

    def status(name=""):
        if protocol.name == "http":
            rows = client.get_system_shared_memory_status(name)
            return {row["name"]: (row["key"], row["offset"], row["byte_size"]) for row in rows}
        regions = client.get_system_shared_memory_status(name).regions
        return {name: (each.key, each.offset, each.byte_size) for name, each in regions.items()}

    assert status() == expected
    assert status("b") == {"b": expected["b"]}
    with pytest.raises(InferenceServerException, match="shared memory region 'a' already in manager") as failure:
        client.register_system_shared_memory("a", key, PAGE)
    assert status_of(failure.value, protocol) == ("400" if protocol.name == "http" else "ALREADY_EXISTS")
    client.unregister_system_shared_memory("a")
    client.unregister_system_shared_memory("nobody")
    assert status() == {"b": expected["b"]}
    with pytest.raises(InferenceServerException, match="Unable to find system shared memory region: 'a'") as failure:
        status("a")
    assert status_of(failure.value, protocol) == ("404" if protocol.name == "http" else "NOT_FOUND")
    client.register_system_shared_memory("a", key, PAGE)
    client.unregister_system_shared_memory()
    assert status() == {}


def test_places_outside_of_a_region(protocol, create):
    _, key = create(PAGE)
    protocol.client.register_system_shared_memory("r", key, 64)
    cases = [
        ("r", 64, 64, "Invalid offset for shared memory region: 'r'"),
        ("r", 64, 1 << 40, "Invalid offset for shared memory region: 'r'"),
        ("r", 64, 4, r"Invalid offset \+ byte size for shared memory region: 'r'"),
        ("r", 1 << 50, 4, r"Invalid offset \+ byte size for shared memory region: 'r'"),
        ("x", 64, 0, "Unable to find shared memory region: 'x'"),
    ]
    whole = np.zeros(16, np.float32)
    for region, size, offset, message in cases:
        with pytest.raises(InferenceServerException, match=message):
            protocol.client.infer("echo", [shared_input(protocol, "IN", [16], "FP32", region, size, offset)])
        with pytest.raises(InferenceServerException, match=message):
            output = shared_output(protocol, "OUT", region, size, offset)
            protocol.client.infer("echo", [protocol.input("IN", whole)], outputs=[output])
    with pytest.raises(InferenceServerException, match="Expected 64, got 32"):
        protocol.client.infer("echo", [shared_input(protocol, "IN", [16], "FP32", "r", 32)])


def test_output_that_does_not_fit(protocol, create):
    handle, key = create(PAGE)
    shm.set_shared_memory_region(handle, [np.full(32, 9, np.float32)])
    protocol.client.register_system_shared_memory("r", key, 128)
    array = np.arange(16, dtype=np.float32)
    message = r"size specified with the request for output 'OUT' \(60 bytes\) should be at least 64 bytes to hold the results"
    with pytest.raises(InferenceServerException, match=message) as failure:
        protocol.infer("echo", {"IN": array}, outputs=[shared_output(protocol, "OUT", "r", 60)])
    assert status_of(failure.value, protocol) == ("500" if protocol.name == "http" else "INTERNAL")
    assert (shm.get_contents_as_numpy(handle, np.float32, [32]) == 9).all()
    # One byte more than needed is no fault.
    protocol.infer("echo", {"IN": array}, outputs=[shared_output(protocol, "OUT", "r", 65)])
    assert (shm.get_contents_as_numpy(handle, np.float32, [16]) == array).all()


def test_object_that_becomes_smaller(protocol, server, create):
    """Without a look at the size before each use, this ends the server with SIGBUS."""
    handle, key = create(4 * PAGE)
    array = np.arange(16, dtype=np.float32)
    shm.set_shared_memory_region(handle, [array], offset=3 * PAGE)
    protocol.client.register_system_shared_memory("r", key, 4 * PAGE)
    inputs = [shared_input(protocol, "IN", [16], "FP32", "r", 64, 3 * PAGE)]
    output = [shared_output(protocol, "OUT", "r", 64, 2 * PAGE)]
    protocol.client.infer("echo", inputs, outputs=output)
    os.truncate(object_path(key), PAGE)
    with pytest.raises(InferenceServerException, match="shared memory region: 'r': .*4096 bytes"):
        protocol.client.infer("echo", inputs)
    with pytest.raises(InferenceServerException, match="shared memory region: 'r': .*4096 bytes"):
        protocol.infer("echo", {"IN": array}, outputs=output)
    # What is still there may be used.
    near = [shared_output(protocol, "OUT", "r", 64)]
    protocol.infer("echo", {"IN": array}, outputs=near)
    os.truncate(object_path(key), 4 * PAGE)
    protocol.infer("echo", {"IN": array}, outputs=output)
    assert (shm.get_contents_as_numpy(handle, np.float32, [16], offset=2 * PAGE) == array).all()
    assert server.alive()


@pytest.mark.parametrize("to_region", [False, True])
def test_object_that_is_cut_while_a_model_reads_it(protocol, server, create, to_region):
    """No look at the size comes late enough here: the page is gone when the output is made from it."""
    handle, key = create(4 * PAGE)
    array = np.arange(16, dtype=np.float32)
    shm.set_shared_memory_region(handle, [array], offset=3 * PAGE)
    protocol.client.register_system_shared_memory("r", key, 4 * PAGE)
    out_handle, out_key = create(PAGE)
    protocol.client.register_system_shared_memory("out", out_key, PAGE)
    inputs = [shared_input(protocol, "IN", [16], "FP32", "r", 64, 3 * PAGE)]
    outputs = [shared_output(protocol, "OUT", "out", 64)] if to_region else None
    finish = start_infer(protocol, "slow", inputs, outputs)
    time.sleep(0.15)
    os.truncate(object_path(key), 0)
    try:
        error = finish()
    except InferenceServerException as failure:
        error = failure
    assert server.alive()
    if server.copies:
        assert error is None
        return
    assert "Unable to use shared memory region: 'r': its shared memory object was made smaller" in str(error)
    os.truncate(object_path(key), 4 * PAGE)
    with pytest.raises(InferenceServerException, match="it must be registered again"):
        protocol.client.infer("echo", inputs)
    protocol.client.unregister_system_shared_memory("r")
    protocol.client.register_system_shared_memory("r", key, 4 * PAGE)
    shm.set_shared_memory_region(handle, [array], offset=3 * PAGE)
    assert (protocol.client.infer("echo", inputs).as_numpy("OUT") == array).all()


def test_object_that_is_removed(protocol, create):
    """An unlinked object lives on in its mappings."""
    handle, key = create(256)
    array = np.arange(16, dtype=np.float32)
    shm.set_shared_memory_region(handle, [array])
    protocol.client.register_system_shared_memory("r", key, 256)
    os.unlink(object_path(key))
    try:
        inputs = [shared_input(protocol, "IN", [16], "FP32", "r", 64)]
        protocol.client.infer("echo", inputs, outputs=[shared_output(protocol, "OUT", "r", 64, 64)])
        assert (shm.get_contents_as_numpy(handle, np.float32, [16], offset=64) == array).all()
    finally:
        object_path(key).touch()


def start_infer(protocol, model, inputs, outputs):
    """Starts an inference; returns a function that waits for its end and gives back the error, if any."""
    if protocol.name == "grpc":
        ends = queue.Queue()
        protocol.client.async_infer(model, inputs, lambda result, error: ends.put(error), outputs=outputs)
        return lambda: ends.get(timeout=20)
    running = protocol.client.async_infer(model, inputs, outputs=outputs)

    def finish():
        running.get_result()

    return finish


def mapped(server, key):
    return object_path(key).name in Path(f"/proc/{server.process.pid}/maps").read_text()


def open_files(server, key):
    folder = Path(f"/proc/{server.process.pid}/fd")
    targets = []
    for each in folder.iterdir():
        try:
            targets.append(os.readlink(each))
        except OSError:
            continue
    return sum(object_path(key).name in target for target in targets)


def test_unregister_while_it_is_used(protocol, server, create):
    array = np.arange(16, dtype=np.float32)
    handle, key = create(256)
    shm.set_shared_memory_region(handle, [array])
    protocol.client.register_system_shared_memory("r", key, 256)
    inputs = [shared_input(protocol, "IN", [16], "FP32", "r", 64)]
    finish = start_infer(protocol, "slow", inputs, [shared_output(protocol, "OUT", "r", 64, 64)])
    time.sleep(0.15)
    assert call(server, "POST", "/v2/systemsharedmemory/region/r/unregister").status == 200
    assert open_files(server, key) == 1
    # As the reference: it is listed, and can be used, until the last request is done.
    assert [row["name"] for row in call(server, "GET", "/v2/systemsharedmemory/status").json()] == ["r"]
    with closing(PROTOCOLS["grpc"](server)) as other:
        other.client.infer("echo", [shared_input(other, "IN", [16], "FP32", "r", 64)])
    assert finish() is None
    assert call(server, "GET", "/v2/systemsharedmemory/status").json() == []
    assert (shm.get_contents_as_numpy(handle, np.float32, [16], offset=64) == array).all()
    assert not mapped(server, key) and open_files(server, key) == 0
    with pytest.raises(InferenceServerException, match="Unable to find shared memory region: 'r'"):
        protocol.client.infer("echo", inputs)


def test_cancelled_request_lets_go(server, create):
    _, key = create(256)
    protocol = PROTOCOLS["grpc"](server)
    protocol.client.register_system_shared_memory("r", key, 256)
    inputs = [shared_input(protocol, "IN", [16], "FP32", "r", 64)]
    with pytest.raises(InferenceServerException, match="Deadline"):
        protocol.client.infer("slow", inputs, outputs=[shared_output(protocol, "OUT", "r", 64, 64)], client_timeout=0.1)
    protocol.client.unregister_system_shared_memory("r")
    deadline = time.monotonic() + 5
    while mapped(server, key) or open_files(server, key):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    protocol.close()


def test_stream(server, create):
    protocol = PROTOCOLS["grpc"](server)
    handle, key = create(4 * PAGE)
    protocol.client.register_system_shared_memory("r", key, 4 * PAGE)
    answers = queue.Queue()
    protocol.client.start_stream(lambda result, error: answers.put((result, error)))
    for turn in range(8):
        shm.set_shared_memory_region(handle, [np.full(16, turn, np.float32)], offset=64 * turn)
        inputs = [shared_input(protocol, "IN", [16], "FP32", "r", 64, 64 * turn)]
        place = shared_output(protocol, "OUT", "r", 64, PAGE + 64 * turn)
        protocol.client.async_stream_infer("echo", inputs, request_id=str(turn), outputs=[place])
    small = [shared_output(protocol, "OUT", "r", 8)]
    protocol.client.async_stream_infer("echo", inputs, request_id="small", outputs=small)
    results = [answers.get(timeout=20) for _ in range(9)]
    protocol.client.stop_stream()
    assert [error is None for _, error in results].count(False) == 1
    assert any(error is not None and "should be at least 64 bytes" in str(error) for _, error in results)
    got = shm.get_contents_as_numpy(handle, np.float32, [8, 16], offset=PAGE)
    assert (got == np.arange(8)[:, None]).all()
    protocol.client.unregister_system_shared_memory()
    protocol.close()


def test_decoupled_responses(server, create):
    """Every response goes to the same place, the last one stays; one input comes from a region."""
    handle, key = create(256)
    shm.set_shared_memory_region(handle, [np.arange(5, 13, dtype=np.int32)])
    with closing(Stream(server)) as stream:
        client = stream.protocol.client
        client.register_system_shared_memory("r", key, 256)
        arrays = repeat_inputs(range(8))
        inputs = [shared_input(stream.protocol, "IN", [8], "INT32", "r", 32)]
        inputs += [stream.protocol.input(name, arrays[name]) for name in ("DELAY", "WAIT")]
        outputs = [shared_output(stream.protocol, "OUT", "r", 4, 64), stream.protocol.output("IDX")]
        client.async_stream_infer("repeat_int32", inputs, outputs=outputs)
        results = [stream.good() for _ in range(8)]
        assert [int(result.as_numpy("IDX").ravel()[0]) for result in results] == list(range(8))
        assert shm.get_contents_as_numpy(handle, np.int32, [1], offset=64).tolist() == [12]
        client.unregister_system_shared_memory()


@pytest.mark.skipif(PERF_ANALYZER is None, reason="perf_analyzer is not installed (NEREID_REFERENCE_DIR)")
@pytest.mark.parametrize("way", ["-i http", "-i http --async", "-i grpc", "-i grpc --async", "-i grpc --streaming"])
@pytest.mark.parametrize("model", ["add_sub", "identity_bytes"])
def test_perf_analyzer(server, way, model):
    address = server.grpc if "grpc" in way else server.http
    shapes = ["--shape=IN:16"] if model == "identity_bytes" else []
    command = [PERF_ANALYZER, "-m", model, "-u", address, *way.split(), *shapes, "--shared-memory=system",
               "--output-shared-memory-size=4096", "--concurrency-range=4", "--measurement-interval=250",
               "-s", "900", "-r", "10"]  # fmt: skip
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    output = run.stdout + run.stderr
    throughput = re.search(r"throughput: ([\d.]+) infer/sec", output)
    assert throughput and float(throughput.group(1)) > 0, output
    assert run.returncode == 0, output
    assert call(server, "GET", "/v2/systemsharedmemory/status").json() == []


@pytest.mark.parametrize("name", ["http", "grpc"])
def test_asyncio_clients(server, create, name):
    module = http_aio if name == "http" else grpc_aio
    address = server.http if name == "http" else server.grpc
    array = np.arange(16, dtype=np.float32)
    handle, key = create(2 * PAGE)
    shm.set_shared_memory_region(handle, [array])

    async def run():
        async with module.InferenceServerClient(address) as client:
            await client.register_system_shared_memory("aio", key, 2 * PAGE)

            async def one(index):
                tensor = module.InferInput("IN", [16], "FP32")
                tensor.set_shared_memory("aio", 64)
                output = module.InferRequestedOutput("OUT")
                output.set_shared_memory("aio", 64, PAGE + 64 * index)
                await client.infer("echo", [tensor], outputs=[output])

            await asyncio.gather(*(one(index) for index in range(16)))
            await client.unregister_system_shared_memory("aio")

    asyncio.run(asyncio.wait_for(run(), 30))
    got = shm.get_contents_as_numpy(handle, np.float32, [16, 16], offset=PAGE)
    assert (got == array).all()


def test_ensemble(protocol, create):
    array = np.arange(16, dtype=np.float32)
    handle, key = create(256)
    shm.set_shared_memory_region(handle, [array])
    protocol.client.register_system_shared_memory("r", key, 256)
    inputs = [shared_input(protocol, "IN", [16], "FP32", "r", 64)]
    outputs = [shared_output(protocol, "LAST", "r", 64, 64), protocol.output("FIRST")]
    result = protocol.client.infer("twice", inputs, outputs=outputs)
    assert (result.as_numpy("FIRST") == array).all()
    assert (shm.get_contents_as_numpy(handle, np.float32, [16], offset=64) == array).all()


def test_large_tensor(protocol, create):
    array = np.random.default_rng(1).random((1, 1 << 20), dtype=np.float32)
    handle, key = create(2 * array.nbytes)
    shm.set_shared_memory_region(handle, [array])
    protocol.client.register_system_shared_memory("r", key, 2 * array.nbytes)
    inputs = [shared_input(protocol, "IN", array.shape, "FP32", "r", array.nbytes)]
    outputs = [shared_output(protocol, "OUT", "r", array.nbytes, array.nbytes)]
    protocol.client.infer("identity_fp32", inputs, outputs=outputs)
    got = shm.get_contents_as_numpy(handle, np.float32, array.shape, offset=array.nbytes)
    assert (got == array).all()


def test_large_outputs_that_share_bytes(protocol, create):
    """What overlaps an input or another output is written when the model is done; the last one wins."""
    array = np.arange(512 * 512, dtype=np.float32).reshape(1, 512, 512)
    handle, key = create(4 * array.nbytes)
    for name in ("r", "again"):
        protocol.client.register_system_shared_memory(name, key, 4 * array.nbytes)
    for offset in (0, 64 * PAGE):
        shm.set_shared_memory_region(handle, [array])
        inputs = [shared_input(protocol, "IN", array.shape, "FP32", "r", array.nbytes)]
        outputs = [shared_output(protocol, "OUT", "again", array.nbytes, offset)]
        protocol.client.infer("transpose", inputs, outputs=outputs)
        assert (shm.get_contents_as_numpy(handle, np.float32, array.shape, offset=offset) == array.transpose(0, 2, 1)).all()
    left, right = (np.full((1, 32 * PAGE), value, np.int32) for value in (5, 3))
    outputs = [shared_output(protocol, name, "r", left.nbytes) for name in ("OUTPUT0", "OUTPUT1")]
    protocol.infer("add_sub_large", {"INPUT0": left, "INPUT1": right}, outputs=outputs)
    got = shm.get_contents_as_numpy(handle, np.int32, left.shape)
    assert (got == 2).all() or (got == 8).all()


def test_large_outputs_of_many_requests(server, create):
    """Some run alone and write to their places, others in batches whose outputs are shared out."""
    rows, size = 24, 16 * PAGE
    handle, key = create(2 * rows * size)
    arrays = [np.full((1, size // 4), number, np.float32) for number in range(rows)]
    for number, array in enumerate(arrays):
        shm.set_shared_memory_region(handle, [array], offset=number * size)
    first = PROTOCOLS["http"](server)
    first.client.register_system_shared_memory("many", key, 2 * rows * size)

    def infer(number):
        each = PROTOCOLS["http" if number % 2 else "grpc"](server)
        for _ in range(5):
            inputs = [shared_input(each, "IN", (1, size // 4), "FP32", "many", size, number * size)]
            outputs = [shared_output(each, "OUT", "many", size, (rows + number) * size)]
            each.client.infer("identity_fp32", inputs, outputs=outputs)
        each.close()
        return True

    with ThreadPoolExecutor(rows) as pool:
        assert all(pool.map(infer, range(rows)))
    first.client.unregister_system_shared_memory("many")
    first.close()
    got = shm.get_contents_as_numpy(handle, np.float32, (rows, size // 4), offset=rows * size)
    assert (got == np.concatenate(arrays)).all()


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_run_writes_to_its_region_to_the_end(protocol, server, create, is_cut):
    """Whether the region is unregistered meanwhile, or its object is cut."""
    size = 4 * 256 * 256
    handle, key = create(size)
    protocol.client.register_system_shared_memory("ones", key, size)
    inputs = [protocol.input("STEPS", np.array([900], np.int64))]
    finish = start_infer(protocol, "slow_ones", inputs, [shared_output(protocol, "OUT", "ones", size)])
    time.sleep(0.1)
    if is_cut:
        os.truncate(object_path(key), 0)
    protocol.client.unregister_system_shared_memory("ones")
    try:
        error = finish()
    except InferenceServerException as failure:
        error = failure
    assert server.alive()
    if is_cut:
        assert "Unable to use shared memory region: 'ones': " in str(error)
        return
    assert not isinstance(error, Exception)
    assert (shm.get_contents_as_numpy(handle, np.float32, (256, 256)) == 1).all()
    assert mapped(server, key) == 0


def count_mappings(server):
    return len(re.findall("nereid_test_", Path(f"/proc/{server.process.pid}/maps").read_text()))


def count_files(server):
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


def test_random_use_by_many_clients(server, create):
    """Regions come and go while requests use them: every answer is right or one of the known errors; nothing leaks."""
    handle, key = create(64 * PAGE)
    values = np.arange(16 * PAGE, dtype=np.float32)
    shm.set_shared_memory_region(handle, [values])
    begun = count_files(server)
    wrong = []
    known = re.compile(
        "Unable to find shared memory region|already in manager|Invalid offset|should be at least|Expected 64, got"
    )
    end = time.monotonic() + 6

    def work(seed):
        chance = random.Random(seed)
        protocol = PROTOCOLS[chance.choice(["http", "grpc"])](server)
        good = 0
        while time.monotonic() < end:
            name = f"r{chance.randrange(4)}"
            try:
                action = chance.random()
                if action < 0.2:
                    page = chance.randrange(32)
                    protocol.client.register_system_shared_memory(name, key, 16 * PAGE, page * PAGE)
                elif action < 0.35:
                    protocol.client.unregister_system_shared_memory(name)
                elif action < 0.36:
                    protocol.client.unregister_system_shared_memory()
                else:
                    offset = 4 * chance.randrange(16 * PAGE // 4)
                    size = chance.choice([64, 64, 64, 60])
                    inputs = [shared_input(protocol, "IN", [16], "FP32", name, size, offset)]
                    place = 48 * PAGE + 64 * seed
                    outputs = None
                    if chance.random() < 0.5:
                        protocol.client.register_system_shared_memory(f"own{seed}", key, 64, place)
                        outputs = [shared_output(protocol, "OUT", f"own{seed}", chance.choice([64, 64, 8]))]
                    try:
                        result = protocol.client.infer("echo", inputs, outputs=outputs)
                    finally:
                        if outputs is not None:
                            protocol.client.unregister_system_shared_memory(f"own{seed}")
                    if outputs is None:
                        got = result.as_numpy("OUT")
                    else:
                        got = shm.get_contents_as_numpy(handle, np.float32, [16], offset=place)
                    if not (np.diff(got) == 1).all():
                        wrong.append(got)
                    good += 1
            except InferenceServerException as error:
                if not known.search(str(error)):
                    wrong.append(str(error))
        protocol.close()
        if good == 0:
            wrong.append("no request went well")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert server.alive()
    assert call(server, "POST", "/v2/systemsharedmemory/unregister").status == 200
    deadline = time.monotonic() + 5
    while count_mappings(server) > 0 or count_files(server) > begun + 2:
        assert time.monotonic() < deadline, (count_mappings(server), count_files(server), begun)
        time.sleep(0.05)


@pytest.mark.parametrize("name", ["http", "grpc"])
def test_off_by_default(main_server, create, name):
    protocol = PROTOCOLS[name](main_server)
    _, key = create(64)
    message = "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."
    for attempt in (
        lambda: protocol.client.register_system_shared_memory("r", key, 64),
        lambda: protocol.client.unregister_system_shared_memory(),
        lambda: protocol.client.unregister_cuda_shared_memory("r"),
    ):
        with pytest.raises(InferenceServerException, match=re.escape(message)) as failure:
            attempt()
        assert status_of(failure.value, protocol) == ("501" if name == "http" else "UNIMPLEMENTED")
    regions = protocol.client.get_system_shared_memory_status()
    assert (regions if name == "http" else list(regions.regions)) == []
    with pytest.raises(InferenceServerException, match="Unable to find shared memory region: 'r'"):
        protocol.client.infer("identity_fp32", [shared_input(protocol, "IN", [1, 16], "FP32", "r", 64)])
    protocol.close()
