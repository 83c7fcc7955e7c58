"""Ensembles through tritonclient: http, grpc and streams; data flow, errors, cancel, decoupled steps, management."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from nereid_testing.decoupled import Stream, grpc_inputs, inflight, is_final, repeat_inputs, sent_responses
from nereid_testing.ensembles import add_ensemble, chain, write_ensemble_repository
from nereid_testing.observe import metric, pending, statistics, wait_until
from nereid_testing.protocols import PROTOCOLS, GrpcProtocol, HttpProtocol, status_of
from nereid_testing.raw_http import call
from nereid_testing.repository import Repository
from nereid_testing.server import ServerProcess

pytestmark = pytest.mark.ours

ROWS = np.arange(12, dtype=np.float32).reshape(3, 4)
ONE = ROWS[:1]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    repository = write_ensemble_repository(tmp_path_factory.mktemp("ensembles") / "repository")
    with ServerProcess(repository.root) as each:
        yield each
        for model in repository.model_names():
            assert wait_until(lambda: inflight(each, model) == 0 and pending(each, model) == 0), model
        assert each.alive(), each.log()[-4000:]


@pytest.fixture(params=["http", "grpc"])
def client(request, server):
    each = PROTOCOLS[request.param](server)
    yield each
    each.close()


@pytest.fixture
def stream(server):
    each = Stream(server)
    yield each
    each.close()


def counts(server, *models):
    return [statistics(server, model)["inference_count"] for model in models]


def test_steps_run_one_after_the_other(server, client):
    before = counts(server, "a", "b", "c", "e")
    result = client.infer("e", {"X": ROWS}, request_id="r")
    np.testing.assert_array_equal(result.as_numpy("Y"), ROWS)
    assert [after - then for after, then in zip(counts(server, "a", "b", "c", "e"), before)] == [3] * 4
    np.testing.assert_array_equal(client.infer("nested", {"X": ROWS}).as_numpy("Y"), ROWS)


def test_only_needed_steps_run(server, client):
    before = counts(server, "a", "b", "c")
    result = client.infer("branches", {"X": ONE}, outputs=["Z"])
    assert result.as_numpy("Y") is None
    np.testing.assert_array_equal(result.as_numpy("Z"), ONE)
    assert [after - then for after, then in zip(counts(server, "a", "b", "c"), before)] == [1, 0, 1]


@pytest.mark.parametrize("model", ["plain_batch", "batch_plain"])
def test_batch_dimension_comes_and_goes(client, model):
    result = client.infer(model, {"X": ONE[0]}).as_numpy("Y")
    assert result.shape == (4,)
    np.testing.assert_array_equal(result, ONE[0])


def test_optional_input(client):
    given, without = np.array([1, 2], np.float32), None
    for b in (without, np.array([3], np.float32)):
        arrays = {"A": given} if b is None else {"A": given, "B": b}
        through = client.infer("e_optional", arrays).as_numpy("OUT")
        np.testing.assert_array_equal(through, client.infer("add", arrays).as_numpy("OUT"))
    with pytest.raises(InferenceServerException, match="missing|expected"):
        client.infer("e_optional", {"B": np.array([3], np.float32)})


def test_reshape_inside_of_a_step(client):
    """D6: 3 rows flow through a model that sees `[3]`."""
    rows = np.array([[b"a"], [b""], [b"abc"]], dtype=object)
    assert client.infer("e_reshaped", {"X": rows}).as_numpy("Y").tolist() == rows.tolist()


@pytest.mark.parametrize("model, shape", [("e_reshaping", (3, 2, 2)), ("e_reshaping_plain", (2, 2))])
def test_reshape_of_the_ensemble(client, model, shape):
    """Clients see `[2, 2]`, the steps `[4]`, as in the reference."""
    squares = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    np.testing.assert_array_equal(client.infer(model, {"X": squares}).as_numpy("Y"), squares)
    with pytest.raises(InferenceServerException, match="unexpected shape for input 'X'"):
        client.infer(model, {"X": squares.reshape(*shape[:-2], 4)})


def test_errors_name_ensemble_and_step(server, client):
    failures = statistics(server, "e_bad")["inference_stats"]["fail"]["count"]
    with pytest.raises(InferenceServerException) as caught:
        client.infer("e_bad", {"X": ONE})
    assert status_of(caught.value, client) in ("500", "INTERNAL")
    text = caught.value.message()
    assert text.count("in ensemble 'e_bad', ") == 1 and text.endswith("(step 1, model 'bad')")
    assert statistics(server, "e_bad")["inference_stats"]["fail"]["count"] == failures + 1
    with pytest.raises(InferenceServerException) as caught:
        client.infer("nested_bad", {"X": ONE})
    assert caught.value.message().startswith("in ensemble 'nested_bad', in ensemble 'e_bad', ")


def test_requests_are_checked_against_the_ensemble(client):
    for arrays, text in (
        ({"IN": ONE}, "unexpected inference input 'IN' for model 'e'"),
        ({"X": np.zeros((9, 4), np.float32)}, "batch-size must be <= 8 for 'e'"),
        ({"X": np.zeros((1, 5), np.float32)}, "unexpected shape for input 'X' for model 'e'"),
    ):
        with pytest.raises(InferenceServerException) as caught:
            client.infer("e", arrays)
        assert text in caught.value.message()
        assert "in ensemble" not in caught.value.message()


def test_full_queue_of_a_step_is_an_error_of_the_request(server):
    protocol = HttpProtocol(server, concurrency=12)
    calls = [protocol.client.async_infer("e_narrow", protocol.inputs({"X": ONE})) for _ in range(12)]
    results = []
    for each in calls:
        try:
            results.append(each.get_result(timeout=30).as_numpy("Y").tolist())
        except InferenceServerException as error:
            assert status_of(error, protocol) == "503"
            assert "in ensemble 'e_narrow', " in error.message()
            assert "Exceeds maximum queue size" in error.message()
    assert 3 <= len(results) < 12 and all(row == ONE.tolist() for row in results)
    protocol.close()


def test_statistics_of_parallel_requests(server):
    """D33: 20 requests in parallel, one fails in step 2."""
    begin = time.monotonic()

    def one(_):
        protocol = HttpProtocol(server)
        try:
            protocol.infer("e_delays", {"X": ONE[0]})
            return True
        except InferenceServerException:
            return False
        finally:
            protocol.close()

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(one, range(20)))
    wall_ns = (time.monotonic() - begin) * 1e9
    assert answers.count(False) == 1
    parts = [statistics(server, model)["inference_stats"] for model in ("delay_1", "delay_2")]
    own = statistics(server, "e_delays")
    stats = own["inference_stats"]
    assert (stats["success"]["count"], stats["fail"]["count"]) == (19, 1)
    assert (own["inference_count"], own["execution_count"]) == (19, 19)
    for part in parts:
        assert stats["success"]["ns"] / 19 >= part["success"]["ns"] / part["success"]["count"] * 0.8
    for row in stats.values():
        assert 0 <= row["ns"] <= wall_ns * 20
    assert metric(server, "nv_inference_request_failure", model="e_delays", reason="OTHER") == 1
    assert metric(server, "nv_inference_request_success", model="e_delays") == 19


def test_many_clients_at_once(server):
    def one(index):
        protocol = PROTOCOLS["grpc" if index % 2 else "http"](server)
        for turn in range(25):
            rows = np.full((1 + turn % 3, 4), index * 100 + turn, np.float32)
            result = protocol.infer(["e", "nested", "branches"][turn % 3], {"X": rows})
            np.testing.assert_array_equal(result.as_numpy("Y"), rows)
        protocol.close()
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(one, range(8)))


def test_cancel_reaches_the_step(server):
    protocol = GrpcProtocol(server)
    before = statistics(server, "a")["inference_count"]
    answers = []
    handle = protocol.client.async_infer(
        "e_slow", protocol.inputs({"X": ONE}), lambda result, error: answers.append(error)
    )
    assert wait_until(lambda: inflight(server, "slow_1000") == 1)
    handle.cancel()
    assert wait_until(lambda: inflight(server, "slow_1000") == 0 and inflight(server, "e_slow") == 0, 0.5)
    assert wait_until(lambda: answers) and "CANCEL" in str(answers[0]).upper()
    assert statistics(server, "a")["inference_count"] == before, "the second step was not run"
    assert metric(server, "nv_inference_request_failure", model="e_slow", reason="CANCELED") == 1
    protocol.close()


def test_sequences_go_through(client):
    def step(sequence, value, **flags):
        array = np.array([[value]], np.int32)
        return int(client.infer("e_sum", {"X": array}, sequence_id=sequence, **flags).as_numpy("Y")[0, 0])

    first, second = (11, 12) if client.name == "http" else (21, 22)
    assert step(first, 1, sequence_start=True) == 1
    assert step(second, 10, sequence_start=True) == 10
    assert step(first, 2) == 3
    assert step(second, 20, sequence_end=True) == 30
    assert step(first, 3, sequence_end=True) == 6
    with pytest.raises(InferenceServerException, match="in ensemble 'e_sum', "):
        step(first, 1)


def decoupled_arrays(values, delays=0):
    arrays = repeat_inputs(values, delays)
    return {"X": arrays["IN"], "D": arrays["DELAY"], "W": arrays["WAIT"]}


def test_decoupled_step_makes_the_ensemble_decoupled(server, stream):
    config = call(server, "GET", "/v2/models/e_repeat/config").json()
    assert config["model_transaction_policy"] == {"decoupled": True}
    stream.send("e_repeat", decoupled_arrays(range(5)), "r", enable_empty_final_response=True)
    values = []
    while True:
        result = stream.good()
        if result.as_numpy("Y") is not None:
            values.append(int(result.as_numpy("Y")[0]))
        if is_final(result):
            break
    assert values == [0, 1, 2, 3, 4]
    stream.send("e_repeat", decoupled_arrays([]), "none", enable_empty_final_response=True)
    final = stream.good()
    assert is_final(final) and final.as_numpy("Y") is None
    protocol = HttpProtocol(server)
    with pytest.raises(InferenceServerException, match="decoupled"):
        protocol.infer("e_repeat", decoupled_arrays([1]))
    protocol.close()


def test_back_pressure_bounds_memory(server, stream):
    """D34: 1000 responses of 1 MB through a step of 10 ms, four in flight."""
    assert "Ensemble model 'e_large' configured with max_inflight_requests: 4" in server.log()
    stream.send("e_large", decoupled_arrays([7, 8, 9]), "r")
    stream.good(timeout=30)
    before, peak = server.rss_bytes(), 0
    ahead = 0
    for index in range(1, 1000):
        result = stream.good(timeout=30)
        assert int(result.as_numpy("Y")[0]) == [7, 8, 9][index % 3], "in order"
        if index % 100 == 0:
            peak = max(peak, server.rss_bytes())
            ahead = max(ahead, sent_responses(server, "repeat_large") - index)
    assert ahead <= 60, "the source waits for the step, and for the client"
    assert peak - before < 150e6, f"grew by {(peak - before) / 1e6:.0f} MB"


def test_cancel_stops_the_source(server):
    stream = Stream(server)
    begun = sent_responses(server, "repeat_large")
    stream.send("e_large", decoupled_arrays([1]), "r")
    for _ in range(10):
        stream.good(timeout=30)
    stream.close(cancel_requests=True)
    assert wait_until(lambda: inflight(server, "e_large") == 0 and inflight(server, "repeat_large") == 0, 1)
    sent = sent_responses(server, "repeat_large")
    assert sent - begun < 100
    time.sleep(0.1)
    assert sent_responses(server, "repeat_large") == sent


def make_managed(root):
    repository = Repository(root)
    tensors = [("X", "FP32", [4])], [("Y", "FP32", [4])]
    repository.echo("a", "FP32", [4])
    repository.echo("b", "FP32", [4])
    add_ensemble(repository, "e", *tensors, chain("a", "b"))
    return repository


def ready(server):
    return sorted(row["name"] for row in call(server, "POST", "/v2/repository/index").json() if row.get("state") == "READY")


@pytest.mark.parametrize("name", ["http", "grpc"])
def test_ensembles_are_loaded_with_their_models(tmp_path, start, name):
    """D31, and the reload of a model while the ensemble is in use."""
    make_managed(tmp_path / "repository")
    server = start(tmp_path / "repository", "--model-control-mode=explicit")
    protocol = PROTOCOLS[name](server)
    protocol.client.load_model("e")
    assert ready(server) == ["a", "b", "e"]
    protocol.client.unload_model("e", unload_dependents=True)
    assert wait_until(lambda: ready(server) == [])
    protocol.client.load_model("e")
    stop, failures = threading.Event(), []

    def use():
        other = PROTOCOLS[name](server)
        while not stop.is_set():
            try:
                other.infer("e", {"X": ONE[0]})
            except InferenceServerException as error:
                failures.append(error.message())
        other.close()

    users = [threading.Thread(target=use) for _ in range(3)]
    for user in users:
        user.start()
    for turn in range(5):
        config = tmp_path / "repository" / "ab"[turn % 2] / "config.pbtxt"
        config.write_text(config.read_text() + f"# turn {turn}\n")
        protocol.client.load_model("ab"[turn % 2])
    stop.set()
    for user in users:
        user.join(20)
        assert not user.is_alive()
    assert failures == [], "no request fails while a model is loaded anew"
    protocol.client.unload_model("b")
    assert wait_until(lambda: ready(server) == ["a"])
    reasons = {row["name"]: row.get("reason", "") for row in call(server, "POST", "/v2/repository/index").json()}
    assert reasons["e"] == "unloaded", "as the reference tells it; the log says why"
    protocol.client.load_model("b")
    assert ready(server) == ["a", "b", "e"], "it comes back with its model"
    protocol.client.unload_model("e", unload_dependents=True)
    assert wait_until(lambda: ready(server) == ["a", "b"]), "by now they were loaded by name"
    protocol.close()


def test_every_fault_is_told_at_once(tmp_path, start):
    """D5: a required input that is not mapped, and an output that the model does not have."""
    repository = Repository(tmp_path / "repository")
    pair = lambda kind: [(f"{kind}0", "FP32", [4]), (f"{kind}1", "FP32", [4])]  # noqa: E731
    repository.identity("m", pair("IN"), pair("OUT"))
    add_ensemble(repository, "e", [("X", "FP32", [4])], [("Y", "FP32", [4])], [("m", {"IN0": "X"}, {"OUTT0": "Y"})])
    server = start(repository.root, "--exit-on-error=false", "--strict-readiness=false")
    log = server.log()
    assert "in ensemble e, input IN1 in model m is not mapped to any ensemble tensors" in log
    assert "ensemble tensor Y is mapped from non-existing output OUTT0 in model m" in log
    assert "ensemble_scheduling.step[0].input_map" in log and "did you mean 'OUT0'?" in log
    assert not HttpProtocol(server).client.is_model_ready("e")
