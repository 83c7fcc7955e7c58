"""Decoupled models over gRPC streams: any number of responses, order, final flags, errors, cancel, slow clients."""

import asyncio
import json
import os
import re
import subprocess
import time

import grpc as grpc_core
import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.grpc.aio as aio_client
import tritonclient.http as http_client
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from nereid_testing.decoupled import (
    Stream,
    grpc_inputs,
    inflight,
    is_final,
    repeat_inputs,
    sent_responses,
    write_decoupled_repository,
)
from nereid_testing.observe import metric, statistics, wait_until
from nereid_testing.protocols import PROTOCOLS
from nereid_testing.server import ServerProcess

from test_perf_analyzer import PERF_ANALYZER

pytestmark = pytest.mark.ours


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("decoupled")
    write_decoupled_repository(root)
    with ServerProcess(root, "--metrics-config=histogram_latencies=true") as each:
        yield each
        for model in ("repeat_int32", "repeat_large", "repeat_many", "square_int32", "slow_1000"):
            assert wait_until(lambda: inflight(each, model) == 0, 10), model  # noqa: B023
        assert each.alive(), each.log()[-4000:]


@pytest.fixture
def stream(server):
    each = Stream(server)
    yield each
    each.close()


def values(result):
    return int(result.as_numpy("OUT").ravel()[0]), int(result.as_numpy("IDX").ravel()[0])


def test_many_responses_in_order(stream):
    stream.send("repeat_int32", repeat_inputs(range(100)), "7")
    for index in range(100):
        result = stream.good()
        assert values(result) == (index, index)
        assert result.get_response().id == "7"
        assert not is_final(result)
    stream.send("identity_int32", {"IN": np.array([5], np.int32)})
    assert is_final(stream.good()), "nothing came for the final flag alone"


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_empty_final_response_is_opt_in(stream, count):
    stream.send("repeat_int32", repeat_inputs(range(count)), "e", enable_empty_final_response=True)
    for index in range(count):
        assert values(stream.good()) == (index, index)
    final = stream.good().get_response()
    assert (final.id, final.model_name, len(final.outputs)) == ("e", "repeat_int32", 0)
    assert final.parameters["triton_final_response"].bool_param
    stream.send("repeat_int32", repeat_inputs([]), "none")
    stream.send("identity_int32", {"IN": np.array([5], np.int32)}, "next")
    assert stream.good().get_response().id == "next"


def test_requests_of_a_stream_are_interleaved(stream):
    stream.send("repeat_int32", repeat_inputs(range(3), 150), "slow")
    stream.send("repeat_int32", repeat_inputs(range(50)), "fast")
    stream.send("identity_int32", {"IN": np.array([5], np.int32)}, "ordinary")
    ids = [stream.good().get_response().id for _ in range(54)]
    assert ids[-3:] == ["slow"] * 3
    assert ids.count("fast") == 50 and ids.count("ordinary") == 1


def test_many_requests_on_many_streams(server):
    streams = [Stream(server) for _ in range(10)]
    for each in streams:
        for number in range(20):
            each.send("repeat_int32", repeat_inputs([number] * 25), str(number))
    for each in streams:
        seen = {}
        for _ in range(500):
            result = each.good()
            number = result.get_response().id
            assert values(result) == (int(number), seen.get(number, 0))
            seen[number] = seen.get(number, 0) + 1
        each.close()


def test_unary_calls_are_refused(server):
    arrays = repeat_inputs([1])
    grpc = grpc_client.InferenceServerClient(server.grpc)
    with pytest.raises(InferenceServerException) as refusal:
        grpc.infer("repeat_int32", grpc_inputs(grpc_client, arrays))
    assert refusal.value.message() == "ModelInfer RPC doesn't support models with decoupled transaction policy"
    assert "UNIMPLEMENTED" in str(refusal.value.status())
    grpc.close()
    http = http_client.InferenceServerClient(server.http)
    with pytest.raises(InferenceServerException) as refusal:
        http.infer("repeat_int32", grpc_inputs(http_client, arrays))
    assert refusal.value.message() == "HTTP end point doesn't support models with decoupled transaction policy"
    http.close()


def test_errors_are_responses_like_others(stream):
    stream.send("repeat_fail_3", repeat_inputs(range(6)), "f")
    kinds = [stream.next() for _ in range(6)]
    assert [error is not None for _, error in kinds] == [False, False, True, False, False, True]
    assert [values(result)[0] for result, error in kinds if error is None] == [0, 1, 3, 4]
    stream.send("repeat_int32", {**repeat_inputs([1]), "DELAY": np.array([1, 2], np.uint32)})
    assert "IN and DELAY shape to match" in stream.next()[1].message()
    stream.send("repeat_int32", {"IN": np.array([1], np.int32)})
    assert "expected 3 inputs but got 1" in stream.next()[1].message()
    stream.send("repeat_int32", repeat_inputs([4]))
    assert values(stream.good()) == (4, 0)


