"""Control modes none and explicit, readiness, labels of versions, namespaces; scenarios D16, D19, D31 and D36."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from tritonclient.utils import InferenceServerException

from nereid_testing.adders import ONE, add_adder, add_version, adder_config, number_of, remove, set_config
from nereid_testing.ensembles import add_ensemble, chain
from nereid_testing.observe import metric, wait_until
from nereid_testing.protocols import PROTOCOLS, GrpcProtocol, HttpProtocol
from nereid_testing.raw_http import call, infer_json
from nereid_testing.repository import Repository
from nereid_testing.server import ServerProcess

pytestmark = pytest.mark.ours

EXPLICIT = "--model-control-mode=explicit"
X, Y = ("X", "FP32", [4]), ("Y", "FP32", [4])


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    repository = Repository(tmp_path_factory.mktemp("control") / "repository")
    for name in ("steady", "m", "other", "a", "b"):
        add_adder(repository, name, 1)
    repository.echo("slow_to_end", "FP32", [4], max_batch_size=8, parameters={"execute_delay_ms": "1500"})
    add_adder(repository, "bad", 1, more="bogus: 1\n")
    add_ensemble(repository, "e", [X], [Y], chain("a", "b"), max_batch_size=8)
    (repository.root / ".git" / "objects").mkdir(parents=True)
    with ServerProcess(repository.root, EXPLICIT, "--load-model=steady") as server:
        yield server, repository
        assert server.alive(), server.log()[-4000:]


@pytest.fixture(params=["http", "grpc"])
def client(request, world):
    each = PROTOCOLS[request.param](world[0])
    yield each
    for model in ("m", "other", "e", "a", "b", "bad", "slow_to_end"):
        each.client.unload_model(model)
    each.close()


def index(client):
    rows = client.client.get_model_repository_index()
    rows = rows if isinstance(rows, list) else [{"name": m.name, "version": m.version, "state": m.state} for m in rows.models]
    return {row["name"]: row.get("state", "") for row in rows}


def test_only_the_models_of_load_model_are_loaded(world, client):
    states = index(client)
    assert states["steady"] == "READY" and states["other"] in ("", "UNAVAILABLE")
    assert ".git" not in states
    with pytest.raises(InferenceServerException, match="Request for unknown model"):
        client.infer("other", ONE)


def test_load_reload_and_unload(world, client):
    _, repository = world
    client.client.load_model("m")
    add_adder(repository, "m", 7)
    assert number_of(client, "m") == 1
    client.client.load_model("m")
    assert number_of(client, "m") == 7
    set_config(repository, "m", adder_config("bogus: 3\n"))
    with pytest.raises(InferenceServerException, match="failed to load 'm', failed to poll from model repository"):
        client.client.load_model("m")
    assert number_of(client, "m") == 7
    client.client.unload_model("m")
    client.client.unload_model("m")
    with pytest.raises(InferenceServerException, match="has no available versions"):
        client.infer("m", ONE)
    add_adder(repository, "m", 1)


def test_an_ensemble_brings_and_takes_its_models(world, client):
    client.client.load_model("e")
    assert {name: index(client)[name] for name in ("e", "a", "b")} == dict.fromkeys(("e", "a", "b"), "READY")
    client.client.unload_model("e", unload_dependents=True)
    assert wait_until(lambda: {index(client)[name] for name in ("e", "a", "b")} == {"UNAVAILABLE"})


def test_readiness_during_loads_and_after(world, client):
    server, _ = world
    ready = lambda: call(server, "GET", "/v2/health/ready").status
    client.client.load_model("m")
    client.client.unload_model("m")
    assert ready() == 200
    with pytest.raises(InferenceServerException):
        client.client.load_model("bad")
    assert ready() == 200
    assert call(server, "GET", "/v2/models/bad/ready").status in (400, 404, 503)


def test_requests_in_flight_end_on_what_is_unloaded(world, client):
    client.client.load_model("slow_to_end")
    own = GrpcProtocol(world[0])
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(own.infer, "slow_to_end", ONE)
        time.sleep(0.3)
        client.client.unload_model("slow_to_end")
        assert call(world[0], "GET", "/v2/models/slow_to_end/ready").status in (400, 404, 503)
        assert answer.result(10) is not None
    own.close()


@pytest.mark.parametrize("name", ["..", " ..", "a/b", "../x", "model/", " ", "m; touch /tmp/x", "..."])
def test_odd_names_are_refused_in_words(world, name):
    client = GrpcProtocol(world[0])
    with pytest.raises(InferenceServerException, match="model name|[Mm]odel name|failed to poll from model repository"):
        client.client.load_model(name)
    client.close()


def test_a_slash_at_the_end_and_other_modes(world, tmp_path):
    server, repository = world
    assert call(server, "POST", "/v2/repository/models/m/load/").status in (200, 404)
    plain = Repository(tmp_path / "plain")
    add_adder(plain, "m", 1)
    with ServerProcess(plain.root) as none:
        answer = call(none, "POST", "/v2/repository/models/m/load")
        assert answer.status in (400, 503) and "explicit" in answer.json()["error"]
        assert call(none, "POST", "/v2/repository/index").json() == [{"name": "m", "version": "1", "state": "READY"}]


def test_loads_race_unloads_from_50_clients(world):
    server, repository = world
    names = ["race_0", "race_1", "race_e"]
    for name in names[:2]:
        add_adder(repository, name, 3)
    add_ensemble(repository, "race_e", [X], [Y], chain("race_0", "race_1"), max_batch_size=8)
    stop, wrong = threading.Event(), []

    def steady():
        own = GrpcProtocol(server)
        while not stop.is_set():
            if number_of(own, "steady") != 1:
                wrong.append("steady")
        own.close()

    def race(seed):
        pick, own = random.Random(seed), HttpProtocol(server)
        for _ in range(12):
            name = pick.choice(names)
            try:
                act = pick.randrange(3)
                if act == 0:
                    own.client.load_model(name)
                elif act == 1:
                    own.client.unload_model(name, unload_dependents=pick.random() < 0.5)
                elif name != "race_e" and number_of(own, name) != 3:
                    wrong.append(name)
            except InferenceServerException as error:
                if not any(text in str(error) for text in ("unknown model", "failed to", "load failed", "stopped accepting")):
                    wrong.append(str(error))
        own.close()

    watcher = threading.Thread(target=steady)
    watcher.start()
    with ThreadPoolExecutor(50) as pool:
        list(pool.map(race, range(50)))
    stop.set()
    watcher.join(20)
    assert wrong == []
    client = HttpProtocol(server)
    client.client.load_model("race_e")
    assert all(index(client)[name] == "READY" for name in names)
    for name in ["race_e", *names[:2]]:
        client.client.unload_model(name)
    assert wait_until(lambda: all(index(client)[name] == "UNAVAILABLE" for name in names))
    assert metric(server, "nv_inference_pending_request_count", model="race_0") in (None, 0)
    client.close()


def test_swaps_fail_no_request_and_hold_no_memory(world):
    server, repository = world
    client, own = GrpcProtocol(server), GrpcProtocol(server)
    add_adder(repository, "swap", 0)
    client.client.load_model("swap")
    stop, failures, count = threading.Event(), [], [0]

    def send():
        while not stop.is_set():
            try:
                number_of(own, "swap")
                count[0] += 1
            except InferenceServerException as error:
                failures.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    sizes = []
    for number in range(60):
        add_adder(repository, "swap", number)
        client.client.load_model("swap")
        assert number_of(client, "swap") == number
        if number >= 20:
            sizes.append(server.rss_bytes())
    stop.set()
    thread.join(20)
    assert failures == [] and count[0] > 20
    assert max(sizes[-10:]) < min(sizes[:10]) * 1.25
    client.client.unload_model("swap")
    client.close()
    own.close()


def test_labels_stand_for_versions(world, client):
    server, repository = world
    name = f"labelled_{client.name}"
    labels = lambda text: f'version_policy {{ all {{ }} }}\nparameters {{ key: "version_labels" value {{ string_value: "{text}" }} }}\n'
    add_adder(repository, name, 1, more=labels("stable=1,canary=2"))
    add_version(repository, name, 2, 2)
    client.client.load_model(name)
    assert [number_of(client, name, model_version=label) for label in ("stable", "canary", "latest", "1", "")] == [1, 2, 2, 1, 2]
    assert client.client.is_model_ready(name, "stable")
    for read in (client.client.get_model_metadata, client.client.get_model_config, client.client.get_inference_statistics):
        assert read(name, "canary")
    with pytest.raises(InferenceServerException, match="has no version label 'nightly', its labels are stable, canary, latest"):
        number_of(client, name, model_version="nightly")
    loads = server.log().count(f"loading: {name}:")
    set_config(repository, name, adder_config(labels("stable=2")))
    client.client.load_model(name)
    assert number_of(client, name, model_version="stable") == 2
    assert server.log().count(f"loading: {name}:") == loads
    set_config(repository, name, adder_config(labels("stable=9")))
    with pytest.raises(InferenceServerException, match="names version 9, which is not served"):
        client.client.load_model(name)
    assert number_of(client, name, model_version="stable") == 2
    with pytest.raises(InferenceServerException):
        number_of(client, "steady", model_version="latest")
    client.client.unload_model(name)


def write_namespaces(root, ensembles=("simple_add", "simple_sub")):
    """Two repositories, each with an ensemble over its own `part`; the part of `b` adds 100."""
    a, b = Repository(root / "a"), Repository(root / "b")
    for repository, number, name in ((a, 1, ensembles[0]), (b, 100, ensembles[1])):
        add_adder(repository, "part", number)
        add_ensemble(repository, name, [X], [Y], chain("part"), max_batch_size=8)
    return a, b


def sum_of(server, model):
    answer = infer_json(server, model, [{"name": "X", "shape": [1, 4], "datatype": "FP32", "data": [0] * 4}]).json()
    return answer["outputs"][0]["data"][0] if "outputs" in answer else answer["error"]


AMBIGUOUS = "There are 2 identifiers of model '{}' in global map, model namespace must be provided to resolve ambiguity."


def test_namespaces_in_explicit_mode(tmp_path):
    a, b = write_namespaces(tmp_path, ("same", "same"))
    add_ensemble(a, "only_a", [X], [Y], chain("part"), max_batch_size=8)
    add_ensemble(b, "only_b", [X], [Y], chain("part"), max_batch_size=8)
    with ServerProcess([a.root, b.root], EXPLICIT, "--model-namespacing=true") as server:
        client = HttpProtocol(server)
        for name in ("same", "only_a", "only_b"):
            client.client.load_model(name)
        assert sum_of(server, "only_a") == 1 and sum_of(server, "only_b") == 100
        for name in ("same", "part"):
            assert sum_of(server, name) == AMBIGUOUS.format(name)
        rows = client.client.get_model_repository_index()
        assert [row["name"] for row in rows].count("part") == 2
        assert metric(server, "nv_inference_request_success", model="part", namespace=str(b.root)) == 1
        assert f"loading: {a.root}::part:1" in server.log()
        client.client.unload_model("same")
        assert sum_of(server, "only_a") == 1
        client.close()


def test_namespaces_follow_models_in_poll_mode(tmp_path):
    a, b = write_namespaces(tmp_path)
    flags = ("--model-control-mode=poll", "--repository-poll-secs=1", "--model-namespacing=true")
    with ServerProcess([a.root, b.root], *flags) as server:
        assert (sum_of(server, "simple_add"), sum_of(server, "simple_sub")) == (1, 100)
        away = tmp_path / "part"
        (a.root / "part").rename(away)
        assert wait_until(lambda: sum_of(server, "simple_add") == 100, 10)
        client = HttpProtocol(server)
        assert number_of(client, "part") == 100
        away.rename(a.root / "part")
        assert wait_until(lambda: sum_of(server, "simple_add") == 1, 10)
        assert sum_of(server, "simple_sub") == 100
        with pytest.raises(InferenceServerException, match="ambiguity"):
            number_of(client, "part")
        client.close()


def test_a_model_that_fails_at_the_start_leaves_the_server_not_ready(tmp_path):
    repository = Repository(tmp_path / "repository")
    add_adder(repository, "good", 1)
    add_adder(repository, "bad", 1, more="bogus: 1\n")
    with ServerProcess(repository.root, "--exit-on-error=false", wait="live") as server:
        assert call(server, "GET", "/v2/health/ready").status == 400
        assert call(server, "GET", "/v2/models/good/ready").status == 200
    with ServerProcess(repository.root, "--exit-on-error=false", "--strict-readiness=false") as server:
        assert call(server, "GET", "/v2/health/ready").status == 200
    with pytest.raises(RuntimeError, match="the server ended with 1"):
        ServerProcess(repository.root).__enter__()


def test_hidden_folders_are_no_models(tmp_path):
    repository = Repository(tmp_path / "repository")
    add_adder(repository, "good", 1)
    for name in (".git", ".ipynb_checkpoints"):
        (repository.root / name / "1").mkdir(parents=True)
    with ServerProcess(repository.root) as server:
        assert "ignoring hidden directory '.git'" in server.log()
        assert [row["name"] for row in call(server, "POST", "/v2/repository/index").json()] == ["good"]
