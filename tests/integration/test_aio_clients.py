"""The asyncio clients of tritonclient, and many clients at once."""

import asyncio

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.grpc.aio as grpc_aio
import tritonclient.http as http_client
import tritonclient.http.aio as http_aio
from tritonclient.utils import InferenceServerException

from nereid_testing.protocols import sample

MODULES = {"http": (http_aio, http_client), "grpc": (grpc_aio, grpc_client)}


@pytest.fixture(params=["http", "grpc"])
def aio(request, main_server):
    """(make a client, module with InferInput) of one protocol; clients are made inside a running loop."""
    module, classes = MODULES[request.param]
    if request.param == "http":
        return lambda: module.InferenceServerClient(main_server.http), classes
    # every client a connection of its own
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
    return lambda: module.InferenceServerClient(main_server.grpc, channel_args=options), classes


def make_input(classes, array, datatype, name="IN"):
    tensor = classes.InferInput(name, list(array.shape), datatype)
    tensor.set_data_from_numpy(array)
    return tensor


def test_health_metadata_and_statistics(aio):
    make, _ = aio

    async def work():
        client = make()
        try:
            assert await client.is_server_live() and await client.is_server_ready()
            assert await client.is_model_ready("echo_all")
            assert await client.get_server_metadata()
            assert await client.get_model_metadata("echo_all")
            assert await client.get_model_config("echo_all")
            assert await client.get_model_repository_index()
            assert await client.get_inference_statistics("echo_all")
        finally:
            await client.close()

    asyncio.run(work())


@pytest.mark.parametrize("datatype", ["BOOL", "INT64", "UINT64", "FP16", "FP32", "FP64", "BYTES"])
def test_infer(aio, datatype):
    make, classes = aio
    array = sample(datatype, (3, 5))

    async def work():
        client = make()
        try:
            return await client.infer(f"identity_{datatype.lower()}", [make_input(classes, array, datatype)])
        finally:
            await client.close()

    got = asyncio.run(work()).as_numpy("OUT")
    assert got.tolist() == array.tolist() and got.dtype == array.dtype


def test_error(aio):
    make, classes = aio

    async def work():
        client = make()
        try:
            await client.infer("nobody", [make_input(classes, np.zeros((1, 1), np.float32), "FP32")])
        finally:
            await client.close()

    with pytest.raises(InferenceServerException, match="Request for unknown model: 'nobody' is not found"):
        asyncio.run(work())


def test_200_parallel_clients(aio):
    """Each with a connection of its own; every answer belongs to its own question."""
    make, classes = aio

    async def one_client(number):
        client = make()
        try:
            for round_number in range(5):
                value = number * 100 + round_number
                array = np.full((1, 50), value, np.int32)
                result = await client.infer(
                    "identity_int32", [make_input(classes, array, "INT32")], request_id=str(value)
                )
                response = result.get_response()
                assert (response["id"] if isinstance(response, dict) else response.id) == str(value)
                assert (result.as_numpy("OUT") == value).all()
        finally:
            await client.close()

    async def work():
        await asyncio.gather(*(one_client(number) for number in range(200)))

    asyncio.run(work())


def test_grpc_aio_stream(main_server):
    async def requests():
        for index in range(50):
            tensor = make_input(grpc_client, np.full((1, 2), index, np.float32), "FP32")
            yield {"model_name": "identity_fp32", "inputs": [tensor], "request_id": str(index)}

    async def work():
        client = grpc_aio.InferenceServerClient(main_server.grpc)
        got = []
        try:
            async for result, error in client.stream_infer(requests()):
                assert error is None
                got.append((result.get_response().id, result.as_numpy("OUT")[0, 0]))
        finally:
            await client.close()
        return got

    assert asyncio.run(work()) == [(str(index), index) for index in range(50)]


def test_cancelled_task(main_server):
    """Cancelling the task of a grpc.aio call cancels the call."""

    async def work():
        client = grpc_aio.InferenceServerClient(main_server.grpc)
        try:
            tensor = make_input(grpc_client, np.zeros(1, np.float32), "FP32")
            task = asyncio.create_task(client.infer("slow_1000", [tensor]))
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises((asyncio.CancelledError, InferenceServerException)):
                await task
            assert await client.is_server_live()
        finally:
            await client.close()

    asyncio.run(work())
