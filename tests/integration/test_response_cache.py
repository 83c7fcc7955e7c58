"""The response cache through the real clients: what is a hit, what is counted, what is never kept."""

import queue
import subprocess
import threading

import numpy as np
import pytest
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

from nereid_testing import onnx_models as models
from nereid_testing.main_repository import one_instance
from nereid_testing.observe import metric, statistics, wait_until
from nereid_testing.protocols import PROTOCOLS
from nereid_testing.repository import Repository, tensor_section
from nereid_testing.server import ServerProcess, free_ports, is_reference, server_command

pytestmark = pytest.mark.skipif(is_reference(), reason="needs ONNX")

CACHED = "response_cache { enable: true }\n"
LOCAL = "--cache-config=local,size=1048576"
NOISY = tensor_section("input", [("IN", "FP32", [-1])]) + tensor_section("output", [("OUT", "FP32", [-1]), ("NOISE", "FP32", [-1])])
ANY = tensor_section("input", [("IN", "FP32", [-1, -1])]) + tensor_section("output", [("OUT", "FP32", [-1, -1]), ("NOISE", "FP32", [-1, -1])])


def write_noisy(repository, name, more=CACHED):
    repository.onnx(name, models.noisy(["batch", "n"]), f"max_batch_size: 8\n{NOISY}{one_instance()}{more}")


@pytest.fixture(scope="module")
def cached_server(tmp_path_factory):
    repository = Repository(tmp_path_factory.mktemp("cache") / "repository")
    write_noisy(repository, "noisy")
    write_noisy(repository, "noisy_dynamic", CACHED + "dynamic_batching { }\n")
    write_noisy(repository, "plain", "")
    repository.onnx("any_shape", models.noisy(["a", "b"]), f"max_batch_size: 0\n{ANY}{one_instance()}{CACHED}")
    repository.echo("slow", "FP32", [1], max_batch_size=1, parameters={"execute_delay_ms": 300}, more=CACHED)
    repository.echo("fails", "FP32", [1], max_batch_size=1, parameters={"fail_every": 2}, more=CACHED)
    repository.echo("text", "BYTES", [-1], max_batch_size=1, more=CACHED)
    labelled = tensor_section("input", [("IN", "FP32", [4])]) + tensor_section("output", [("OUT", "FP32", [4], 'label_filename: "labels.txt"')])
    repository.onnx("classes", models.identity("FP32", ["batch", 4]), f"max_batch_size: 8\n{labelled}{one_instance()}{CACHED}")
    (repository.directory("classes") / "labels.txt").write_text("a\nb\nc\nd\n")
    with ServerProcess(repository.root, LOCAL, "--metrics-config=summary_latencies=true") as server:
        yield server
        assert server.alive(), server.log()[-4000:]
        for name in repository.model_names():
            assert metric(server, "nereid_inference_inflight_request_count", model=name) == 0, name
            assert metric(server, "nv_inference_pending_request_count", model=name) == 0, name


@pytest.fixture(params=["http", "grpc"])
def client(request, cached_server):
    each = PROTOCOLS[request.param](cached_server)
    each.server = cached_server
    # Each protocol asks for numbers of its own, so that it meets no answer of the other.
    each.base = {"http": 1000, "grpc": 2000}[request.param]
    yield each
    each.close()


def x(value, rows=1, width=4):
    return {"IN": np.full((rows, width), value, np.float32)}


def noise(result):
    return result.as_numpy("NOISE").tolist()


@pytest.mark.parametrize("model", ["noisy", "noisy_dynamic"])
def test_the_same_input_again_is_a_hit(client, model):
    first = client.infer(model, x(client.base + 1), request_id="first")
    again = client.infer(model, x(client.base + 1), request_id="again")
    other = client.infer(model, x(client.base + 2))
    assert noise(first) == noise(again) != noise(other)
    assert again.as_numpy("OUT").tolist() == x(client.base + 1)["IN"].tolist()
    ids = [r.get_response()["id"] if client.name == "http" else r.get_response().id for r in (first, again)]
    assert ids == ["first", "again"]


def test_one_protocol_finds_what_the_other_left(cached_server):
    http, grpc = PROTOCOLS["http"](cached_server), PROTOCOLS["grpc"](cached_server)
    seen = noise(http.infer("noisy", x(3000)))
    assert noise(grpc.infer("noisy", x(3000))) == seen
    json_input = [http.input("IN", x(3000)["IN"], binary_data=False)]
    json_output = [http.output("NOISE", binary_data=False), http.output("OUT", binary_data=False)]
    http.client.infer("noisy", json_input, outputs=json_output)
    http.close(), grpc.close()


