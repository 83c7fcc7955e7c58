"""CUDA shared memory regions in and out of plans: no byte passes through memory of the machine."""

import base64
import ctypes
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from nereid_testing.cuda import DeviceMemory
from nereid_testing.protocols import PROTOCOLS
from nereid_testing.raw_http import call
from nereid_testing.repository import Repository
from nereid_testing.server import ServerProcess
from nereid_testing.tensorrt import build_stand_ins, identity_plan, plan, write_plan

pytestmark = pytest.mark.ours
ROW = np.array([[1.5, -2.0, 0.0, 3.25]], dtype=np.float32)
ROW_SIZE = ROW.nbytes
# Where the regions are: what runs on another GPU gets its tensors by way of the machine.
ON_FIRST_GPU = "instance_group [{ kind: KIND_GPU gpus: [0] }]"


def write_repository(root):
    repository = Repository(root)
    write_plan(repository, "auto", identity_plan(), ON_FIRST_GPU)
    profile = [((1, 4), (8, 4), (8, 4))]
    slow = plan(
        [("INPUT0", "FLOAT", (-1, 4), profile)],
        [("OUTPUT0", "FLOAT", (-1, 4))],
        ["sleep 400", "identity INPUT0 OUTPUT0"],
    )
    write_plan(repository, "slow", slow, ON_FIRST_GPU)
    return root


def open_client(folder):
    """The runtime of this process, under another name: later tests look for a real one by its own."""
    name, other = b"libcudart.so.12\0", b"libclient.so.12\0"
    path = folder / "libclient.so.12"
    path.write_bytes((folder / "libcudart.so.12").read_bytes().replace(name, other))
    return ctypes.CDLL(str(path))


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory):
    """(runtime library, server)."""
    base = tmp_path_factory.mktemp("tensorrt_regions")
    folder, reason = build_stand_ins(base / "lib")
    if folder is None:
        pytest.skip(reason)
    copies, report = base / "copies", base / "report"
    variables = (f"LD_LIBRARY_PATH={folder}", f"STAND_IN_COPIES={copies}", f"STAND_IN_REPORT={report}")
    root = write_repository(base / "repository")
    library = open_client(folder)
    with ServerProcess(root, "--allow-client-shm=true", prefix=("env", *variables)) as server:
        yield library, server
        assert server.alive(), server.log()[-4000:]
        pid = server.process.pid
    [line] = [line for line in copies.read_text().splitlines() if line.startswith(f"pid={pid} ")]
    assert "to=0 from=0 " in line, f"tensors passed through the machine: {line}"
    [line] = [line for line in report.read_text().splitlines() if line.startswith(f"cuda pid={pid} ")]
    assert line.endswith("memory=0 streams=0 events=0 graphs=0 faults=0"), line


@pytest.fixture(params=["http", "grpc"])
def protocol(request, stand_in):
    each = PROTOCOLS[request.param](stand_in[1])
    yield each
    each.client.unregister_cuda_shared_memory()
    each.close()


@pytest.fixture
def allocate(stand_in):
    blocks = []

    def begin(byte_size):
        blocks.append(DeviceMemory(stand_in[0], byte_size))
        return blocks[-1]

    yield begin
    for block in blocks:
        block.free()


def register(protocol, name, block):
    raw = base64.b64encode(block.handle())
    protocol.client.register_cuda_shared_memory(name, raw, block.device, block.byte_size)


def tensors(protocol, source, target, rows=1):
    """Input and requested output; source and target are (region, offset), or a size behind them."""
    region, offset, *size = source
    tensor = protocol.module.InferInput("INPUT0", [rows, 4], "FP32")
    tensor.set_shared_memory(region, *(size or [rows * ROW_SIZE]), offset)
    region, offset, *size = target
    output = protocol.module.InferRequestedOutput("OUTPUT0")
    output.set_shared_memory(region, *(size or [rows * ROW_SIZE]), offset)
    return [tensor], [output]


@pytest.mark.parametrize("offset", [0, 256, 64])
def test_a_request_stays_on_the_gpu(protocol, allocate, offset):
    source, target = allocate(1024), allocate(1024)
    register(protocol, "source", source)
    register(protocol, "target", target)
    for turn in range(3):
        rows = np.repeat(ROW + turn, 2, axis=0)
        source.write(rows, offset)
        inputs, outputs = tensors(protocol, ("source", offset), ("target", offset), rows=2)
        result = protocol.client.infer("auto", inputs, outputs=outputs)
        assert result.get_output("OUTPUT0") is not None
        assert (target.read(np.float32, 8, offset) == rows.flatten()).all()


def test_many_at_once(stand_in, protocol, allocate):
    library, server = stand_in
    count = 8
    block = allocate(2 * count * 256)
    register(protocol, "block", block)
    for number in range(count):
        block.write(ROW + number, 256 * number)

    def infer(number):
        each = PROTOCOLS[protocol.name](server)
        for _ in range(10):
            inputs, outputs = tensors(each, ("block", 256 * number), ("block", 256 * (count + number)))
            each.client.infer("auto", inputs, outputs=outputs)
        each.close()
        return True

    with ThreadPoolExecutor(count) as pool:
        assert all(pool.map(infer, range(count)))
    for number in range(count):
        assert (block.read(np.float32, 4, 256 * (count + number)) == ROW + number).all()


def test_a_region_stays_until_the_run_has_ended(stand_in, protocol, allocate):
    library, server = stand_in
    block = allocate(512)
    block.write(ROW)
    register(protocol, "block", block)

    def infer():
        each = PROTOCOLS[protocol.name](server)
        inputs, outputs = tensors(each, ("block", 0), ("block", 256))
        each.client.infer("slow", inputs, outputs=outputs)
        each.close()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(infer)
        time.sleep(0.15)
        assert call(server, "POST", "/v2/cudasharedmemory/region/block/unregister").status == 200
        running.result(timeout=30)
    assert (block.read(np.float32, 4, 256) == ROW).all()
    with pytest.raises(InferenceServerException, match="Unable to find cuda shared memory region: 'block'"):
        protocol.client.get_cuda_shared_memory_status("block")


def test_what_lies_outside_is_refused(protocol, allocate):
    block = allocate(256)
    register(protocol, "block", block)
    for source, target in [(("block", 248), ("block", 0)), (("block", 0), ("block", 248))]:
        inputs, outputs = tensors(protocol, source, target)
        with pytest.raises(InferenceServerException, match=r"Invalid offset \+ byte size .* region: 'block'"):
            protocol.client.infer("auto", inputs, outputs=outputs)
    inputs, outputs = tensors(protocol, ("block", 0, 12), ("block", 128))
    with pytest.raises(InferenceServerException, match="Expected 16, got 12"):
        protocol.client.infer("auto", inputs, outputs=outputs)