def test_an_error_can_end_the_stream(server):
    stream = Stream(server, headers={"triton_grpc_error": "true"})
    stream.send("repeat_int32", repeat_inputs([1] * 100, 1000), "long")
    stream.send("repeat_fail_3", repeat_inputs(range(3)), "f")
    assert [stream.next()[1] is None for _ in range(3)] == [True, True, False]
    assert wait_until(lambda: inflight(server, "repeat_int32") == 0, 5), "the other request was cancelled"
    stream.close()


def test_half_close_waits_for_all_responses(server):
    stream = Stream(server)
    stream.send("repeat_int32", repeat_inputs(range(5), 50))
    stream.close()
    assert [values(stream.good(1))[0] for _ in range(5)] == list(range(5))


def test_aio_client(server):
    async def run():
        async with aio_client.InferenceServerClient(server.grpc) as client:

            async def requests():
                for number in range(10):
                    inputs = grpc_inputs(aio_client, repeat_inputs([number] * 10))
                    yield {"model_name": "repeat_int32", "inputs": inputs, "request_id": str(number)}

            seen = {}
            async for result, error in client.stream_infer(requests()):
                assert error is None
                seen.setdefault(result.get_response().id, []).append(values(result))
            return seen

    seen = asyncio.run(asyncio.wait_for(run(), 30))
    assert seen == {str(number): [(number, index) for index in range(10)] for number in range(10)}


def test_model_that_breaks_its_promise_of_one_response(server, stream):
    """A stream gets the first, as of the reference; elsewhere it is an error."""
    stream.send("repeat_single", repeat_inputs([7, 8]), "r")
    assert values(stream.good()) == (7, 0)
    for protocol in PROTOCOLS.values():
        client = protocol(server)
        with pytest.raises(InferenceServerException, match="expected a single response, got 2"):
            client.infer("repeat_single", repeat_inputs([7, 8]))
        assert values(client.infer("repeat_single", repeat_inputs([7]))) == (7, 0)
        client.close()
    assert wait_until(lambda: inflight(server, "repeat_single") == 0)


def test_buckets_of_the_model(server, stream):
    stream.send("repeat_buckets", repeat_inputs([1], 50))
    stream.good()

    def bucket(**labels):
        return metric(server, "nv_inference_first_response_histogram_ms_bucket", model="repeat_buckets", **labels)

    assert wait_until(lambda: inflight(server, "repeat_buckets") == 0)
    assert [bucket(le="1"), bucket(le="10000"), bucket(le="+Inf"), bucket()] == [0, 1, 1, 2]


def test_statistics_of_requests(server, stream):
    def numbers():
        stats = statistics(server, "repeat_int32")
        return stats["inference_stats"]["success"]["count"], stats["inference_stats"]["success"]["ns"], stats["execution_count"]

    assert wait_until(lambda: inflight(server, "repeat_int32") == 0)
    before = numbers()
    first = metric(server, "nv_inference_first_response_histogram_ms_count", model="repeat_int32")
    stream.send("repeat_int32", repeat_inputs(range(3), [0, 0, 300]), enable_empty_final_response=True)
    stream.good()
    assert inflight(server, "repeat_int32") == 1
    assert numbers()[0] == before[0], "a success only with the final response"
    assert metric(server, "nv_inference_first_response_histogram_ms_count", model="repeat_int32") == first + 1
    while not is_final(stream.good()):
        pass
    assert wait_until(lambda: numbers()[0] == before[0] + 1)
    after = numbers()
    assert after[1] - before[1] >= 290e6
    assert after[2] == before[2] + 1
    assert inflight(server, "repeat_int32") == 0


EMPTY = {"compute_infer": 0, "compute_output": 0, "success": 0, "fail": 0, "empty_response": 0, "cancel": 0}


def check_response_stats(server, model, expected):
    """`expected`: {index: {kind: count}}; durations follow from the delays of the models, 100 ms and 50 ms."""
    found = statistics(server, model)["response_stats"]
    for index, counts in expected.items():
        row = found[str(index)]
        assert {kind: row[kind]["count"] for kind in EMPTY} == {**EMPTY, **counts}, index
        least = {"compute_infer": 95, "compute_output": 45, "success": 145, "fail": 145, "empty_response": 95, "cancel": 38}
        for kind, count in counts.items():
            # Counted from the response before: from the beginning it would be more, however busy the machine is.
            most = least[kind] * 1.5 + 300
            assert least[kind] * count <= row[kind]["ns"] / 1e6 <= most * count, (index, kind)
    grpc = grpc_client.InferenceServerClient(server.grpc)
    stats = grpc.get_inference_statistics(model, as_json=True)["model_stats"][0]["response_stats"]
    grpc.close()
    for index, row in found.items():
        for kind, value in row.items():
            assert int(stats[index][kind].get("count", 0)) == value["count"]
            assert int(stats[index][kind].get("ns", 0)) == value["ns"]