def test_hits_are_no_executions(client):
    before, was = statistics(client.server, "noisy"), metrics_of(client.server, "noisy")
    for value in (11, 11, 12, 11):
        client.infer("noisy", x(client.base + value))
    after, now = statistics(client.server, "noisy"), metrics_of(client.server, "noisy")

    def grown(key):
        return after["inference_stats"][key]["count"] - before["inference_stats"][key]["count"]

    assert {key: grown(key) for key in ("cache_hit", "cache_miss", "success", "queue", "fail")} == {
        "cache_hit": 2, "cache_miss": 2, "success": 4, "queue": 4, "fail": 0}  # fmt: skip
    assert [grown(key) for key in ("compute_input", "compute_infer", "compute_output")] == [2, 2, 2]
    assert after["inference_count"] - before["inference_count"] == 2
    assert after["execution_count"] - before["execution_count"] == 2
    for key in ("cache_hit", "cache_miss"):
        assert after["inference_stats"][key]["ns"] > before["inference_stats"][key]["ns"]
    assert {key: now[key] - was[key] for key in now} == {
        "nv_cache_num_hits_per_model": 2, "nv_cache_num_misses_per_model": 2, "nv_inference_request_success": 4,
        "nv_inference_count": 2, "nv_inference_exec_count": 2}  # fmt: skip


def metrics_of(server, model):
    names = ("nv_cache_num_hits_per_model", "nv_cache_num_misses_per_model", "nv_inference_request_success",
             "nv_inference_count", "nv_inference_exec_count")  # fmt: skip
    return {name: metric(server, name, model=model) for name in names}


def test_metrics_of_the_whole_cache(client):
    names = ("nv_cache_num_lookups", "nv_cache_num_hits", "nv_cache_num_misses", "nv_cache_num_entries")
    before = [metric(client.server, name) for name in names]
    for value in (21, 21, 22):
        client.infer("noisy", x(client.base + value))
    assert [metric(client.server, name) - was for name, was in zip(names, before)] == [3, 1, 2, 2]
    assert 0 < metric(client.server, "nv_cache_util") <= 1
    assert metric(client.server, "nv_cache_num_evictions") == 0
    for name in ("nv_cache_lookup_duration", "nv_cache_insertion_duration"):
        assert metric(client.server, name) >= 0
    for name in ("nv_cache_hit_duration_per_model", "nv_cache_miss_duration_per_model"):
        assert metric(client.server, name, model="noisy") > 0
    assert metric(client.server, "nv_cache_num_hits_per_model", model="plain") is None
    assert metric(client.server, "nv_cache_hit_summary_per_model_count", model="noisy") > 0
    assert metric(client.server, "nv_inference_request_summary_us_count", model="noisy") is None


def test_models_do_not_mix_and_one_without_cache_runs_always(client):
    first = client.infer("noisy", x(client.base + 31))
    other = client.infer("noisy_dynamic", x(client.base + 31))
    assert noise(first) != noise(other)
    plain = [noise(client.infer("plain", x(client.base + 31))) for _ in range(2)]
    assert plain[0] != plain[1]


def test_shape_belongs_to_the_key(client):
    zeros = np.full(6, client.base, np.float32)
    for shape in ((2, 3), (3, 2), (6, 1), (2, 3)):
        assert client.infer("any_shape", {"IN": zeros.reshape(shape)}).as_numpy("OUT").shape == shape
    one, two = client.infer("noisy", x(client.base + 41)), client.infer("noisy", x(client.base + 41, rows=2))
    assert two.as_numpy("NOISE").shape == (2, 4)
    assert noise(one)[0] != noise(two)[0]


def test_requested_outputs_belong_to_the_key(client):
    def names(outputs):
        response = client.infer("noisy", x(client.base + 51), outputs=outputs).get_response()
        listed = response["outputs"] if client.name == "http" else response.outputs
        return sorted(o["name"] if client.name == "http" else o.name for o in listed)

    assert names(["OUT"]) == ["OUT"]
    assert names(["NOISE"]) == ["NOISE"]
    assert names(None) == ["NOISE", "OUT"]
    assert names(["OUT"]) == ["OUT"]


