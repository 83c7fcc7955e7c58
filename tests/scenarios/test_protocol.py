"""Scenarios D9–D14, D17–D19: requests that clients get wrong, on purpose or not."""

import gzip
import json
import socket
import struct
import threading
import time
import zlib
from pathlib import Path

import grpc as grpc_runtime
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from nereid_testing.observe import statistics
from nereid_testing.protocols import status_of
from nereid_testing.raw_http import call, infer_binary, infer_json, infer_path, post_json
from nereid_testing.repository import Repository
from nereid_testing.server import ServerProcess, is_reference

MB = 1024 * 1024


def fp32(shape, data, **more):
    return {"name": "IN", "datatype": "FP32", "shape": shape, "data": data, **more}


def still_serves(server):
    answer = infer_json(server, "identity_fp32", [fp32([1, 2], [1, 2])])
    assert answer.status == 200 and answer.json()["outputs"][0]["data"] == [1, 2]


def test_D9_unknown_output_is_refused_before_execution(main_server, protocol):
    before = statistics(main_server, "identity_fp32")
    with pytest.raises(InferenceServerException, match="unexpected inference output 'NOPE'") as caught:
        protocol.infer("identity_fp32", {"IN": np.zeros((1, 1), np.float32)}, outputs=["NOPE"])
    assert status_of(caught.value, protocol) == ("400" if protocol.name == "http" else "INVALID_ARGUMENT")
    assert statistics(main_server, "identity_fp32")["execution_count"] == before["execution_count"]


@pytest.mark.parametrize("shape", ["[-1,16]", "[1,-16]", "[1.5,2]", "[9007199254740992,1024]", "[1,18446744073709551615]",
                                   "[4294967296,4294967296]", '["1",2]', "[null]", "[1e2,1]", "{}", "2", "[[1]]"])  # fmt: skip
def test_D10_bad_shapes_over_http(main_server, shape):
    if is_reference():
        pytest.skip("some of these end the real 2.51")
    body = f'{{"inputs":[{{"name":"IN","datatype":"FP32","shape":{shape},"data":[1,2]}}]}}'
    answer = post_json(main_server, infer_path("identity_fp32"), body)
    assert answer.status in (400, 500), answer.body
    assert answer.error()
    binary = body.replace('"data":[1,2]', '"parameters":{"binary_data_size":8}').encode()
    assert infer_binary(main_server, "identity_fp32", binary, [bytes(8)]).status in (400, 500)
    still_serves(main_server)


@pytest.mark.parametrize("text", ["-0", "1"])
def test_D10_minus_zero_is_refused_or_zero(main_server, text):
    body = f'{{"inputs":[{{"name":"IN","datatype":"FP32","shape":[1,{text}],"data":[1]}}]}}'
    answer = post_json(main_server, infer_path("identity_fp32"), body)
    assert answer.status in ((200,) if text == "1" else (200, 400, 500))
    still_serves(main_server)


@pytest.mark.parametrize("shape", [[-1, 16], [1, -(2**63)], [2**62, 2**62], [2**63 - 1], [2**53, 2]])
def test_D10_bad_shapes_over_grpc(main_server, shape):
    if is_reference():
        pytest.skip("some of these end the real 2.51")
    request = service_pb2.ModelInferRequest(model_name="identity_fp32")
    request.inputs.add(name="IN", datatype="FP32", shape=shape)
    request.raw_input_contents.append(bytes(8))
    with grpc_runtime.insecure_channel(main_server.grpc) as channel:
        with pytest.raises(grpc_runtime.RpcError) as caught:
            service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=30)
    assert caught.value.code() == grpc_runtime.StatusCode.INVALID_ARGUMENT
    still_serves(main_server)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"nothing", b'{"inputs":', b"\xff\xfe", b'{"inputs":[]} x'])
def test_D11_bodies_that_are_no_request(main_server, body):
    """The scenario says 400; the specification of the JSON layer says 500 for syntax errors. Both are an answer."""
    if is_reference() and not body:
        pytest.skip("2.51 takes an empty body for a raw request")
    answer = call(main_server, "POST", infer_path("identity_fp32"), body)
    assert answer.status in (400, 500)
    assert answer.error()
    still_serves(main_server)


