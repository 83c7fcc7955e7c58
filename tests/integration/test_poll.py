"""Control mode poll: the server follows its repositories; scenarios D8 and D32, the reference's poll tests."""

import os
import threading
import time

import pytest
from tritonclient.utils import InferenceServerException

from nereid_testing.adders import ONE, add_adder, add_version, adder_config, number_of, remove, save_slowly, set_config
from nereid_testing.ensembles import add_ensemble, chain
from nereid_testing.observe import statistics, wait_until
from nereid_testing.protocols import PROTOCOLS, GrpcProtocol, HttpProtocol
from nereid_testing.raw_http import call
from nereid_testing.repository import Repository
from nereid_testing.server import ServerProcess

pytestmark = pytest.mark.ours

POLL = ("--model-control-mode=poll", "--repository-poll-secs=1", "--exit-on-error=false")
POLL_S = 8


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Two repositories and a server that follows both."""
    root = tmp_path_factory.mktemp("poll")
    first, second = Repository(root / "first"), Repository(root / "second")
    add_adder(first, "steady", 1)
    with ServerProcess([first.root, second.root], *POLL) as server:
        yield server, first, second
        assert server.alive(), server.log()[-4000:]


@pytest.fixture(params=["http", "grpc"])
def client(request, world):
    each = PROTOCOLS[request.param](world[0])
    yield each
    each.close()


def ready(server, model, version=None):
    path = f"/v2/models/{model}" + (f"/versions/{version}" if version else "") + "/ready"
    return call(server, "GET", path).status == 200


def until(condition):
    assert wait_until(condition, POLL_S, 0.05)


def index(server):
    rows = call(server, "POST", "/v2/repository/index").json()
    return {(row["name"], row.get("version")): (row.get("state"), row.get("reason")) for row in rows}


def loads(server, model):
    return server.log().count(f"loading: {model}:")


def test_models_come_change_and_go(world, client):
    server, first, _ = world
    name = f"m_{client.name}"
    add_adder(first, name, 2)
    until(lambda: ready(server, name))
    assert number_of(client, name) == 2
    add_adder(first, name, 3)
    until(lambda: number_of(client, name) == 3)
    remove(first, name)
    until(lambda: not ready(server, name))
    with pytest.raises(InferenceServerException, match="has no available versions"):
        client.infer(name, ONE)
    assert not any(row == name for row, _ in index(server))
    assert number_of(client, "steady") == 1


def test_versions_come_and_go_and_those_that_stay_are_not_loaded_anew(world, client):
    server, first, _ = world
    name = f"versions_{client.name}"
    add_adder(first, name, 1, more="version_policy { latest { num_versions: 2 } }\n")
    until(lambda: ready(server, name, 1))
    number_of(client, name)
    add_version(first, name, 2, 2)
    until(lambda: ready(server, name, 2))
    assert number_of(client, name) == 2
    assert number_of(client, name, model_version="1") == 1
    assert server.log().count(f"loading: {name}:1") == 1
    add_version(first, name, 3, 3)
    until(lambda: ready(server, name, 3) and not ready(server, name, 1))
    remove(first, f"{name}/3")
    until(lambda: ready(server, name, 1) and not ready(server, name, 3))
    set_config(first, name, adder_config("version_policy { specific { versions: [ 1 ] } }\n"))
    until(lambda: not ready(server, name, 2))
    assert number_of(client, name) == 1


def test_a_bad_change_keeps_what_serves_and_a_bad_model_holds_up_no_other(world, client):
    server, first, _ = world
    good, bad, late = (f"{each}_{client.name}" for each in ("good", "bad", "late"))
    add_adder(first, good, 1)
    until(lambda: ready(server, good))
    set_config(first, good, adder_config("bogus: 3\n"))
    set_config_of_new(first, bad)
    add_adder(first, late, 2)
    until(lambda: ready(server, late))
    until(lambda: (bad, None) in index(server))
    assert number_of(client, good) == 1 and not ready(server, bad)
    assert "bogus" in index(server)[(bad, None)][1]
    assert call(server, "GET", "/v2/health/ready").status == 200
    assert "bogus" in server.log()
    add_adder(first, bad, 5)
    add_adder(first, good, 6)
    until(lambda: ready(server, bad) and number_of(client, good) == 6)
    until(lambda: call(server, "GET", "/v2/health/ready").status == 200)


def set_config_of_new(repository, name):
    add_adder(repository, f".{name}", 1, more="bogus: 3\n")
    os.rename(repository.root / f".{name}", repository.root / name)


def test_noise_and_unrelated_folders_trigger_no_reload(world):
    server, first, _ = world
    add_adder(first, "d8", 1)
    root = first.root / "d8"
    for folder in ("model", "01", "configs"):
        (root / folder).mkdir()
    until(lambda: ready(server, "d8"))
    time.sleep(1.5)
    before = loads(server, "d8")
    (root / "model" / "notes.txt").write_text("more")
    os.utime(root / "model" / "notes.txt")
    for name in (".config.pbtxt.swp", "config.pbtxt~", "4913", "x.tmp", "1/.model.onnx.part", "#config.pbtxt#"):
        (root / name).write_text("x")
    (first.root / ".git" / "1").mkdir(parents=True)
    (first.root / "copy.tmp" / "1").mkdir(parents=True)
    time.sleep(3)
    assert loads(server, "d8") == before
    assert server.log().count("(model 'd8')") == 2, "one line for each folder, once"
    rows = index(server)
    assert [version for name, version in rows if name == "d8"] == ["1"]
    assert not any(name in (".git", "copy.tmp") for name, _ in rows)
    assert call(server, "GET", "/v2/health/ready").status == 200


def test_a_file_is_read_only_when_it_is_complete(world):
    server, first, _ = world
    client = GrpcProtocol(server)
    add_adder(first, "slow", 1)
    until(lambda: ready(server, "slow"))
    failures = server.log().count("failed to load 'slow'")
    save_slowly(first, "slow", 2, lambda: time.sleep(0.2))
    until(lambda: number_of(client, "slow") == 2)
    assert server.log().count("failed to load 'slow'") == failures
    client.close()


def test_only_instances_are_changed_without_reload(world):
    server, first, _ = world
    client = HttpProtocol(server)
    add_adder(first, "counted", 1, more="instance_group [ { count: 1 kind: KIND_CPU } ]\n")
    until(lambda: ready(server, "counted"))
    number_of(client, "counted")
    set_config(first, "counted", adder_config("instance_group [ { count: 3 kind: KIND_CPU } ]\n"))
    config = lambda: call(server, "GET", "/v2/models/counted/config").json()["instance_group"][0]["count"]
    until(lambda: config() == 3)
    assert statistics(server, "counted")["inference_count"] == 1
    assert loads(server, "counted") == 1
    client.close()


def test_two_models_of_one_name_serve_neither(world):
    server, first, second = world
    add_adder(first, "twice", 1)
    until(lambda: ready(server, "twice"))
    add_adder(second, "twice", 2)
    until(lambda: not ready(server, "twice"))
    assert wait_until(lambda: index(server).get(("twice", None)) == ("UNAVAILABLE", "model appears in two or more repositories"))
    remove(first, "twice")
    until(lambda: ready(server, "twice"))
    client = HttpProtocol(server)
    assert number_of(client, "twice") == 2
    client.close()


def test_a_repository_that_vanishes_takes_nothing_away(world):
    server, _, second = world
    add_adder(second, "held", 4)
    until(lambda: ready(server, "held"))
    client = GrpcProtocol(server)
    away = second.root.with_name("away")
    os.rename(second.root, away)
    time.sleep(2.5)
    assert number_of(client, "held") == 4
    assert ("held", "1") in index(server)
    assert server.log().count("its models go on serving") == 1
    os.rename(away, second.root)
    until(lambda: "can be polled again" in server.log())
    assert number_of(client, "held") == 4
    client.close()


def test_the_control_api_is_refused(world, client):
    for act in (client.client.load_model, client.client.unload_model):
        with pytest.raises(InferenceServerException, match="explicit model load / unload is not allowed"):
            act("steady")


def test_requests_in_flight_are_answered_when_the_model_goes(world):
    server, first, _ = world
    first.echo("going", "FP32", [4], max_batch_size=8, parameters={"execute_delay_ms": "3000"})
    until(lambda: ready(server, "going"))
    client, answers = GrpcProtocol(server), []
    thread = threading.Thread(target=lambda: answers.append(client.infer("going", ONE)))
    thread.start()
    time.sleep(0.3)
    remove(first, "going")
    until(lambda: not ready(server, "going"))
    thread.join(10)
    assert len(answers) == 1
    client.close()


def test_an_ensemble_follows_the_models_it_is_made_of(world):
    server, first, _ = world
    x, y = ("X", "FP32", [4]), ("Y", "FP32", [4])
    add_ensemble(first, "chained", [x], [y], chain("link_a", "link_b"), max_batch_size=8)
    until(lambda: ("chained", None) in index(server) and "link_a" in (index(server)[("chained", None)][1] or ""))
    add_adder(first, "link_a", 1)
    add_adder(first, "link_b", 10)
    until(lambda: ready(server, "chained"))
    client = GrpcProtocol(server)
    total = lambda: float(client.infer("chained", {"X": ONE["IN"]}).as_numpy("Y").ravel()[0])
    assert total() == 11
    add_adder(first, "link_b", 20)
    until(lambda: total() == 21)
    remove(first, "link_a")
    until(lambda: not ready(server, "chained"))
    assert index(server)[("chained", "1")] == ("UNAVAILABLE", "unloaded"), "as the reference tells it"
    assert call(server, "GET", "/v2/health/ready").status == 200
    add_adder(first, "link_a", 5)
    until(lambda: ready(server, "chained") and total() == 25)
    remove(first, "chained")
    until(lambda: not ready(server, "chained"))
    assert ready(server, "link_a")
    client.close()