def test_parameters_belong_to_the_key(client):
    def ask(**options):
        return noise(client.infer("noisy", x(client.base + 61), **options))

    plain = ask()
    assert ask(parameters={"style": "loud"}) != plain
    assert ask(parameters={"style": "loud"}) == ask(parameters={"style": "loud"})
    assert ask(priority=3, timeout=5_000_000) == plain, "how a request is handled is not what it asks"


def test_text_elements_are_told_apart(client):
    def ask(*rows):
        array = np.array([[row.encode() for row in rows]], dtype=np.object_)
        return client.infer("text", {"IN": array}).as_numpy("OUT").tolist()

    mark = str(client.base)
    assert ask("ab", "c", mark) == [[b"ab", b"c", mark.encode()]]
    assert ask("a", "bc", mark) == [[b"a", b"bc", mark.encode()]]
    assert ask("ab", "c", mark) == [[b"ab", b"c", mark.encode()]]


def test_classification_is_made_from_the_kept_tensor(client):
    values = np.array([[1, 9, 3, client.base + 0.5]], np.float32)

    def hits():
        return statistics(client.server, "classes")["inference_stats"]["cache_hit"]["count"]

    before = hits()
    assert client.infer("classes", {"IN": values}).as_numpy("OUT").tolist() == values.tolist()
    top = client.infer("classes", {"IN": values}, outputs=[client.output("OUT", class_count=2)]).as_numpy("OUT")
    assert [text.decode().split(":")[1:] for text in top.flatten()] == [["3", "d"], ["1", "b"]]
    assert client.infer("classes", {"IN": values}).as_numpy("OUT").tolist() == values.tolist()
    assert hits() - before == 2


def test_errors_are_not_kept(client):
    """Every second execution fails."""
    outcomes = []
    for value in (client.base + 71, client.base + 72, client.base + 72, client.base + 72):
        try:
            outcomes.append(client.infer("fails", x(value, width=1)).as_numpy("OUT").tolist())
        except InferenceServerException:
            outcomes.append("failed")
    good = [[client.base + 72.0]]
    assert outcomes == [[[client.base + 71.0]], "failed", good, good]
    # One more, so that the next test begins with an execution that works.
    with pytest.raises(InferenceServerException):
        client.infer("fails", x(client.base + 73, width=1))


def test_equal_requests_at_the_same_time_are_all_answered(client):
    before = statistics(client.server, "slow")["inference_stats"]
    results = queue.Queue()

    def ask():
        each = PROTOCOLS[client.name](client.server)
        results.put(each.infer("slow", x(client.base + 81, width=1)).as_numpy("OUT").tolist())
        each.close()

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert [results.get(timeout=20) for _ in threads] == [[[client.base + 81.0]]] * 4
    for thread in threads:
        thread.join(5)
    client.infer("slow", x(client.base + 81, width=1))
    after = statistics(client.server, "slow")["inference_stats"]
    assert after["cache_miss"]["count"] - before["cache_miss"]["count"] == 1, "only the first answer was kept"
    assert after["cache_hit"]["count"] > before["cache_hit"]["count"]


def test_a_cancelled_request_leaves_nothing_behind(cached_server):
    grpc = PROTOCOLS["grpc"](cached_server)
    before = statistics(cached_server, "slow")
    with pytest.raises(InferenceServerException):
        grpc.infer("slow", x(91, width=1), client_timeout=0.1)
    assert wait_until(lambda: metric(cached_server, "nereid_inference_inflight_request_count", model="slow") == 0)
    for _ in range(2):
        assert grpc.infer("slow", x(91, width=1)).as_numpy("OUT").tolist() == [[91.0]]
    after = statistics(cached_server, "slow")
    assert after["inference_stats"]["cache_miss"]["count"] - before["inference_stats"]["cache_miss"]["count"] == 1
    assert after["inference_stats"]["cache_hit"]["count"] - before["inference_stats"]["cache_hit"]["count"] == 1
    grpc.close()


def test_streamed_requests_find_kept_answers(cached_server):
    grpc = PROTOCOLS["grpc"](cached_server)
    seen = noise(grpc.infer("noisy", x(101)))
    answers = queue.Queue()
    grpc.client.start_stream(lambda result, error: answers.put(error or result))
    for number in range(3):
        grpc.client.async_stream_infer("noisy", grpc.inputs(x(101)), request_id=str(number))
    results = [answers.get(timeout=10) for _ in range(3)]
    grpc.client.stop_stream()
    assert [noise(result) for result in results] == [seen] * 3
    assert sorted(result.get_response().id for result in results) == ["0", "1", "2"]
    grpc.close()


