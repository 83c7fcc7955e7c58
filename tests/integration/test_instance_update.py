"""Instances that come and go while a model serves (scheduling.md §10), in explicit mode; the reference's L0_model_update."""

import threading
import time

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from nereid_testing.observe import statistics, wait_until
from nereid_testing.protocols import GrpcProtocol
from nereid_testing.python_models import add_python
from nereid_testing.raw_http import call
from nereid_testing.repository import Repository
from nereid_testing.sequence_models import add_sequence, step
from nereid_testing.server import ServerProcess

pytestmark = pytest.mark.ours

ROW = {"IN": np.ones((1, 4), np.float32)}
FLAGS = ("--model-control-mode=explicit", "--load-model=*", "--rate-limit=execution_count", "--rate-limit-resource=R:4")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    repository = Repository(tmp_path_factory.mktemp("update") / "repository")
    write_echo(repository, "m", 1)
    write_echo(repository, "batched", 1, more="dynamic_batching { }\n")
    add_sequence(repository, "sum", max_batch_size=1)
    with ServerProcess(repository.root, *FLAGS) as server:
        client = GrpcProtocol(server)
        yield server, repository, client
        client.close()
        assert server.alive(), server.log()[-4000:]


def write_echo(repository, name, count, more="", rate=""):
    repository.echo(name, "FP32", [4], max_batch_size=8, parameters={"execute_delay_ms": "50"}, more=more)
    path = repository.root / name / "config.pbtxt"
    group = f"instance_group [ {{ kind: KIND_CPU count: {count} {rate} }} ]"
    path.write_text(path.read_text().replace("instance_group [ { kind: KIND_CPU count: 1 } ]", group))


def loads(server, model):
    return server.log().count(f"loading: {model}:")


def count_of(server, model):
    return call(server, "GET", f"/v2/models/{model}/config").json()["instance_group"][0]["count"]


@pytest.mark.parametrize("model, more", [("m", ""), ("batched", "dynamic_batching { }\n")])
def test_instances_change_under_load_without_a_failed_request(world, model, more):
    server, repository, client = world
    stop, failures, answered = threading.Event(), [], [0]

    def send():
        own = GrpcProtocol(server)
        while not stop.is_set():
            try:
                own.infer(model, ROW)
                answered[0] += 1
            except InferenceServerException as error:
                failures.append(error)
        own.close()

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for count in (3, 1, 4, 2, 1):
            write_echo(repository, model, count, more)
            client.client.load_model(model)
            assert count_of(server, model) == count
            time.sleep(0.2)
    finally:
        stop.set()
        for thread in threads:
            thread.join(20)
    assert failures == [] and answered[0] > 10
    assert loads(server, model) == 1
    assert wait_until(lambda: statistics(server, model)["inference_count"] >= answered[0])


def test_an_override_of_the_instances_alone_is_an_update_too(world):
    server, repository, client = world
    import json

    config = call(server, "GET", "/v2/models/m/config").json()
    config["instance_group"][0]["count"] = 2
    before = loads(server, "m")
    client.client.load_model("m", config=json.dumps(config))
    assert count_of(server, "m") == 2
    client.client.load_model("m")
    assert count_of(server, "m") == 1
    assert loads(server, "m") - before <= 2


def test_more_changes_than_instances_load_anew(world):
    server, repository, client = world
    before = loads(server, "m")
    write_echo(repository, "m", 2, more="dynamic_batching { }\n")
    client.client.load_model("m")
    assert loads(server, "m") == before + 1
    write_echo(repository, "m", 1)
    client.client.load_model("m")
    assert loads(server, "m") == before + 2
    (repository.root / "m" / "1" / "file.bin").write_text("x")
    client.client.load_model("m")
    assert loads(server, "m") == before + 3


