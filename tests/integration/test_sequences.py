"""Sequence batching through tritonclient: http, grpc, grpc streams, asyncio; direct, oldest, iterative."""

import asyncio
import json
import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.grpc.aio as grpc_aio
import tritonclient.http as http_client
import tritonclient.http.aio as http_aio
from tritonclient.utils import InferenceServerException

from nereid_testing import sequence_models as sequences
from nereid_testing.observe import batch_sizes, metric, pending, statistics, wait_until
from nereid_testing.protocols import PROTOCOLS, GrpcProtocol, HttpProtocol, status_of
from nereid_testing.raw_http import call
from nereid_testing.repository import Repository
from nereid_testing.sequence_models import row, step, walk
from nereid_testing.server import ServerProcess

pytestmark = pytest.mark.ours

ID_TYPES = ("UINT64", "INT64", "UINT32", "INT32")
STRATEGIES = {"direct": "direct { }", "oldest": "oldest { max_candidate_sequences: 4 }"}
ONE_TURN = {
    "plain_turn": "",
    "dynamic_turn": "dynamic_batching { }",
    "sequence_turn": f"sequence_batching {{ {sequences.flag_controls('START', 'END', 'READY')} }}",
}
NO_TURN = (
    "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not configured to handle such a flag."
)
START_ERROR = "must specify the START flag on the first request of the sequence"
LATE = "timeout of the corresponding sequence has been expired"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    repository = Repository(tmp_path_factory.mktemp("sequences") / "repository")
    sequences.add_sequence(repository, "direct")
    sequences.add_sequence(repository, "flat", max_batch_size=0)
    sequences.add_sequence(repository, "two_slots", max_batch_size=2)
    sequences.add_sequence(repository, "slow_direct", parameters={"execute_delay_ms": 100})
    sequences.add_sequence(repository, "full", "direct { minimum_slot_utilization: 1.0 max_queue_delay_microseconds: 3000000 }")
    sequences.add_sequence(repository, "half", "direct { minimum_slot_utilization: 0.5 max_queue_delay_microseconds: 2500000 }")
    sequences.add_sequence(repository, "one_slot", max_batch_size=1)
    sequences.add_sequence(repository, "impatient", max_batch_size=1, idle_s=1.2)
    sequences.add_sequence(repository, "wide", dims=-1)
    sequences.add_sequence(repository, "pair", max_batch_size=1, instances=2)
    sequences.add_dyna_sequence(repository, "oldest")
    sequences.add_dyna_sequence(repository, "oldest_impatient", idle_s=1.2)
    sequences.add_dyna_sequence(repository, "slow_oldest", parameters={"execute_delay_ms": 100})
    sequences.add_dyna_sequence(
        repository, "joined", "oldest { max_candidate_sequences: 4 preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 2000000 }"
    )
    for name, strategy in STRATEGIES.items():
        sequences.add_dyna_sequence(repository, f"{name}_string", strategy, id_type="TYPE_STRING")
        for id_type in ID_TYPES:
            sequences.add_id_echo(repository, f"{name}_{id_type.lower()}", strategy, id_type)
    sequences.add_sequence(
        repository,
        "ragged",
        "direct { minimum_slot_utilization: 0.5 max_queue_delay_microseconds: 2000000 }",
        dims=-1,
        input_more="allow_ragged_batch: true",
    )
    sequences.add_iterative(repository, "iterative")
    sequences.add_iterative(repository, "iterative_direct", "direct { }")
    for name, scheduler in ONE_TURN.items():
        sequences.add_one_turn(repository, name, scheduler)
    with ServerProcess(repository.root) as each:
        yield each
        for model in repository.model_names():
            assert wait_until(lambda: pending(each, model) == 0), f"{model} has requests left"
        assert each.alive(), f"the server died:\n{each.log()[-4000:]}"


@pytest.fixture(params=["http", "grpc"])
def client(request, server):
    each = PROTOCOLS[request.param](server)
    yield each
    each.close()


@pytest.fixture
def pool(server, client):
    """Sends requests in threads, each with a client of its own."""
    kind = type(client)

    def send(*args, **options):
        own = kind(server)
        try:
            return step(own, *args, **options)
        finally:
            own.close()

    with ThreadPoolExecutor(16) as threads:
        yield lambda *args, **options: threads.submit(send, *args, **options)