def test_response_statistics(server, stream):
    """L0_response_statistics: of n responses the last is empty, the two before it fail."""
    done = {"compute_infer": 1, "compute_output": 1, "success": 1}
    fail = {"compute_infer": 1, "compute_output": 1, "fail": 1}
    empty = {"compute_infer": 1, "empty_response": 1}
    total = {}
    for count in (4, 6, 3):
        stream.send("square_int32", {"IN": np.array([count], np.int32)})
        kinds = [done] * (count - 3) + [fail] * 2 + [empty]
        for kind in kinds[:-1]:
            result, error = stream.next()
            assert (error is None) == (kind is done)
        assert wait_until(lambda: inflight(server, "square_int32") == 0)
        for index, kind in enumerate(kinds):
            row = total.setdefault(index, {})
            for key, value in kind.items():
                row[key] = row.get(key, 0) + value
        check_response_stats(server, "square_int32", total)


def test_response_statistics_of_a_cancelled_request(server):
    stream = Stream(server)
    stream.send("square_cancel", {"IN": np.array([4], np.int32)})
    stream.good()
    stream.close(cancel_requests=True)
    assert wait_until(lambda: inflight(server, "square_cancel") == 0)
    done = {"compute_infer": 1, "compute_output": 1, "success": 1}
    check_response_stats(server, "square_cancel", {0: done, 1: done, 2: {"cancel": 1}})
    assert metric(server, "nv_inference_request_failure", model="square_cancel", reason="CANCELED") == 1


def open_raw_stream(server, model, arrays, message_bytes=-1):
    """A call whose responses are only read when asked for; the client does not widen its window when it is slow."""
    options = [("grpc.max_receive_message_length", message_bytes), ("grpc.http2.bdp_probe", 0)]
    channel = grpc_core.insecure_channel(server.grpc, options=options)
    request = service_pb2.ModelInferRequest(model_name=model)
    for name, array in arrays.items():
        datatype = {"IN": "INT32", "DELAY": "UINT32", "WAIT": "UINT32"}[name]
        request.inputs.add(name=name, datatype=datatype, shape=array.shape)
        request.raw_input_contents.append(array.tobytes())
    call = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(iter([request]))
    return channel, call


def test_a_slow_client_stops_the_model(server):
    """1 GB in responses of 1 MB: the model goes no further than the client reads, and all arrives in order."""
    before, start = sent_responses(server, "repeat_large"), server.rss_bytes()
    channel, call = open_raw_stream(server, "repeat_large", repeat_inputs([3]))
    next(call)
    time.sleep(1)
    made = sent_responses(server, "repeat_large") - before
    assert made < 60, "a few in buffers on the way"
    time.sleep(0.5)
    assert sent_responses(server, "repeat_large") - before == made, "it waits"
    peak = server.rss_bytes()
    for index in range(1, 1000):
        response = next(call).infer_response
        assert np.frombuffer(response.raw_output_contents[1], np.uint32)[0] == index
        assert len(response.raw_output_contents[0]) == 1 << 20
        if index % 50 == 0:
            peak = max(peak, server.rss_bytes())
    assert next(call, None) is None, "the end of the stream"
    assert peak - start < 200e6, f"memory grew by {(peak - start) / 1e6:.0f} MB"
    channel.close()


def test_a_client_that_leaves_in_the_middle_frees_the_model(server):
    for leave in ("cancel", "close"):
        channel, call = open_raw_stream(server, "repeat_large", repeat_inputs([3]))
        next(call)
        assert wait_until(lambda: inflight(server, "repeat_large") == 1)
        getattr(call if leave == "cancel" else channel, leave)()
        assert wait_until(lambda: inflight(server, "repeat_large") == 0, 5), leave
        channel.close()


def test_a_pool_of_one_response(start, tmp_path):
    """L0_decoupled with --grpc-max-response-pool-size=1: the same answers."""
    write_decoupled_repository(tmp_path / "repository")
    server = start(tmp_path / "repository", "--grpc-max-response-pool-size=1")
    stream = Stream(server)
    for number in range(5):
        stream.send("repeat_int32", repeat_inputs(range(20)), str(number), enable_empty_final_response=True)
    seen = {}
    for _ in range(5 * 21):
        result = stream.good()
        seen.setdefault(result.get_response().id, []).append(is_final(result) or values(result))
    rows = [(index, index) for index in range(20)]
    assert seen == {str(number): [*rows, True] for number in range(5)}
    stream.close()


@pytest.mark.skipif(PERF_ANALYZER is None, reason="perf_analyzer is not installed (NEREID_REFERENCE_DIR)")
def test_perf_analyzer_decoupled(server, tmp_path):
    row = {"IN": {"content": [1, 2, 3], "shape": [3]}, "DELAY": {"content": [1, 1, 1], "shape": [3]}, "WAIT": [0]}
    data = tmp_path / "data.json"
    data.write_text(json.dumps({"data": [row]}))
    command = [PERF_ANALYZER, "-m", "repeat_int32", "-u", server.grpc, "-i", "grpc", "--async", "--streaming",
               f"--input-data={data}", "--concurrency-range=4", "--measurement-interval=250", "-s", "900", "-r", "10"]  # fmt: skip
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, env=dict(os.environ))
    output = run.stdout + run.stderr
    responses = re.search(r"Response Throughput: ([\d.]+)", output)
    assert run.returncode == 0, output
    assert responses and float(responses.group(1)) > 0, output