def test_D11_content_type_is_no_criterion(main_server):
    body = json.dumps({"inputs": [fp32([1, 2], [1, 2])]})
    for content_type in ("application/x-www-form-urlencoded", "text/plain", "nonsense"):
        answer = call(main_server, "POST", infer_path("identity_fp32"), body, {"Content-Type": content_type})
        assert answer.status == 200


@pytest.mark.ours
@pytest.mark.parametrize(("model", "shape"), [("plain_fp32", [0]), ("identity_fp32", [2, 0])])
def test_D12_zero_size(main_server, protocol, model, shape):
    answer = infer_json(main_server, model, [fp32(shape, [])])
    assert answer.status == 200, answer.body
    assert (answer.json()["outputs"][0]["shape"], answer.json()["outputs"][0]["data"]) == (shape, [])
    header = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": shape, "parameters": {"binary_data_size": 0}}],
              "parameters": {"binary_data_output": True}}  # fmt: skip
    answer = infer_binary(main_server, model, header, [])
    assert answer.status == 200, answer.body
    length = int(answer.headers.get("inference-header-content-length", len(answer.body)))
    assert len(answer.body) == length
    assert json.loads(answer.body)["outputs"][0]["shape"] == shape
    got = protocol.infer(model, {"IN": np.zeros(shape, np.float32)})
    assert got.as_numpy("OUT").shape == tuple(shape)


@pytest.mark.parametrize("datatype", ["FP32", "FP64"])
def test_D13_numbers_that_are_not_finite(main_server, datatype):
    tokens = "[NaN,Infinity,-Infinity,Inf,-Inf,1.5]"
    if is_reference():
        tokens = "[NaN,Infinity,-Infinity,Infinity,-Infinity,1.5]"
    body = f'{{"inputs":[{{"name":"IN","datatype":"{datatype}","shape":[1,6],"data":{tokens}}}]}}'
    answer = post_json(main_server, infer_path(f"identity_{datatype.lower()}"), body)
    assert answer.status == 200, answer.body
    assert b'"data":[NaN,Infinity,-Infinity,Infinity,-Infinity,1.5]' in answer.body
    data = json.loads(answer.body)["outputs"][0]["data"]  # Python reads these tokens
    assert np.array_equal(data, [np.nan, np.inf, -np.inf, np.inf, -np.inf, 1.5], equal_nan=True)


@pytest.mark.ours
class TestD14HalfPrecisionAsNumbers:
    @pytest.mark.parametrize("datatype", ["FP16", "BF16"])
    def test_numbers_in_and_out(self, main_server, datatype):
        values = [0.5, -2, 1024, 0.0625]
        tensor = {"name": "IN", "datatype": datatype, "shape": [1, 4], "data": values}
        answer = infer_json(main_server, f"identity_{datatype.lower()}", [tensor])
        assert answer.status == 200, answer.body
        assert answer.json()["outputs"][0]["data"] == values

    def test_round_to_nearest_even(self, main_server):
        """2049 lies between 2048 and 2050: the even one wins; 2051 goes up to 2052."""
        tensor = {"name": "IN", "datatype": "FP16", "shape": [1, 4], "data": [2049, 2051, 1e-8, 65504]}
        answer = infer_json(main_server, "identity_fp16", [tensor])
        assert answer.json()["outputs"][0]["data"] == [2048, 2052, 0, 65504]

    def test_overflow_is_an_error(self, main_server):
        tensor = {"name": "IN", "datatype": "FP16", "shape": [1, 1], "data": [70000]}
        answer = infer_json(main_server, "identity_fp16", [tensor])
        assert answer.status == 400 and "70000" in answer.error()

    def test_the_extension_is_listed(self, main_server):
        extensions = call(main_server, "GET", "/v2").json()["extensions"]
        assert any("fp16" in each or "half" in each or "float16" in each for each in extensions), extensions