class Stream:
    """An open gRPC stream that collects its answers."""

    def __init__(self, server, **options):
        self.protocol = GrpcProtocol(server)
        self.answers = queue.Queue()
        self.protocol.client.start_stream(lambda result, error: self.answers.put((result, error)), **options)

    def send(self, model, value, sequence=0, start=False, end=False, **options):
        self.protocol.client.async_stream_infer(
            model, self.protocol.inputs(row(value)), sequence_id=sequence, sequence_start=start, sequence_end=end, **options
        )

    def next(self, timeout=20):
        return self.answers.get(timeout=timeout)

    def sums(self, count):
        got = []
        for _ in range(count):
            result, error = self.next()
            assert error is None, error
            got.append(int(result.as_numpy("OUTPUT").ravel()[0]))
        return got

    def close(self, cancel_requests=False):
        self.protocol.client.stop_stream(cancel_requests=cancel_requests)
        self.protocol.close()


@pytest.fixture
def stream(server):
    each = Stream(server)
    yield each
    each.close()


def fails(client, *args, **options):
    """The status and text of a refused request."""
    with pytest.raises(InferenceServerException) as caught:
        step(client, *args, **options)
    return status_of(caught.value, client), caught.value.message()


BAD_REQUEST = {"http": "400", "grpc": "INVALID_ARGUMENT"}


@pytest.mark.parametrize("model", ["direct", "oldest", "two_slots", "pair"])
@pytest.mark.parametrize("identity", [5, 2**63 - 5])
def test_a_sequence_adds_up(client, model, identity):
    extra = int(np.uint64(identity).astype(np.int32)) if model == "oldest" else 0
    assert walk(client, model, identity, [1, 2, 3]) == [1, 3, 6 + extra]
    assert walk(client, model, identity, [7]) == [7 + extra], "an id can be used again"


def test_a_model_without_batching(client):
    def send(value, **flags):
        result = client.infer("flat", {"INPUT": np.int32([value])}, sequence_id=3, **flags)
        return result.as_numpy("OUTPUT").tolist()

    assert [send(1, sequence_start=True), send(2), send(3, sequence_end=True)] == [[1], [3], [6]]


@pytest.mark.parametrize("model", ["direct", "oldest"])
def test_interleaved_sequences(client, model):
    values = {sid: range(1, 5 + sid) for sid in (1, 2, 3)}
    sums = {sid: [] for sid in values}
    for turn in range(8):
        for sid, given in values.items():
            if turn < len(given):
                sums[sid].append(step(client, model, given[turn], sid, turn == 0, turn == len(given) - 1))
    for sid, given in values.items():
        expected = np.cumsum(given).tolist()
        expected[-1] += sid if model == "oldest" else 0
        assert sums[sid] == expected


@pytest.mark.parametrize("model", ["direct", "oldest", "two_slots", "one_slot", "pair"])
def test_many_sequences_at_once(server, model):
    """More sequences than slots, from threads with clients of their own: no sum is ever another one's."""

    def run(sid):
        own = (HttpProtocol if sid % 2 else GrpcProtocol)(server)
        try:
            return walk(own, model, sid, [sid] * 10)
        finally:
            own.close()

    ids = range(100, 124)
    with ThreadPoolExecutor(24) as threads:
        results = list(threads.map(run, ids))
    for sid, sums in zip(ids, results):
        expected = [sid * turn for turn in range(1, 11)]
        expected[-1] += sid if model == "oldest" else 0
        assert sums == expected
    assert wait_until(lambda: pending(server, model) == 0)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("id_type", ID_TYPES)