def test_memory_that_changes_during_a_request_spoils_nothing(tmp_path, start):
    """What is kept under an input must be the answer to it, also when its owner writes to shared memory meanwhile."""
    repository = Repository(tmp_path / "repository")
    repository.echo("slow", "FP32", [1], max_batch_size=1, parameters={"execute_delay_ms": 500}, more=CACHED)
    server = start(repository.root, LOCAL, "--allow-client-shm=true")
    grpc = PROTOCOLS["grpc"](server)
    region = shm.create_shared_memory_region("r", f"/nereid_cache_{server.http_port}", 4, create_only=True)
    try:
        shm.set_shared_memory_region(region, [np.float32([1])])
        grpc.client.register_system_shared_memory("r", f"/nereid_cache_{server.http_port}", 4)
        tensor = grpc.module.InferInput("IN", [1, 1], "FP32")
        tensor.set_shared_memory("r", 4)
        results = queue.Queue()
        grpc.client.async_infer("slow", [tensor], lambda result, error: results.put(error or result))
        assert wait_until(lambda: metric(server, "nereid_inference_inflight_request_count", model="slow") == 1)
        shm.set_shared_memory_region(region, [np.float32([2])])
        results.get(timeout=10).as_numpy("OUT")
        for value in (1, 2, 1):
            assert grpc.infer("slow", x(value, width=1)).as_numpy("OUT").tolist() == [[value]]
        assert statistics(server, "slow")["inference_stats"]["cache_hit"]["count"] == 2
        grpc.client.unregister_system_shared_memory()
    finally:
        shm.destroy_shared_memory_region(region)
        grpc.close()


def test_kept_answers_go_into_shared_memory_too(tmp_path, start):
    repository = Repository(tmp_path / "repository")
    write_noisy(repository, "noisy")
    server = start(repository.root, LOCAL, "--allow-client-shm=true")
    key = f"/nereid_cache_{server.http_port}"
    region = shm.create_shared_memory_region("out", key, 16, create_only=True)
    clients = [PROTOCOLS[name](server) for name in ("http", "grpc")]
    try:
        clients[0].client.register_system_shared_memory("out", key, 16)
        seen = noise(clients[0].infer("noisy", x(1), outputs=["NOISE"]))
        for client in clients:
            shm.set_shared_memory_region(region, [np.zeros(4, np.float32)])
            output = client.output("NOISE")
            output.set_shared_memory("out", 16)
            client.client.infer("noisy", client.inputs(x(1)), outputs=[output])
            assert shm.get_contents_as_numpy(region, np.float32, [1, 4]).tolist() == seen
        assert statistics(server, "noisy")["inference_stats"]["cache_hit"]["count"] == 2
        clients[0].client.unregister_system_shared_memory()
    finally:
        shm.destroy_shared_memory_region(region)
        for client in clients:
            client.close()


def test_what_was_not_used_longest_goes_first(tmp_path, start):
    repository = Repository(tmp_path / "repository")
    write_noisy(repository, "noisy")
    server = start(repository.root, "--cache-config=local,size=100000")
    http = PROTOCOLS["http"](server)

    def ask(value, width=3700):
        return noise(http.infer("noisy", x(value, width=width)))[0][:3]

    first = {value: ask(value) for value in (1, 2, 3)}
    assert ask(1) == first[1], "three answers of 30 kB fit"
    ask(4)
    assert ask(1) == first[1], "used since"
    assert ask(2) != first[2], "the oldest was dropped"
    assert metric(server, "nv_cache_num_evictions") == 2
    assert metric(server, "nv_cache_num_entries") == 3
    assert 0.9 < metric(server, "nv_cache_util") <= 1
    assert ask(5, 20_000) != ask(5, 20_000), "larger than the cache: served, never kept"
    assert "is greater than total cache size: 100000" in server.log()
    assert metric(server, "nv_cache_num_entries") == 3
    http.close()


