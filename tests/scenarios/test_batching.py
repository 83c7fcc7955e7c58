"""Scenarios D21–D26 against the real clock; the virtual-time versions lie beside the scheduler."""

import queue
import time

import numpy as np
import pytest

from nereid_testing import onnx_models as models
from nereid_testing.observe import batch_sizes, difference, metric, statistics, wait_until
from nereid_testing.protocols import GrpcProtocol, sample
from nereid_testing.repository import Repository, tensor_section
from nereid_testing.server import ServerProcess, is_reference

DELAY_S = 1.0


def batching(text):
    return f"dynamic_batching {{ {text} }}\n"


def write_repository(root):
    repository = Repository(root)

    def echo(name, dims=(1,), delay=None, more="", **parameters):
        if delay:
            parameters["execute_delay_ms"] = delay
        repository.echo(name, "FP32", dims, max_batch_size=8, parameters=parameters, more=more)

    echo("d21", delay=200, more=batching(""))
    preferred = batching(f"preferred_batch_size: [ 2, 6 ] max_queue_delay_microseconds: {int(DELAY_S * 1e6)}")
    echo("d22", more=preferred)
    echo("d22_busy", delay=1500, more=preferred)
    policy = "default_queue_policy { timeout_action: REJECT default_timeout_microseconds: 500000 }"
    echo("d23", delay=2500, more=batching(policy))
    for action in ("REJECT", "DELAY"):
        echo(
            f"d24_{action.lower()}",
            more=batching(
                "preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 2000000 "
                f"default_queue_policy {{ timeout_action: {action} default_timeout_microseconds: 100000 }}"
            ),
        )
    echo("d25", dims=(-1,), more=batching("max_queue_delay_microseconds: 50000"))
    ragged = (
        "max_batch_size: 8\n"
        + tensor_section("input", [("IN", "FP32", [-1], "allow_ragged_batch: true")])
        + tensor_section("output", [("OUT", "FP32", [-1])])
        + batching("max_queue_delay_microseconds: 200000")
        + "instance_group [ { kind: KIND_CPU count: 1 } ]\n"
    )
    repository.echo("d25_ragged", "FP32", [-1])
    text = (repository.root / "d25_ragged" / "config.pbtxt").read_text()
    backend = text.splitlines()[0]
    repository.config("d25_ragged", f"{backend}\n{ragged}")
    echo("d26", more=batching("max_queue_delay_microseconds: 300000"), fail_every=2)
    if is_reference():
        return repository
    lookup = "max_batch_size: 8\n" + batching("max_queue_delay_microseconds: 300000 preferred_batch_size: [ 8 ]")
    repository.onnx("d26_runtime", models.table_lookup(), lookup + "instance_group [ { kind: KIND_CPU count: 1 } ]\n")
    return repository


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("batching") / "repository"
    write_repository(root)
    with ServerProcess(root) as running:
        yield running
        assert running.alive()


class Sender:
    """Sends requests without waiting and notes when each was answered."""

    def __init__(self, server):
        self.protocol = GrpcProtocol(server)
        self.done = queue.Queue()
        self.answers = {}

    def send(self, key, model, array, name="IN"):
        begin = time.monotonic()

        def callback(result, error):
            self.done.put((key, result, error, time.monotonic() - begin))

        self.protocol.client.async_infer(model, self.protocol.inputs({name: array}), callback)

    def rows(self, key, model, count):
        self.send(key, model, np.full((count, 1), ord(str(key)[-1]), np.float32))

    def wait(self, count, timeout=20):
        """{key: (result, error, seconds)} of the next `count` answers."""
        for _ in range(count):
            key, result, error, seconds = self.done.get(timeout=timeout)
            self.answers[key] = (result, error, seconds)
        return self.answers


@pytest.fixture
def sender(server):
    each = Sender(server)
    yield each
    each.protocol.close()


def test_D21_requests_that_wait_are_joined(server, sender):
    before = batch_sizes(server, "d21")
    for key in range(5):
        sender.rows(key, "d21", 1)
        time.sleep(0.004)
    answers = sender.wait(5)
    assert all(error is None for _, error, _ in answers.values())
    for key, (result, _, _) in answers.items():
        assert result.as_numpy("OUT").tolist() == [[ord(str(key))]]
    assert difference(batch_sizes(server, "d21"), before) in ({1: 1, 4: 1}, {2: 1, 3: 1})


def test_D22_i_a_request_that_exceeds_the_largest_preferred_size(server, sender):
    """3 + 4 = 7 > 6: the first goes alone at once, the second waits for its delay."""
    before = batch_sizes(server, "d22")
    sender.rows("a", "d22", 3)
    time.sleep(0.1)
    sender.rows("b", "d22", 4)
    answers = sender.wait(2)
    assert answers["a"][2] < DELAY_S * 0.6
    assert DELAY_S * 0.9 < answers["b"][2] < DELAY_S + 0.6
    assert difference(batch_sizes(server, "d22"), before) == {3: 1, 4: 1}


def test_D22_ii_preferred_sizes_before_the_delay(server, sender):
    before = batch_sizes(server, "d22")
    for key in range(5):
        sender.rows(key, "d22", 1)
        time.sleep(0.03)
    seconds = sorted(each[2] for each in sender.wait(5).values())
    assert seconds[3] < DELAY_S * 0.6, "two batches of two go at once"
    assert DELAY_S * 0.9 < seconds[4] < DELAY_S + 0.6
    assert difference(batch_sizes(server, "d22"), before) == {1: 1, 2: 2}