def test_numbers_as_ids(client, strategy, id_type):
    """The id as the model sees it: cut to the size of its type."""
    model = f"{strategy}_{id_type.lower()}"
    numpy_type = np.dtype(id_type.lower())
    for identity in (1, 123456, 2**31 + 3, 2**32 + 5, 2**63 - 7):
        seen = int(np.uint64(identity).astype(numpy_type).astype(np.int64))
        flags = {"sequence_id": identity, "sequence_start": True, "sequence_end": True}
        result = client.infer(model, {"INPUT": np.int64([[10]])}, **flags)
        assert (int(result.as_numpy("OUTPUT").ravel()[0]) - seen - 10) % 2**64 == 0
    flags["sequence_id"] = "123"
    with pytest.raises(InferenceServerException) as caught:
        client.infer(model, {"INPUT": np.int64([[10]])}, **flags)
    assert status_of(caught.value, client) == BAD_REQUEST[client.name]
    text = f"sequence batching control 'CORRID' data-type is 'BYTES', but model '{model}' expects '{id_type}'"
    assert text in caught.value.message()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_texts_as_ids(client, strategy):
    model = f"{strategy}_string"
    assert walk(client, model, "123456", [1, 2]) == [1, 3 + 123456]
    status, text = fails(client, model, 1, 123456, True, True)
    assert status == BAD_REQUEST[client.name]
    assert f"sequence batching control 'CORRID' data-type is 'UINT64', but model '{model}' expects 'BYTES'" in text


@pytest.mark.parametrize("model", ["direct", "oldest"])
def test_refused_requests(client, model):
    refused = BAD_REQUEST[client.name]
    status, text = fails(client, model, 1, 4711)
    assert (status, text.endswith(f"inference request for sequence 4711 to model '{model}' {START_ERROR}")) == (refused, True)
    walk(client, model, 4711, [1, 2])
    assert START_ERROR in fails(client, model, 1, 4711)[1], "after END the id is unknown again"
    with pytest.raises(InferenceServerException) as caught:
        client.infer(model, row(1))
    assert f"inference request to model '{model}' must specify a non-zero or non-empty correlation ID" in caught.value.message()
    assert status_of(caught.value, client) == refused
    two = {"INPUT": np.ones((2, 1), np.int32)}
    with pytest.raises(InferenceServerException, match=f"'{model}' must specify batch-size 1 due to requirements of sequence batcher"):
        client.infer(model, two, sequence_id=1, sequence_start=True, sequence_end=True)
    control = {**row(1), "START": np.ones((1, 1), np.int32)}
    with pytest.raises(InferenceServerException):
        client.infer(model, control, sequence_id=1, sequence_start=True, sequence_end=True)


def test_text_ids(client):
    """A model without CORRID takes texts and numbers; they are never the same id."""
    assert step(client, "direct", 1, "42", True) == 1
    assert START_ERROR in fails(client, "direct", 1, 42)[1]
    assert step(client, "direct", 10, 42, True) == 10
    assert step(client, "direct", 1, "42", end=True) == 2
    assert step(client, "direct", 10, 42, end=True) == 20
    assert "for sequence zażółć" in fails(client, "direct", 1, "zażółć")[1]


def test_start_again_without_end(client):
    assert [step(client, "direct", 5, 9, True), step(client, "direct", 1, 9)] == [5, 6]
    assert [step(client, "direct", 10, 9, True), step(client, "direct", 1, 9, end=True)] == [10, 11]


def test_backlog(client, pool):
    """D27 and more: with every slot taken a sequence waits; those behind it keep their order."""
    assert step(client, "one_slot", 1, 1, True) == 1
    second = pool("one_slot", 10, 2, True)
    time.sleep(0.2)
    third = pool("one_slot", 100, 3, True, True)
    time.sleep(0.3)
    assert not second.done() and not third.done()
    assert step(client, "one_slot", 1, 1, end=True) == 2
    assert second.result(10) == 10
    assert not third.done()
    assert step(client, "one_slot", 10, 2, end=True) == 20
    assert third.result(10) == 100


def test_backlog_timeout(server, client, pool):
    before = metric(server, "nv_inference_request_failure", model="one_slot", reason="REJECTED")
    assert step(client, "one_slot", 1, 1, True) == 1
    begin = time.monotonic()
    status, text = fails(client, "one_slot", 10, 2, True, timeout=400_000)
    assert 0.3 < time.monotonic() - begin < 5
    assert LATE in text and status == {"http": "503", "grpc": "UNAVAILABLE"}[client.name]
    assert START_ERROR in fails(client, "one_slot", 10, 2)[1]
    assert step(client, "one_slot", 1, 1, end=True) == 2, "the running sequence is not touched"
    assert metric(server, "nv_inference_request_failure", model="one_slot", reason="REJECTED") == before + 1
    assert step(client, "one_slot", 5, 3, True, True, timeout=1) == 5, "with a free slot there is no timeout"


