"""Queue limits, timeouts and priorities of the dynamic batcher, alone and as steps of an ensemble (L0_model_queue)."""

import threading
import time

import numpy as np
import pytest

from nereid_testing.burst import Burst
from nereid_testing.observe import batch_sizes, difference, metric, pending, wait_until
from nereid_testing.protocols import GrpcProtocol
from nereid_testing.repository import Repository
from nereid_testing.server import ServerProcess, is_reference

HOLD_MS = 1200
# 2.51 notices only when the instance is free
LATEST_S = 10 if is_reference() else 1.05
MAX_UINT32_PLUS_1 = 4294967296
MAX_UINT64 = 18446744073709551615


def batching(text):
    return f"dynamic_batching {{ {text} }}\n"


def policy(text):
    return f"default_queue_policy {{ {text} }}"


def ensemble(name, step):
    return f"""
name: "{name}" platform: "ensemble" max_batch_size: 1
input [ {{ name: "IN" data_type: TYPE_FP32 dims: [ 1 ] }} ]
output [ {{ name: "OUT" data_type: TYPE_FP32 dims: [ 1 ] }} ]
ensemble_scheduling {{ step [ {{ model_name: "{step}" model_version: -1
  input_map {{ key: "IN" value: "IN" }} output_map {{ key: "OUT" value: "OUT" }} }} ] }}
"""


def write_repository(root):
    repository = Repository(root)

    def echo(name, text, delay=HOLD_MS, max_batch_size=1, ensembled=False):
        parameters = {"execute_delay_ms": delay}
        repository.echo(
            name, "FP32", [1], max_batch_size=max_batch_size, parameters=parameters, more=batching(text)
        )
        if ensembled:
            repository.config(f"ensemble_{name}", ensemble(f"ensemble_{name}", name))
            repository.directory(f"ensemble_{name}", 1)

    echo("limit", policy("max_queue_size: 3"), ensembled=True)
    reject = "timeout_action: REJECT default_timeout_microseconds: 300000"
    echo("reject", policy(reject), ensembled=True)
    echo("delay", policy("timeout_action: DELAY default_timeout_microseconds: 300000"), ensembled=True)
    long = "timeout_action: REJECT default_timeout_microseconds: 30000000"
    echo("override", policy(f"{long} allow_timeout_override: true"), ensembled=True)
    echo("no_override", policy(f"{long} allow_timeout_override: false"))
    echo("override_longer", policy(f"{reject} allow_timeout_override: true"))
    levels = "priority_levels: 3 default_priority_level: 2"
    echo("levels", f"{levels} {policy('max_queue_size: 50')}", delay=500, ensembled=True)
    echo(
        "own_policies",
        f"priority_levels: 2 default_priority_level: 1 {policy('max_queue_size: 10')} "
        "priority_queue_policy { key: 2 value { max_queue_size: 1 } }",
        delay=500,
        ensembled=True,
    )
    echo(
        "own_timeouts",
        f"priority_levels: 3 default_priority_level: 1 {policy(long)} "
        f"priority_queue_policy {{ key: 2 value {{ {reject} }} }} "
        "priority_queue_policy { key: 3 value { timeout_action: DELAY default_timeout_microseconds: 100000 } }",
    )
    echo(
        "many_levels",
        f"priority_levels: {MAX_UINT64} default_priority_level: {MAX_UINT64} "
        f"priority_queue_policy {{ key: {MAX_UINT32_PLUS_1} value {{ max_queue_size: 1 }} }}",
        delay=500,
        ensembled=True,
    )
    echo("cancelled", policy("max_queue_size: 50"))
    return repository


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("queues") / "repository"
    write_repository(root)
    names = [path.name for path in root.iterdir()]
    with ServerProcess(root) as running:
        yield running
        assert running.alive()
        assert wait_until(lambda: all(not pending(running, name) for name in names))


@pytest.fixture(params=["http", "grpc"])
def burst(request, server):
    with Burst(server, request.param) as each:
        yield each


def prefixes(*names):
    """The models themselves, and as step of an ensemble."""
    return pytest.mark.parametrize("model", [each for name in names for each in (name, f"ensemble_{name}")])


def is_unavailable(answer):
    return str(answer.error.status()) in ("503", "StatusCode.UNAVAILABLE")


@prefixes("limit")
def test_a_full_queue_refuses_at_once(burst, model):
    held = burst.send(model, 0, wait=0.15)
    queued = [burst.send(model, value) for value in (1, 2, 3)]
    surplus = burst.results([burst.send(model, value) for value in (4, 5)])
    for answer in surplus:
        assert "Exceeds maximum queue size" in answer.text and is_unavailable(answer)
        assert answer.seconds < HOLD_MS / 1000
    assert [answer.value for answer in burst.results([held, *queued])] == [0, 1, 2, 3]
    assert burst.send(model, 9).result(20).value == 9