def send_chunks(server, chunks, path=infer_path("identity_bytes"), headers=()):
    """Sends a chunked body; returns the status line and the rest of what came back."""
    with socket.create_connection(("127.0.0.1", server.http_port), timeout=60) as connection:
        head = [f"POST {path} HTTP/1.1", "host: test", "transfer-encoding: chunked", *headers]
        connection.sendall("\r\n".join(head).encode() + b"\r\n\r\n")
        try:
            for part in chunks:
                connection.sendall(part)
        except OSError:
            pass  # the server may answer and close before it has read everything
        answer = b""
        try:
            while b"\r\n\r\n" not in answer or not complete(answer):
                data = connection.recv(1 << 20)
                if not data:
                    break
                answer += data
        except OSError:
            pass
    return answer


def complete(answer):
    head, _, body = answer.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(body) >= int(line.split(b":")[1])
    return False


def watch(server, stop, found):
    """Sends small requests while the big one is under way; notes the slowest answer."""
    while not stop.is_set():
        begin = time.monotonic()
        still_serves(server)
        found.append(time.monotonic() - begin)
        time.sleep(0.02)


def while_watched(server, work):
    stop, found = threading.Event(), []
    watcher = threading.Thread(target=watch, args=(server, stop, found))
    watcher.start()
    try:
        return work(), found
    finally:
        stop.set()
        watcher.join()