@pytest.mark.ours  # 2.51 runs 4 and 1 apart
def test_D22_iii_after_the_delay_everything_that_fits_goes_together(server, sender):
    before = batch_sizes(server, "d22_busy")
    sender.rows("x", "d22_busy", 6)  # preferred: runs at once, keeps the instance for 1.5 s
    time.sleep(0.1)
    sender.rows("a", "d22_busy", 4)
    time.sleep(1.2)
    sender.rows("b", "d22_busy", 1)
    sender.wait(3)
    assert difference(batch_sizes(server, "d22_busy"), before) == {6: 1, 5: 1}


@pytest.mark.ours  # today's Triton notices only when the instance is free
def test_D23_a_timeout_fires_while_the_instance_is_busy(server, sender):
    sender.rows("a", "d23", 1)
    time.sleep(0.1)
    sender.rows("b", "d23", 1)
    _, error, seconds = sender.wait(1)["b"]
    assert 0.45 < seconds < 0.9
    assert "Request timeout expired" in error.message() and "UNAVAILABLE" in str(error.status())
    assert sender.wait(1)["a"][1] is None


def test_D24_reject(server, sender):
    reasons = lambda: metric(server, "nv_inference_request_failure", model="d24_reject", reason="REJECTED")  # noqa: E731
    before = reasons()
    sender.rows("a", "d24_reject", 1)
    time.sleep(0.2)
    sender.rows("b", "d24_reject", 2)
    sender.rows("c", "d24_reject", 2)
    answers = sender.wait(3)
    assert answers["b"][1] is None and answers["b"][2] < 0.1
    assert answers["c"][1] is None and answers["c"][2] < 0.1
    assert "Request timeout expired" in answers["a"][1].message()
    assert wait_until(lambda: reasons() == before + 1)


def test_D24_delay(server, sender):
    sender.rows("a", "d24_delay", 1)
    time.sleep(0.2)
    sender.rows("b", "d24_delay", 2)
    sender.rows("c", "d24_delay", 2)
    answers = sender.wait(3)
    assert answers["b"][1] is None and answers["b"][2] < 0.1
    assert answers["c"][1] is None and answers["c"][2] < 0.1
    assert answers["a"][1] is None and 1.9 < answers["a"][2] < 3


def test_D25_unequal_shapes_do_not_share_a_batch(server, sender):
    before = batch_sizes(server, "d25")
    arrays = {key: sample("FP32", (1, length)) for key, length in (("a", 3), ("b", 5))}
    for key, array in arrays.items():
        sender.send(key, "d25", array)
    for key, (result, error, _) in sender.wait(2).items():
        assert error is None
        assert result.as_numpy("OUT").tobytes() == arrays[key].tobytes()
    assert difference(batch_sizes(server, "d25"), before) == {1: 2}


def test_D25_ragged_requests_share_a_batch(server, sender):
    before = batch_sizes(server, "d25_ragged")
    arrays = {key: sample("FP32", (1, length)) for key, length in (("a", 3), ("b", 5))}
    for key, array in arrays.items():
        sender.send(key, "d25_ragged", array)
    for key, (result, error, _) in sender.wait(2).items():
        assert error is None
        assert result.as_numpy("OUT").tobytes() == arrays[key].tobytes()
    assert difference(batch_sizes(server, "d25_ragged"), before) == {2: 1}


@pytest.mark.ours  # the Python backend reports such failures as successes
@pytest.mark.parametrize("model", ["d26", "d26_runtime"])
def test_D26_only_the_guilty_request_of_a_batch_fails(server, sender, model):
    """`d26`: the backend says so. `d26_runtime`: the whole batch fails in the runtime and is run again one by one."""
    count = lambda family, **labels: metric(server, family, model=model, **labels)  # noqa: E731
    before = statistics(server, model)["inference_stats"]
    failures = count("nv_inference_request_failure", reason="BACKEND")
    successes = count("nv_inference_request_success")
    if model == "d26":
        for key in "ab":
            sender.rows(key, model, 1)
    else:
        sender.send("a", model, np.array([[2]], np.int64), name="INDEX")
        sender.send("b", model, np.array([[77]], np.int64), name="INDEX")
    answers = sender.wait(2)
    failed = {key for key, (_, error, _) in answers.items() if error is not None}
    assert len(failed) == 1 and (model == "d26" or failed == {"b"})
    if model == "d26_runtime":
        assert answers["a"][0].as_numpy("OUT").tolist() == [[200]]
        assert "onnx runtime error" in answers["b"][1].message()
    after = statistics(server, model)["inference_stats"]
    assert after["fail"]["count"] == before["fail"]["count"] + 1
    assert after["success"]["count"] == before["success"]["count"] + 1
    assert count("nv_inference_request_failure", reason="BACKEND") == failures + 1
    assert count("nv_inference_request_success") == successes + 1


@pytest.mark.ours
def test_a_failing_batch_of_one_does_not_disturb_others(server, sender):
    """Three good requests and one bad one in one batch: three answers."""
    indexes = {"a": 0, "b": 99, "c": 1, "d": 3}
    for key, index in indexes.items():
        sender.send(key, "d26_runtime", np.array([[index]], np.int64), name="INDEX")
    answers = sender.wait(4)
    assert {key for key, (_, error, _) in answers.items() if error is not None} == {"b"}
    for key in "acd":
        assert answers[key][0].as_numpy("OUT").tolist() == [[indexes[key] * 100]]