def test_a_reload_drops_the_answers(tmp_path, start):
    repository = Repository(tmp_path / "repository")
    write_noisy(repository, "noisy")
    write_noisy(repository, "other")
    server = start(repository.root, LOCAL, "--model-control-mode=explicit", "--load-model=*")
    http = PROTOCOLS["http"](server)
    before = {name: noise(http.infer(name, x(1))) for name in ("noisy", "other")}
    doubled = models.graph_model(
        [models.helper.make_node("Add", ["IN", "IN"], ["OUT"]), models.helper.make_node("Identity", ["IN"], ["NOISE"])],
        [models.value("IN", "FP32", ["batch", "n"])],
        [models.value(name, "FP32", ["batch", "n"]) for name in ("OUT", "NOISE")],
    )
    repository.onnx("noisy", doubled)
    http.client.load_model("noisy")
    assert wait_until(lambda: metric(server, "nv_cache_num_entries") == 1)
    assert http.infer("noisy", x(1)).as_numpy("OUT").tolist() == [[2.0] * 4]
    assert noise(http.infer("other", x(1))) == before["other"]
    assert statistics(server, "noisy")["inference_stats"]["cache_hit"]["count"] == 0
    http.client.unload_model("noisy")
    assert wait_until(lambda: metric(server, "nv_cache_num_entries") == 1)
    http.close()


def write_chain(repository, more="", inner=CACHED):
    """The ensemble `chain`: DOUBLED = 2·IN by `double`, NOISE and OUT = DOUBLED by `noisy`."""
    double = models.graph_model(
        [models.helper.make_node("Add", ["IN", "IN"], ["OUT"])],
        [models.value("IN", "FP32", ["batch", "n"])], [models.value("OUT", "FP32", ["batch", "n"])],
    )  # fmt: skip
    plain = tensor_section("input", [("IN", "FP32", [-1])]) + tensor_section("output", [("OUT", "FP32", [-1])])
    repository.onnx("double", double, f"max_batch_size: 8\n{plain}{one_instance()}")
    write_noisy(repository, "noisy", inner)
    step = 'step {{ model_name: "{0}" model_version: -1 input_map {{ key: "IN" value: "{1}" }} {2} }}'
    first = step.format("double", "IN", 'output_map { key: "OUT" value: "DOUBLED" }')
    outputs = 'output_map { key: "OUT" value: "OUT" } output_map { key: "NOISE" value: "NOISE" }'
    second = step.format("noisy", "DOUBLED", outputs)
    steps = f"ensemble_scheduling {{ {first} {second} }}\n"
    repository.config("chain", f'platform: "ensemble"\nmax_batch_size: 8\n{NOISY}{steps}{more}')
    repository.directory("chain", 1)


def test_a_cached_ensemble_answers_without_its_steps(tmp_path, start):
    repository = Repository(tmp_path / "repository")
    write_chain(repository, CACHED, inner="")
    server = start(repository.root, LOCAL)
    http, grpc = PROTOCOLS["http"](server), PROTOCOLS["grpc"](server)
    answers = [each.infer("chain", x(1)) for each in (http, grpc, http)]
    assert answers[0].as_numpy("OUT").tolist() == [[2.0] * 4]
    assert noise(answers[0]) == noise(answers[1]) == noise(answers[2])
    assert [statistics(server, name)["inference_count"] for name in ("chain", "double", "noisy")] == [1, 1, 1]
    stats = statistics(server, "chain")["inference_stats"]
    assert [stats[key]["count"] for key in ("success", "cache_hit", "cache_miss", "compute_infer")] == [3, 2, 1, 1]
    http.close(), grpc.close()


def test_a_cached_step_saves_its_execution(tmp_path, start):
    repository = Repository(tmp_path / "repository")
    write_chain(repository)
    server = start(repository.root, LOCAL)
    http, grpc = PROTOCOLS["http"](server), PROTOCOLS["grpc"](server)
    answers = [each.infer("chain", x(1)) for each in (http, grpc, http)]
    assert noise(answers[0]) == noise(answers[1]) == noise(answers[2])
    # A request of a client for the same is the same.
    assert noise(http.infer("noisy", x(2))) == noise(answers[0])
    assert [statistics(server, name)["inference_count"] for name in ("chain", "double", "noisy")] == [3, 3, 1]
    assert statistics(server, "noisy")["inference_stats"]["cache_hit"]["count"] == 3
    for name in ("chain", "double", "noisy"):
        assert metric(server, "nereid_inference_inflight_request_count", model=name) == 0
    http.close(), grpc.close()