def test_the_rate_limiter_decides_about_new_instances_as_well(world):
    server, repository, client = world
    write_echo(repository, "m", 2, rate='rate_limiter { resources [ { name: "R" count: 9 } ] }')
    with pytest.raises(InferenceServerException, match='Resource count for "R" is limited to 4'):
        client.client.load_model("m")
    client.infer("m", ROW)
    before = loads(server, "m")
    write_echo(repository, "m", 2, rate='rate_limiter { resources [ { name: "R" count: 4 } ] }')
    client.client.load_model("m")
    client.infer("m", ROW)
    write_echo(repository, "m", 1)
    client.client.load_model("m")
    assert loads(server, "m") == before


def test_the_log_tells_what_there_is_of_each_resource(tmp_path):
    """Without a limit, as much as the instance that needs most: less when that one has gone (L0_model_update)."""
    repository = Repository(tmp_path / "repository")
    rate = 'rate_limiter {{ resources [ {{ name: "R1" count: {} }} ] }}'
    write_echo(repository, "m", 1, rate=rate.format(4))
    with ServerProcess(repository.root, "--model-control-mode=explicit", "--load-model=m",
                       "--rate-limit=execution_count", "--log-verbose=1") as server:  # fmt: skip
        client = GrpcProtocol(server)
        write_echo(repository, "m", 1, rate=rate.format(3))
        client.client.load_model("m")
        client.close()
        told = server.log()
        last = told.rfind("Max Resource Map===>")
        assert r"Resource: R1\t Count: 4" in told[:last] and r"Resource: R1\t Count: 3" in told[last:], told[-3000:]


def test_sequences_go_on_while_their_instance_leaves(world):
    server, repository, client = world
    add_sequence(repository, "sum", max_batch_size=1, instances=2)
    client.client.load_model("sum")
    assert step(client, "sum", 1, 1, start=True) == 1
    assert step(client, "sum", 10, 2, start=True) == 10
    add_sequence(repository, "sum", max_batch_size=1, instances=1)
    client.client.load_model("sum")
    assert step(client, "sum", 1, 1) == 2
    assert step(client, "sum", 10, 2) == 20
    waiting = []
    own = GrpcProtocol(server)
    thread = threading.Thread(target=lambda: waiting.append(step(own, "sum", 5, 3, start=True, end=True)))
    thread.start()
    time.sleep(0.3)
    assert waiting == []
    add_sequence(repository, "sum", max_batch_size=1, instances=2)
    client.client.load_model("sum")
    thread.join(10)
    assert waiting == [5]
    assert step(client, "sum", 1, 1, end=True) == 3
    assert step(client, "sum", 10, 2, end=True) == 30
    assert loads(server, "sum") == 1
    own.close()


COUNTED = """
class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.path = config["parameters"]["ended"]["string_value"]

    def execute(self, requests):
        time.sleep(0.1)
        return [answer(values(each)) for each in requests]

    def finalize(self):
        time.sleep(0.2)
        with open(self.path, "a") as ended:
            ended.write("x")
"""


def test_a_load_is_answered_when_removed_instances_have_finalized(world, tmp_path):
    server, repository, client = world
    ended = tmp_path / "ended"
    ended.touch()
    row = {"IN": np.ones(1, np.int32)}

    add_python(repository, "counted", COUNTED, parameters={"ended": str(ended)})
    config = repository.root / "counted" / "config.pbtxt"
    text = config.read_text()

    def load(instances):
        config.write_text(text.replace("count: 1 }", f"count: {instances} }}"))
        client.client.load_model("counted")
        return len(ended.read_text())

    assert load(3) == 0
    stop, failures = threading.Event(), []

    def send():
        own = GrpcProtocol(server)
        while not stop.is_set():
            try:
                own.infer("counted", row)
            except InferenceServerException as error:
                failures.append(error)
        own.close()

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        assert [load(count) for count in (2, 3, 1)] == [1, 1, 3]
    finally:
        stop.set()
        for thread in threads:
            thread.join(20)
    assert failures == [] and loads(server, "counted") == 1
    client.client.unload_model("counted")
    assert wait_until(lambda: len(ended.read_text()) == 4)