@pytest.mark.parametrize("model", ["impatient", "oldest_impatient"])
def test_idle_sequences_are_forgotten(client, pool, model):
    assert step(client, model, 1, 1, True) == 1
    for _ in range(3):
        time.sleep(0.5)
        step(client, model, 1, 1)
    assert step(client, model, 1, 1) == 5, "five requests in 1.5 seconds at a limit of 1.2 seconds"
    if model == "impatient":
        assert pool(model, 10, 2, True, True).result(10) == 10, "the slot becomes free"
    else:
        time.sleep(1.8)
    assert START_ERROR in fails(client, model, 1, 1)[1]


def test_a_backlog_at_the_end_is_answered(server):
    """D29: END drops nothing, however short the idle limit is."""
    stream = Stream(server)
    try:
        for index in range(22):
            stream.send("slow_direct", 1, 8, index == 0, index == 21)
            time.sleep(0.02)
        assert stream.sums(22) == list(range(1, 23))
    finally:
        stream.close()


def test_direct_keeps_the_place(server, client, pool):
    before = batch_sizes(server, "full")
    begin = time.monotonic()
    starts = [pool("full", sid, sid, True) for sid in (1, 2, 3, 4)]
    assert [f.result(10) for f in starts] == [1, 2, 3, 4]
    assert time.monotonic() - begin < 2.5, "all four slots had a request: nothing to wait for"
    ends = [pool("full", sid, sid, False, True) for sid in (1, 2, 3, 4)]
    assert [f.result(10) for f in ends] == [2, 4, 6, 8]
    added = batch_sizes(server, "full").get(4, 0) - before.get(4, 0)
    assert added == 2, "two batches of four"


def test_direct_utilization(client, pool):
    begin = time.monotonic()
    assert step(client, "half", 1, 1, True) == 1
    assert time.monotonic() - begin > 2.4, "one of four slots: the delay counts"
    begin = time.monotonic()
    both = [pool("half", 1, 1, False, True), pool("half", 5, 2, True, True)]
    assert [f.result(10) for f in both] == [2, 5]
    assert time.monotonic() - begin < 2.3, "two of four slots: at once"


def test_direct_other_shapes(client, server):
    """Sequences of different shapes do not share a batch, and stay right."""

    def send(sid, size, **flags):
        own = type(client)(server)
        try:
            return own.infer("wide", {"INPUT": np.full((1, size), sid, np.int32)}, sequence_id=sid, **flags).as_numpy("OUTPUT").tolist()
        finally:
            own.close()

    with ThreadPoolExecutor(4) as threads:
        for turn in range(1, 6):
            flags = {"sequence_start": turn == 1, "sequence_end": turn == 5}
            futures = [threads.submit(send, sid, sid, **flags) for sid in (1, 2, 3)]
            assert [f.result(10) for f in futures] == [[[sid * sid * turn] * sid] for sid in (1, 2, 3)]


def test_direct_ragged(client, server):
    """With allow_ragged_batch sequences of different shapes share the batch."""
    before = batch_sizes(server, "ragged")

    def send(sid, size):
        own = type(client)(server)
        try:
            flags = {"sequence_id": sid, "sequence_start": True, "sequence_end": True}
            return own.infer("ragged", {"INPUT": np.full((1, size), sid, np.int32)}, **flags).as_numpy("OUTPUT").tolist()
        finally:
            own.close()

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(send, (1, 2), (1, 3))) == [[[1]], [[6, 6, 6]]]
    assert batch_sizes(server, "ragged").get(2, 0) - before.get(2, 0) == 1


def test_oldest_joins_sequences(server, client, pool):
    before = batch_sizes(server, "joined")
    begin = time.monotonic()
    assert sorted(f.result(10) for f in [pool("joined", sid, sid, True) for sid in (1, 2, 3, 4)]) == [1, 2, 3, 4]
    assert time.monotonic() - begin < 1.8
    ends = [pool("joined", sid, sid, False, True) for sid in (1, 2, 3, 4)]
    assert [f.result(10) for f in ends] == [3, 6, 9, 12]
    assert batch_sizes(server, "joined").get(4, 0) - before.get(4, 0) == 2