def test_an_ensemble_forgets_its_answers_when_a_step_is_reloaded(tmp_path, start):
    repository = Repository(tmp_path / "repository")
    write_chain(repository, CACHED)
    server = start(repository.root, LOCAL, "--model-control-mode=explicit", "--load-model=chain")
    http = PROTOCOLS["http"](server)
    assert http.infer("chain", x(3)).as_numpy("OUT").tolist() == [[6.0] * 4]
    repository.onnx("double", models.identity("FP32", ["batch", "n"]))
    http.client.load_model("double")
    assert http.infer("chain", x(3)).as_numpy("OUT").tolist() == [[3.0] * 4]
    http.close()


def test_an_ensemble_of_decoupled_models_cannot_use_the_cache(tmp_path, start):
    repository = Repository(tmp_path / "repository")
    numbers = [("IN", "INT32", [-1]), ("DELAY", "UINT32", [-1]), ("WAIT", "UINT32", [1])]
    outputs = [("OUT", "INT32", [1]), ("IDX", "UINT32", [1])]
    sections = tensor_section("input", numbers) + tensor_section("output", outputs)
    repository.config("repeat", f'backend: "repeat"\n{sections}model_transaction_policy {{ decoupled: true }}\n')
    repository.directory("repeat", 1)
    maps = "".join(f'input_map {{ key: "{name}" value: "{name}" }}' for name, *_ in numbers)
    maps += "".join(f'output_map {{ key: "{name}" value: "{name}" }}' for name, *_ in outputs)
    steps = f'ensemble_scheduling {{ step {{ model_name: "repeat" model_version: -1 {maps} }} }}\n'
    repository.config("streams", f'platform: "ensemble"\n{sections}{steps}{CACHED}')
    repository.directory("streams", 1)
    server = start(repository.root, LOCAL, "--model-control-mode=explicit")
    http = PROTOCOLS["http"](server)
    with pytest.raises(InferenceServerException, match="Response Cache does not currently support model streams with 'decoupled'"):
        http.client.load_model("streams")
    http.close()


def test_a_server_without_cache_serves_models_that_want_one(tmp_path, start):
    repository = Repository(tmp_path / "repository")
    write_noisy(repository, "noisy")
    server = start(repository.root)
    http = PROTOCOLS["http"](server)
    assert noise(http.infer("noisy", x(1))) != noise(http.infer("noisy", x(1)))
    assert metric(server, "nv_cache_num_hits_per_model") is None
    assert metric(server, "nv_cache_num_entries") is None
    http.close()


def test_the_old_flag_works(tmp_path, start):
    repository = Repository(tmp_path / "repository")
    write_noisy(repository, "noisy")
    server = start(repository.root, "--response-cache-byte-size=1048576")
    http = PROTOCOLS["http"](server)
    assert noise(http.infer("noisy", x(1))) == noise(http.infer("noisy", x(1)))
    http.close()


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--cache-config=local"], "No cache specified. --cache-config option format is <cache name>,<setting>=<value>. Got local"),
        (["--cache-config=local,size="], "--cache-config option format is '<cache name>,<setting>=<value>'. Got local,size="),
        (["--cache-config=local,sze=5"], "Failed to initialize LocalCache: config didn't contain a valid 'size' field."),
        (["--cache-config=local,size=big"], "Failed to initialize LocalCache: config didn't contain a valid 'size' field."),
        (["--cache-config=redis,host=h"], "unable to find 'libtritoncache_redis.so' for cache. Searched: /opt/tritonserver/caches"),
        (["--cache-config=redis,host=h", "--cache-directory=/here"], "'libtritoncache_redis.so' for cache. Searched: /here"),
        ([LOCAL, "--cache-config=redis,host=h"], "found multiple cache configurations, but only a single cache is currently supported"),
        ([LOCAL, "--response-cache-byte-size=5"], "Incompatible flags --response-cache-byte-size and --cache-config both provided"),
    ],
)  # fmt: skip
def test_wrong_flags_stop_the_start(tmp_path, flags, text):
    http, grpc, metrics = free_ports(3)
    ports = [f"--http-port={http}", f"--grpc-port={grpc}", f"--metrics-port={metrics}"]
    run = subprocess.run(
        [*server_command(), f"--model-repository={tmp_path}", *ports, *flags], capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 1
    assert text in run.stdout + run.stderr