@prefixes("reject")
def test_a_request_that_waited_too_long_is_rejected(server, burst, model):
    step = model.removeprefix("ensemble_")
    rejected = lambda: metric(server, "nv_inference_request_failure", model=step, reason="REJECTED")  # noqa: E731
    before = rejected()
    held = burst.send(model, 1, wait=0.1)
    late = burst.send(model, 2).result(20)
    assert "Request timeout expired" in late.text and is_unavailable(late)
    assert 0.25 < late.seconds < LATEST_S, "while the instance is still busy"
    assert held.result(20).value == 1, "what runs is not subject to it"
    assert wait_until(lambda: rejected() == before + 1)


@prefixes("delay")
def test_a_late_request_goes_behind_the_others(burst, model):
    burst.send(model, 0, wait=0.1)
    late = [burst.send(model, value, wait=0.03) for value in (1, 2)]
    time.sleep(0.8)  # while the first still runs, but too late to wait for too long as well
    fresh = burst.send(model, 3)
    assert burst.order([*late, fresh]) == [2, 0, 1]


@prefixes("override")
def test_a_client_may_shorten_its_time(burst, model):
    held = burst.send(model, 0, wait=0.1)
    short = burst.send(model, 1, timeout=200_000)
    usual = burst.send(model, 2)
    assert "Request timeout expired" in short.result(20).text
    assert short.result().seconds < LATEST_S
    assert [answer.error for answer in burst.results([held, usual])] == [None, None]


def test_a_client_may_not_shorten_its_time_where_it_is_not_allowed(burst):
    burst.send("no_override", 0, wait=0.1)
    assert burst.send("no_override", 1, timeout=100_000).result(20).value == 1


def test_a_client_cannot_lengthen_its_time(burst):
    burst.send("override_longer", 0, wait=0.1)
    answer = burst.send("override_longer", 1, timeout=60_000_000).result(20)
    assert "Request timeout expired" in answer.text and answer.seconds < LATEST_S


@prefixes("levels")
def test_better_levels_overtake(burst, model):
    burst.send(model, 0, wait=0.1)
    burst.send(model, 0, priority=1, wait=0.03)
    # 0, and what is no level, mean the default level 2
    priorities = (3, None, 1, 3, 2, 1, 0, 9)
    waiting = [burst.send(model, i, wait=0.03, **({} if p is None else {"priority": p})) for i, p in enumerate(priorities)]
    assert burst.order(waiting) == [2, 5, 1, 4, 6, 7, 0, 3]


@prefixes("own_policies")
def test_each_level_has_its_own_limit(burst, model):
    burst.send(model, 0, wait=0.06)
    waiting = [burst.send(model, i, priority=p, wait=0.03) for i, p in enumerate((2, 2, 1, 1))]
    refused = waiting.pop(1).result(20)
    assert "Exceeds maximum queue size" in refused.text
    assert burst.order(waiting) == [1, 2, 0]


def test_each_level_has_its_own_timeout(burst):
    burst.send("own_timeouts", 0, wait=0.1)
    delayed, rejected = burst.send("own_timeouts", 1, priority=3), burst.send("own_timeouts", 2, priority=2)
    time.sleep(0.15)
    fresh, best = burst.send("own_timeouts", 3, priority=3), burst.send("own_timeouts", 4, priority=1)
    assert "Request timeout expired" in rejected.result(20).text
    assert burst.order([delayed, fresh, best]) == [2, 0, 1], "the late ones in order, behind their level"


@prefixes("many_levels")
def test_as_many_levels_as_there_are_numbers(burst, model):
    burst.send(model, 0, wait=0.06)
    burst.send(model, 0, priority=1, wait=0.03)
    priorities = (MAX_UINT64, MAX_UINT32_PLUS_1, MAX_UINT32_PLUS_1 - 1, MAX_UINT32_PLUS_1)
    waiting = [burst.send(model, i, priority=p, wait=0.03) for i, p in enumerate(priorities)]
    assert "Exceeds maximum queue size" in waiting.pop().result(20).text
    assert burst.order(waiting) == [2, 1, 0]


def test_who_goes_away_costs_no_execution(server, burst):
    before = batch_sizes(server, "cancelled")
    held = burst.send("cancelled", 0, wait=0.1)
    protocol = GrpcProtocol(server)
    seen, done = [], threading.Event()

    def callback(result, error):
        seen.append(error)
        done.set()

    inputs = protocol.inputs({"IN": np.zeros((1, 1), np.float32)})
    call = protocol.client.async_infer("cancelled", inputs, callback)
    time.sleep(0.1)
    other = burst.send("cancelled", 2)
    call.cancel()
    assert done.wait(5) and seen[0] is not None
    protocol.close()
    assert [answer.error for answer in burst.results([held, other])] == [None, None]
    assert difference(batch_sizes(server, "cancelled"), before) == {1: 2}
    assert wait_until(lambda: metric(server, "nv_inference_request_failure", model="cancelled", reason="CANCELED") >= 1)