@pytest.mark.parametrize("model", ["direct", "oldest", "slow_oldest"])
def test_order_on_one_stream(stream, model):
    """Sent at once, executed in order; the server reads on while requests wait."""
    for index in range(12):
        stream.send(model, index, 21, index == 0, index == 11)
    expected = np.cumsum(range(12)).tolist()
    expected[-1] += 0 if model == "direct" else 21
    assert stream.sums(12) == expected


@pytest.mark.parametrize("model", ["slow_direct", "slow_oldest", "one_slot"])
def test_an_id_used_again_before_its_end_was_reached(stream, model):
    """END and the next START of the same id are sent at once: two sequences, whether by END or without it."""
    for value, start, end in ((1, True, False), (2, False, True), (10, True, False), (20, True, False), (5, False, True)):
        stream.send(model, value, 81, start, end)
    extra = 81 if model == "slow_oldest" else 0
    assert stream.sums(5) == [1, 3 + extra, 10, 20, 25 + extra]


def test_two_sequences_and_an_error_on_one_stream(stream):
    stream.send("direct", 1, 31, True)
    stream.send("direct", 10, "thirty-two", True)
    stream.send("direct", 5, 33)
    stream.send("direct", 1, 31, end=True)
    stream.send("direct", 10, "thirty-two", end=True)
    answers = [stream.next() for _ in range(5)]
    assert START_ERROR in answers[2][1].message()
    sums = [int(result.as_numpy("OUTPUT").ravel()[0]) for result, error in answers if error is None]
    assert sums == [1, 10, 2, 20]


def test_a_sequence_belongs_to_no_connection(server, stream):
    stream.send("direct", 1, 41, True)
    assert stream.sums(1) == [1]
    for kind, flags in ((HttpProtocol, {}), (GrpcProtocol, {"end": True})):
        own = kind(server)
        step(own, "direct", 1, 41, **flags)
        own.close()
    stream.send("direct", 1, 41)
    assert START_ERROR in stream.next()[1].message()


@pytest.mark.parametrize("model", ["slow_direct", "slow_oldest"])
def test_cancelled_stream_ends_its_sequence(server, model):
    """Queued requests of the sequence are dropped, its slot is free at once, no other sequence notices."""
    before = metric(server, "nv_inference_request_failure", model=model, reason="CANCELED")
    other, stream = GrpcProtocol(server), Stream(server)
    try:
        assert step(other, model, 1, 52, True) == 1
        for index in range(10):
            stream.send(model, 1, 51, index == 0)
        assert stream.sums(1) == [1]
        stream.close(cancel_requests=True)
        assert wait_until(lambda: metric(server, "nv_inference_request_failure", model=model, reason="CANCELED") >= before + 8)
        assert START_ERROR in fails(other, model, 1, 51)[1]
        extra = 52 if model == "slow_oldest" else 0
        assert step(other, model, 1, 52, end=True) == 2 + extra
        assert wait_until(lambda: pending(server, model) == 0)
        assert step(other, model, 3, 51, True, True) == 3 + (51 if extra else 0), "the id begins anew"
    finally:
        other.close()


def test_client_that_goes_away_in_the_backlog(server):
    holder, waiter = HttpProtocol(server), GrpcProtocol(server)
    try:
        assert step(holder, "one_slot", 1, 1, True) == 1
        call = waiter.client.async_infer(
            "one_slot", waiter.inputs(row(1)), lambda result, error: None, sequence_id=2, sequence_start=True
        )
        assert wait_until(lambda: pending(server, "one_slot") == 1)
        call.cancel()
        assert wait_until(lambda: pending(server, "one_slot") == 0)
        assert START_ERROR in fails(holder, "one_slot", 1, 2)[1]
        assert step(holder, "one_slot", 1, 1, end=True) == 2
    finally:
        holder.close()
        waiter.close()


