"""Scenarios D34 (the source stops with its client) and D35 (streams that are cancelled at once)."""

import time

import grpc as grpc_core
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from nereid_testing.decoupled import (
    Stream,
    inflight,
    repeat_inputs,
    sent_responses,
    write_decoupled_repository,
)
from nereid_testing.observe import metric, wait_until
from nereid_testing.server import ServerProcess

pytestmark = pytest.mark.ours


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("streams")
    write_decoupled_repository(root)
    with ServerProcess(root) as each:
        yield each
        assert each.alive(), each.log()[-4000:]


def test_D34_the_source_stops_at_most_10_ms_after_the_client(server):
    stream = Stream(server)
    stream.send("repeat_int32", repeat_inputs(range(1000), 2))
    for _ in range(10):
        stream.good()
    stream.close(cancel_requests=True)
    time.sleep(0.010)
    sent = sent_responses(server, "repeat_int32")
    time.sleep(0.3)
    assert sent_responses(server, "repeat_int32") == sent
    assert sent < 1000
    assert inflight(server, "repeat_int32") == 0
    assert metric(server, "nv_inference_request_failure", model="repeat_int32", reason="CANCELED") == 1


def test_D35_a_thousand_streams_cancelled_at_once(server):
    channel = grpc_core.insecure_channel(server.grpc)
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)

    def request(model, arrays):
        message = service_pb2.ModelInferRequest(model_name=model)
        for name, array in arrays.items():
            datatype = "UINT32" if array.dtype == np.uint32 else "INT32"
            message.inputs.add(name=name, datatype=datatype, shape=array.shape)
            message.raw_input_contents.append(array.tobytes())
        return message

    messages = [
        ("slow_1000", request("slow_1000", {"IN": np.ones(1, np.int32)})),
        ("repeat_int32", request("repeat_int32", repeat_inputs(range(100), 1000))),
    ]
    for turn in range(1000):
        call = stub.ModelStreamInfer(iter([messages[turn % 2][1]]))
        if turn % 100 == 0:
            time.sleep(0.02)
        call.cancel()
    channel.close()
    for model, _ in messages:
        assert wait_until(lambda: inflight(server, model) == 0, 20), model  # noqa: B023
    stream = Stream(server)
    stream.send("repeat_int32", repeat_inputs([4]))
    assert stream.good().as_numpy("OUT").tolist() == [4]
    stream.close()
