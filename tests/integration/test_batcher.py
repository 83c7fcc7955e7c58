"""Which requests the dynamic batcher joins (L0_batcher), held back by TRITONSERVER_DELAY_SCHEDULER until all are there."""

import pytest

from nereid_testing.burst import Burst
from nereid_testing.observe import batch_sizes, pending, wait_until
from nereid_testing.repository import Repository
from nereid_testing.server import ServerProcess

DELAY_S = 2.0
PREFERRED = f"preferred_batch_size: [ 2, 6 ] max_queue_delay_microseconds: {int(DELAY_S * 1e6)}"
AT_ONCE = "preferred_batch_size: [ 2, 6 ]"

# name: (requests held back, configuration, rows of the requests, executions by size, requests that wait for the delay)
CASES = {
    "preferred": (0, PREFERRED, [2], {2: 1}, []),
    "less_than_any_preferred": (0, PREFERRED, [1], {1: 1}, [0]),
    "not_preferred": (0, PREFERRED, [3], {3: 1}, [0]),
    "above_the_largest_preferred": (0, PREFERRED, [7], {7: 1}, []),
    "each_preferred": (2, PREFERRED, [2, 6], {2: 1, 6: 1}, []),
    "together_preferred": (2, PREFERRED, [4, 2], {6: 1}, []),
    "together_not_preferred": (2, PREFERRED, [1, 3], {4: 1}, [0, 1]),
    "sum_above_the_largest_preferred": (2, PREFERRED, [3, 4], {3: 1, 4: 1}, [1]),
    "second_above_the_largest_preferred": (2, PREFERRED, [3, 7], {3: 1, 7: 1}, []),
    "sum_above_max_batch_size": (2, PREFERRED, [8, 3], {8: 1, 3: 1}, [1]),
    "smaller_preferred": (3, PREFERRED, [1, 1, 1], {2: 1, 1: 1}, [2]),
    "largest_preferred": (6, PREFERRED, [1] * 6, {6: 1}, []),
    "without_a_delay": (6, AT_ONCE, [1] * 6, {6: 1}, []),
    "without_a_delay_not_preferred": (3, AT_ONCE, [1, 1, 1], {2: 1, 1: 1}, []),
    "without_preferred": (6, "", [1] * 6, {6: 1}, []),
    "without_preferred_too_many": (6, "", [3, 3, 3, 2, 1, 1], {6: 1, 7: 1}, []),
}


def cases_of(count):
    return [name for name, case in CASES.items() if case[0] == count]


@pytest.fixture(scope="module", params=sorted({case[0] for case in CASES.values()}))
def held(request, tmp_path_factory):
    """A server whose batchers wait for so many requests, each the first time; the models are named by their cases."""
    repository = Repository(tmp_path_factory.mktemp("batcher") / "repository")
    protocols = ["http", "grpc"]
    for name in cases_of(request.param):
        for protocol in protocols:
            text = f"dynamic_batching {{ {CASES[name][1]} }}\n"
            repository.echo(f"{name}_{protocol}", "FP32", [1], max_batch_size=8, more=text)
    prefix = ("env", f"TRITONSERVER_DELAY_SCHEDULER={request.param}")
    with ServerProcess(repository.root, prefix=prefix) as server:
        yield request.param, server
        assert wait_until(lambda: all(not pending(server, name) for name in repository.model_names()))


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_requests_are_joined(held, protocol):
    count, server = held
    with Burst(server, protocol) as burst:
        sent = {
            name: [burst.send(f"{name}_{protocol}", i, rows=rows, wait=0.06) for i, rows in enumerate(CASES[name][2])]
            for name in cases_of(count)
        }
        for name, futures in sent.items():
            _, _, _, executions, late = CASES[name]
            answers = burst.results(futures)
            assert [answer.value for answer in answers] == list(range(len(answers))), name
            for index, answer in enumerate(answers):
                assert (answer.seconds > DELAY_S * 0.8) == (index in late), f"{name}, request {index}"
            assert batch_sizes(server, f"{name}_{protocol}") == executions, name


def test_a_batcher_is_held_back_once_only(tmp_path, start):
    repository = Repository(tmp_path / "models")
    repository.echo("m", "FP32", [1], max_batch_size=8, more="dynamic_batching { }\n")
    server = start(repository.root, prefix=("env", "TRITONSERVER_DELAY_SCHEDULER=3"))
    with Burst(server, "http") as burst:
        first = [burst.send("m", 1), burst.send("m", 2, wait=0.3)]
        assert not any(future.done() for future in first)
        assert burst.send("m", 3).result(20).value == 3
        assert [answer.value for answer in burst.results(first)] == [1, 2]
        assert burst.send("m", 4).result(20).value == 4, "nobody else has to come"
    assert batch_sizes(server, "m") == {3: 1, 1: 1}