def test_statistics_do_not_count_null_requests(server, client):
    """Two sequences; only the one in the second slot goes on: the batch has two places, one request."""
    before = statistics(server, "two_slots")
    sizes = batch_sizes(server, "two_slots")
    step(client, "two_slots", 1, 61, True)
    step(client, "two_slots", 1, 62, True)
    assert step(client, "two_slots", 1, 62, end=True) == 2
    assert step(client, "two_slots", 1, 61, end=True) == 2
    after = statistics(server, "two_slots")
    assert after["inference_count"] - before["inference_count"] == 4
    assert after["execution_count"] - before["execution_count"] == 4
    grown = {size: count - sizes.get(size, 0) for size, count in batch_sizes(server, "two_slots").items()}
    assert grown == {1: 2, 2: 2}


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_asyncio_clients(server, kind):
    module, classes = {"http": (http_aio, http_client), "grpc": (grpc_aio, grpc_client)}[kind]

    async def run(client, model, sid):
        sums = []
        for index in range(6):
            tensor = classes.InferInput("INPUT", [1, 1], "INT32")
            tensor.set_data_from_numpy(np.full((1, 1), index, np.int32))
            flags = {"sequence_id": sid, "sequence_start": index == 0, "sequence_end": index == 5}
            result = await client.infer(model, [tensor], **flags)
            sums.append(int(result.as_numpy("OUTPUT").ravel()[0]))
        return sums

    async def work():
        client = module.InferenceServerClient(server.http if kind == "http" else server.grpc)
        try:
            ids = ["a", "b", 71, 72, 73, 74]
            return await asyncio.gather(*(run(client, "direct", sid) for sid in ids))
        finally:
            await client.close()

    assert asyncio.run(asyncio.wait_for(work(), 30)) == [[0, 1, 3, 6, 10, 15]] * 6


def test_iterative_over_a_stream(stream):
    for value in (4, 2):
        stream.send("iterative", value, request_id=str(value))
    got = {"4": [], "2": []}
    while any(not answers or answers[-1] > 0 for answers in got.values()):
        result, error = stream.next()
        assert error is None
        output = result.as_numpy("OUTPUT")
        if output is not None:
            got[result.get_response().id].append(int(output.ravel()[0]))
    assert got == {"4": [3, 2, 1, 0], "2": [1, 0]}


@pytest.mark.parametrize("model", ["iterative", "iterative_direct"])
def test_iterative_over_generate_stream(server, model):
    body = json.dumps({"INPUT": 3}).encode()
    answer = call(server, "POST", f"/v2/models/{model}/generate_stream", body)
    events = [json.loads(line[6:]) for line in answer.body.decode().split("\n") if line.startswith("data: ")]
    assert [event["OUTPUT"] for event in events] == [2, 1, 0]


@pytest.mark.parametrize("model", ONE_TURN)
def test_no_further_turn_without_iterative_scheduling(stream, model):
    stream.send(model, 5, 91, True, True)
    result, error = stream.next()
    assert result is None and NO_TURN in error.message()


def test_iterative_requests_share_the_slots(server):
    """More requests than slots; each gets all its turns, and nothing stays behind."""

    def run(value):
        own = Stream(server)
        try:
            own.send("iterative", value)
            got = []
            while not got or got[-1] > 0:
                result, error = own.next()
                assert error is None
                if result.as_numpy("OUTPUT") is not None:
                    got.append(int(result.as_numpy("OUTPUT").ravel()[0]))
            return got
        finally:
            own.close()

    values = range(1, 13)
    with ThreadPoolExecutor(12) as threads:
        assert list(threads.map(run, values)) == [list(range(v - 1, -1, -1)) for v in values]
    assert wait_until(lambda: pending(server, "iterative") == 0)
    stats = statistics(server, "iterative")["inference_stats"]
    assert stats["fail"]["count"] == 0


def test_delay_hooks(tmp_path, start, monkeypatch):
    """TRITONSERVER_DELAY_SCHEDULER and TRITONSERVER_BACKLOG_DELAY_SCHEDULER hold every request until so many wait."""
    monkeypatch.setenv("TRITONSERVER_DELAY_SCHEDULER", "4")
    monkeypatch.setenv("TRITONSERVER_BACKLOG_DELAY_SCHEDULER", "2")
    repository = Repository(tmp_path / "repository")
    sequences.add_sequence(repository, "direct", max_batch_size=2)
    sequences.add_dyna_sequence(repository, "oldest", "oldest { max_candidate_sequences: 2 }")
    server = start(repository.root)
    for model in ("direct", "oldest"):
        stream = Stream(server)
        for sid in (1, 2, 3):
            stream.send(model, sid, sid, True)
            if sid < 3:
                stream.send(model, sid, sid, end=True)
        with pytest.raises(queue.Empty):
            stream.next(timeout=0.7)
        stream.send(model, 3, 3, end=True)
        id_of = (lambda sid: sid) if model == "oldest" else (lambda sid: 0)
        assert stream.sums(6) == [s for sid in (1, 2, 3) for s in (sid, 2 * sid + id_of(sid))]
        stream.close()