@pytest.mark.ours
def test_D17_a_body_of_single_byte_chunks(main_server):
    before = main_server.rss_bytes()
    part = b"1\r\nx\r\n" * 4096
    answer, seconds = while_watched(main_server, lambda: send_chunks(main_server, (part for _ in range(3 * MB // 4096))))
    assert answer.startswith(b"HTTP/1.1 400"), answer[:200]
    assert b"Chunked request body exceeds maximum of 65536 non-empty chunks" in answer
    assert main_server.rss_bytes() - before < 12 * MB + 16 * MB
    assert max(seconds) < 1


@pytest.mark.ours
def test_D17_a_body_of_one_large_chunk(main_server):
    size = 16 * MB
    raw = struct.pack("<I", size) + b"y" * size
    head = json.dumps({"inputs": [{"name": "IN", "datatype": "BYTES", "shape": [1, 1], "parameters": {"binary_data_size": len(raw)}}],
                       "outputs": [{"name": "OUT", "parameters": {"binary_data": True}}]}).encode()  # fmt: skip
    body = head + raw
    before = main_server.rss_bytes()
    answer, seconds = while_watched(
        main_server,
        lambda: send_chunks(
            main_server, [b"%x\r\n" % len(body), body, b"\r\n0\r\n\r\n"], headers=[f"inference-header-content-length: {len(head)}"]
        ),
    )
    assert answer.startswith(b"HTTP/1.1 200"), answer[:200]
    assert answer.endswith(b"y" * 1000)
    assert main_server.rss_bytes() - before < 4 * len(body) + 16 * MB
    assert max(seconds) < 1


def bomb(kind, total):
    """`total` zero bytes compressed: blocks that end with a full flush can be repeated."""
    window = {"gzip": 31, "deflate": 15}[kind]
    block_size = 16 * MB
    first = zlib.compressobj(9, zlib.DEFLATED, window)
    start = first.compress(bytes(block_size)) + first.flush(zlib.Z_FULL_FLUSH)
    raw = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = raw.compress(bytes(block_size)) + raw.flush(zlib.Z_FULL_FLUSH)
    return start + block * (total // block_size - 1) + b"\x03\x00" + bytes(8)


@pytest.mark.ours  # it ends the real 2.51
@pytest.mark.parametrize("kind", ["gzip", "deflate"])
def test_D18_decompression_bomb(main_server, kind):
    body = bomb(kind, 10_000 * MB)
    assert len(body) < 12 * MB
    call(main_server, "GET", "/v2/health/live")
    before = main_server.rss_bytes()
    peak, stop = [before], threading.Event()

    def measure():
        while not stop.is_set():
            peak[0] = max(peak[0], main_server.rss_bytes())
            time.sleep(0.005)

    thread = threading.Thread(target=measure)
    thread.start()
    begin = time.monotonic()
    answer = call(main_server, "POST", infer_path("identity_fp32"), body, {"Content-Encoding": kind})
    seconds = time.monotonic() - begin
    stop.set()
    thread.join()
    assert answer.status in (400, 413), answer.body[:300]
    assert "Decompressed data size exceeds the maximum allowed value of 67108864 bytes" in answer.error()
    assert seconds < 1, seconds
    assert peak[0] - before < 64 * MB + len(body) + 96 * MB, f"{(peak[0] - before) / MB:.0f} MB"
    still_serves(main_server)


def test_D18_nested_encodings(main_server):
    body = gzip.compress(gzip.compress(json.dumps({"inputs": [fp32([1, 1], [1])]}).encode()))
    for encoding in ("gzip, gzip", "gzip,deflate"):
        answer = call(main_server, "POST", infer_path("identity_fp32"), body, {"Content-Encoding": encoding})
        assert answer.status in (400, 413, 501) and answer.error(), answer.body
    still_serves(main_server)


@pytest.mark.ours
@pytest.mark.parametrize("kind", ["gzip", "deflate"])
def test_D18_a_body_that_is_not_compressed(main_server, kind):
    for body in (b"not compressed at all", b"", b"\x1f\x8b\x08\x00"):
        answer = call(main_server, "POST", infer_path("identity_fp32"), body, {"Content-Encoding": kind})
        assert answer.status in (400, 500) and answer.error()


BAD_NAMES = ["..", "a/b", "../x", "model/", "/etc", "..\\..\\x/.."]
BLANK_NAMES = ["", " ", "\t"]
GOOD_NAMES = ["...", "model..1", "..my_model", "m; touch marker"]


@pytest.fixture(scope="module")
def explicit_server(tmp_path_factory):
    root = tmp_path_factory.mktemp("explicit")
    Repository(root / "outside").echo("x", "FP32", [1])
    Repository(root / "repository").echo("inside", "FP32", [1])
    with ServerProcess(root / "repository", "--model-control-mode=explicit") as server:
        server.root = root
        yield server


def load_over_grpc(server, name):
    with grpc_runtime.insecure_channel(server.grpc) as channel:
        request = service_pb2.RepositoryModelLoadRequest(model_name=name)
        try:
            service_pb2_grpc.GRPCInferenceServiceStub(channel).RepositoryModelLoad(request, timeout=30)
        except grpc_runtime.RpcError as error:
            return error.code().name, error.details()
    return "OK", ""


def snapshot(root):
    return sorted((str(path), path.stat().st_mtime_ns) for path in Path(root).rglob("*"))


@pytest.mark.ours
@pytest.mark.parametrize("name", BAD_NAMES + BLANK_NAMES)
def test_D19_bad_model_names(explicit_server, name):
    before = snapshot(explicit_server.root)
    code, text = load_over_grpc(explicit_server, name)
    assert code == "INVALID_ARGUMENT", text
    assert ("Model name cannot be empty" if not name.strip() else "must not contain path traversal characters") in text
    if name:
        escaped = "".join(f"%{byte:02x}" for byte in name.encode())
        answer = call(explicit_server, "POST", f"/v2/repository/models/{escaped}/load")
        assert answer.status == 400, answer.body
    assert snapshot(explicit_server.root) == before


@pytest.mark.ours
@pytest.mark.parametrize("name", GOOD_NAMES)
def test_D19_odd_names_are_only_unknown(explicit_server, name):
    before = snapshot(explicit_server.root)
    code, text = load_over_grpc(explicit_server, name)
    assert code != "OK" and "failed to poll from model repository" in text, (code, text)
    assert snapshot(explicit_server.root) == before


@pytest.mark.ours
def test_D19_raw_paths(explicit_server):
    for path in ("/v2/repository/models/../load", "/v2/repository/models/%2e%2e/load", "/v2/repository/models//load",
                 "/v2/repository/models/../../x/load"):  # fmt: skip
        answer = call(explicit_server, "POST", path)
        assert answer.status in (400, 404), (path, answer.status, answer.body)
        assert answer.error()


@pytest.mark.ours
def test_D19_override_files_stay_inside(explicit_server):
    before = snapshot(explicit_server.root)
    body = {"parameters": {"config": '{"backend":"identity"}', "file:../../x": "eA=="}}
    answer = post_json(explicit_server, "/v2/repository/models/inside/load", body)
    assert answer.status in (400, 500, 501), answer.body
    assert snapshot(explicit_server.root) == before