def test_exit_answers_what_was_sent(tmp_path, start):
    """SIGTERM in the middle: requests that came are answered; sequences that are silent hold up nothing."""
    repository = Repository(tmp_path / "repository")
    sequences.add_sequence(repository, "direct", max_batch_size=1, idle_s=60, parameters={"execute_delay_ms": 100})
    server = start(repository.root)
    silent, stream = HttpProtocol(server), Stream(server)
    assert step(silent, "direct", 1, 1, True) == 1
    for index in range(5):
        stream.send("direct", 1, 2, index == 0)
    time.sleep(0.3)
    begin = time.monotonic()
    server.process.terminate()
    assert stream.sums(5) == [1, 2, 3, 4, 5], "the backlog gets the slot of the silent sequence"
    silent.close()
    stream.close()
    assert server.process.wait(20) == 0
    assert time.monotonic() - begin < 6


def test_sequences_under_a_rate_limiter(tmp_path, start):
    """Two sequence models share one resource: both come to their end, with and without a delay for batches."""
    repository = Repository(tmp_path / "repository")
    delayed = "direct { minimum_slot_utilization: 1.0 max_queue_delay_microseconds: 50000 }"
    strategies = {"direct": "direct { }", "delayed": delayed, "oldest": "oldest { max_candidate_sequences: 4 }"}
    for name, strategy in strategies.items():
        sequences.add_sequence(repository, name, strategy, parameters={"execute_delay_ms": 5}, max_batch_size=2)
        path = repository.directory(name) / "config.pbtxt"
        limit = 'rate_limiter { resources [ { name: "R" count: 1 } ] }'
        path.write_text(path.read_text().replace("KIND_CPU", f"KIND_CPU {limit}"))
    server = start(repository.root, "--rate-limit=execution_count", "--rate-limit-resource=R:1")

    def run(work):
        model, sid = work
        own = HttpProtocol(server)
        try:
            return walk(own, model, sid, [sid] * 5)
        finally:
            own.close()

    # `sequence` keeps its sums by place of the batch: with oldest, one sequence at a time.
    works = [(model, sid) for model in ("direct", "delayed") for sid in (1, 2, 3)] + [("oldest", 4)]
    with ThreadPoolExecutor(len(works)) as threads:
        for (_, sid), sums in zip(works, threads.map(run, works)):
            assert sums == [sid * turn for turn in range(1, 6)]


def test_stress(server):
    """Random sequences of random length over both protocols and streams, some left alone."""
    stop_at = time.monotonic() + 8
    faults = []

    def run(worker):
        random = np.random.default_rng(worker)
        own = (HttpProtocol if worker % 2 else GrpcProtocol)(server)
        model = ("direct", "oldest_impatient", "two_slots", "pair")[worker % 4]
        sid = 1000 + worker
        try:
            while time.monotonic() < stop_at:
                total, length = 0, int(random.integers(1, 12))
                is_left = model == "oldest_impatient" and random.random() < 0.2
                for turn in range(length):
                    value = int(random.integers(0, 100))
                    is_end = turn == length - 1 and not is_left
                    total += value
                    got = step(own, model, value, sid, turn == 0, is_end)
                    expected = total + (sid if is_end and model == "oldest_impatient" else 0)
                    if got != expected:
                        faults.append((worker, turn, got, expected))
        except Exception as error:  # told by the main thread
            faults.append((worker, repr(error)))
        finally:
            own.close()

    threads = [threading.Thread(target=run, args=(worker,)) for worker in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert faults == []
    for model in ("direct", "oldest_impatient", "two_slots", "pair"):
        assert wait_until(lambda: pending(server, model) == 0)
