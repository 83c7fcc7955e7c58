"""The rate limiter: resources, priorities, devices, its flags and what it refuses (L0_rate_limiter)."""

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from nereid_testing.burst import Burst, hammer
from nereid_testing.observe import batch_sizes, difference, pending, statistics, wait_until
from nereid_testing.protocols import PROTOCOLS
from nereid_testing.repository import Repository, parameters_section, tensor_section
from nereid_testing.server import PROJECT, ServerProcess, free_ports, is_reference, server_command

LIMIT = "--rate-limit=execution_count"


def resource(name, count, is_global=False):
    return f'resources [ {{ name: "{name}" count: {count} global: {"true" if is_global else "false"} }} ]'


class RatedRepository(Repository):
    """Adds models of the identity backend with instance groups of their own."""

    def rated(self, name, *groups, delay=0, max_batch_size=1, more=""):
        """A group is (count, text of rate_limiter)."""
        self.echo(name, "FP32", [1])
        rows = ", ".join(f"{{ kind: KIND_CPU count: {n} rate_limiter {{ {text} }} }}" for n, text in groups)
        self.config(
            name,
            f'backend: "{"python" if is_reference() else "identity"}"\n'
            f"max_batch_size: {max_batch_size}\n"
            + tensor_section("input", [("IN", "FP32", [1])])
            + tensor_section("output", [("OUT", "FP32", [1])])
            + f"instance_group [ {rows} ]\n"
            + parameters_section({"execute_delay_ms": delay})
            + more,
        )


def control(name, kind, values="int32_false_true: [ 0, 1 ]"):
    return f'{{ name: "{name}" control [ {{ kind: CONTROL_SEQUENCE_{kind} {values} }} ] }}'


FLAGS = [control("START", "START"), control("READY", "READY")]
MORE_FLAGS = [*FLAGS, control("END", "END"), control("CORRID", "CORRID", "data_type: TYPE_UINT64")]


def sequence(repository, name, backend, controls, strategy, instances, max_batch_size=1):
    """A model of a sequence backend, which adds up what each sequence sends; its instances need a TURN."""
    repository.config(
        name,
        f'backend: "{backend}"\nmax_batch_size: {max_batch_size}\n'
        + tensor_section("input", [("INPUT", "INT32", [1])])
        + tensor_section("output", [("OUTPUT", "INT32", [1])])
        + f"sequence_batching {{ control_input [ {', '.join(controls)} ] {strategy} }}\n"
        + f"instance_group [ {{ kind: KIND_CPU count: {instances} rate_limiter {{ {resource('TURN', 1)} }} }} ]\n"
        + parameters_section({"execute_delay_ms": 5}),
    )
    repository.directory(name, 1)


def write_limited(root):
    repository = RatedRepository(root)
    if not is_reference():
        sequence(repository, "direct", "sequence", FLAGS, "direct { }", 3, max_batch_size=2)
        oldest = "oldest { max_candidate_sequences: 4 }"
        sequence(repository, "oldest", "dyna_sequence", MORE_FLAGS, oldest, 2, max_batch_size=4)
        repository.rated("turn", (1, resource("TURN", 1)), delay=5)
    repository.rated("three", (3, resource("POOL", 4)), delay=500)
    repository.rated("holder", (1, resource("LOCK", 1)), delay=1500)
    repository.rated("waiter", (1, resource("LOCK", 1)))
    repository.rated("batcher", (1, resource("LOCK", 1)), max_batch_size=8, more="dynamic_batching { }\n")
    repository.rated("free", (1, ""))
    repository.rated("mixed", (1, resource("LOCK", 1)), (1, ""))
    for scope in ("device", "global"):
        for priority in (1, 2):
            text = f"{resource(f'SHARE_{scope}', 1, scope == 'global')} priority: {priority}"
            repository.rated(f"{scope}_{priority}", (1, text), delay=20)
    for priority in (1, 2):
        repository.rated(f"plenty_{priority}", (1, f"{resource('PLENTY', 1)} priority: {priority}"), delay=20)
    repository.config(
        "chain",
        'platform: "ensemble" max_batch_size: 1\n'
        + tensor_section("input", [("IN", "FP32", [1])])
        + tensor_section("output", [("OUT", "FP32", [1])])
        + "ensemble_scheduling { step [ "
        + ", ".join(
            f'{{ model_name: "{model}" model_version: -1 input_map {{ key: "IN" value: "{source}" }} '
            f'output_map {{ key: "OUT" value: "{target}" }} }}'
            for model, source, target in [("waiter", "IN", "A"), ("three", "A", "B"), ("device_1", "B", "OUT")]
        )
        + " ] }\n",
    )
    repository.directory("chain", 1)
    return repository


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("limited") / "repository"
    repository = write_limited(root)
    counts = ["POOL:8", "LOCK:1", "SHARE_device:1", "SHARE_global:1", "PLENTY:2", "PLENTY:9:7", "TURN:1"]
    with ServerProcess(root, LIMIT, *(f"--rate-limit-resource={each}" for each in counts)) as running:
        yield running
        assert running.alive()
        names = repository.model_names()
        assert wait_until(lambda: all(not pending(running, name) for name in names))


@pytest.fixture(params=["http", "grpc"])
def burst(request, server):
    with Burst(server, request.param) as each:
        yield each


def test_instances_share_what_there_is(burst):
    """8 units, 4 each: two of the three instances at a time, so that six requests take three rounds."""
    begin = time.monotonic()
    answers = burst.results([burst.send("three", value, wait=0) for value in range(6)])
    seconds = time.monotonic() - begin
    assert [answer.value for answer in answers] == list(range(6))
    assert 1.49 < seconds < 2.9


@pytest.mark.ours  # 2.51 holds up everybody behind the first that waits
def test_who_waits_holds_up_nobody_who_needs_nothing(burst):
    held = burst.send("holder", 1, wait=0.1)
    waiting = burst.send("waiter", 2)
    for model in ("free", "mixed", "plenty_1"):
        answer = burst.send(model, 3).result(20)
        assert answer.value == 3
    assert not held.done() and not waiting.done()
    assert [answer.value for answer in burst.results([held, waiting])] == [1, 2]
    assert waiting.result().seconds > 1


@pytest.mark.ours
def test_a_batch_is_formed_when_its_instance_has_its_resources(server, burst):
    before = batch_sizes(server, "batcher")
    burst.send("holder", 0, wait=0.1)
    waiting = [burst.send("batcher", value) for value in range(5)]
    assert [answer.value for answer in burst.results(waiting)] == list(range(5))
    assert difference(batch_sizes(server, "batcher"), before) == {5: 1}


@pytest.mark.parametrize("scope", ["device", "global"])
def test_priority_2_gets_half_as_many_turns(server, scope):
    counts = hammer(server, [f"{scope}_1", f"{scope}_2"], 2.5)
    assert sum(counts.values()) > 40
    assert 1.6 < counts[f"{scope}_1"] / counts[f"{scope}_2"] < 2.5


def test_priorities_do_not_matter_where_there_is_enough(server):
    counts = hammer(server, ["plenty_1", "plenty_2"], 1.5)
    assert 0.8 < counts["plenty_1"] / counts["plenty_2"] < 1.25
    assert counts["plenty_1"] > 40


def test_an_ensemble_runs_through_limited_models(burst):
    answers = burst.results([burst.send("chain", value, wait=0) for value in range(6)])
    assert [answer.value for answer in answers] == list(range(6))


@pytest.mark.ours  # needs the sequence backend
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_sequences_run_through_limited_instances(server, protocol):
    """Three models share one TURN; every sequence gets its own sums, every plain request its answer."""
    step_count = 8

    def run(model, number):
        client = PROTOCOLS[protocol](server)
        sums = []
        for step in range(step_count):
            values = np.full((1, 1), number + step, np.int32)
            flags = {"sequence_start": step == 0, "sequence_end": step == step_count - 1}
            result = client.infer(model, {"INPUT": values}, sequence_id=number, **flags)
            sums.append(int(result.as_numpy("OUTPUT")[0, 0]))
        client.close()
        return sums

    numbers = range(1, 13)
    with ThreadPoolExecutor(32) as pool:
        plain = pool.submit(hammer, server, ["turn"], 1.5)
        runs = [(model, n, pool.submit(run, model, n)) for model in ("direct", "oldest") for n in numbers]
        for model, number, future in runs:
            parts = [number + step for step in range(step_count)]
            expected = [sum(parts[: i + 1]) for i in range(step_count)]
            if model == "oldest":
                expected[-1] += number  # the backend adds the id at the end
            assert future.result(60) == expected, model
        assert plain.result(60)["turn"] > 5


@pytest.mark.ours  # 2.51 runs what its client has left, without dynamic batching
def test_a_client_that_goes_away_takes_its_claim_along(server, burst):
    burst.send("holder", 0, wait=0.1)
    protocol = PROTOCOLS["grpc"](server)
    inputs = protocol.inputs({"IN": np.zeros((1, 1), np.float32)})
    call = protocol.client.async_infer("waiter", inputs, lambda result, error: None)
    before = statistics(server, "waiter")["execution_count"]
    time.sleep(0.1)
    call.cancel()
    assert wait_until(lambda: pending(server, "waiter") == 0)
    protocol.close()
    assert burst.send("waiter", 4).result(20).value == 4
    assert statistics(server, "waiter")["execution_count"] == before + 1


def test_without_the_flag_resources_do_not_matter(tmp_path, start):
    repository = RatedRepository(tmp_path / "models")
    repository.rated("m", (2, resource("R", 4)), (1, resource("R", 1, True)), delay=1000)
    server = start(repository.root, "--rate-limit-resource=R:1")
    with Burst(server, "http") as burst:
        begin = time.monotonic()
        burst.results([burst.send("m", value, wait=0) for value in range(3)])
        assert time.monotonic() - begin < 1.9


SHORT = (
    'Resource count for "R" is limited to {} which will prevent scheduling of one or more model instances, the '
    "minimum required count is {}"
)
BOTH = 'Resource "R" is present as both global and device-specific resource in the model configuration.'


@pytest.fixture
def explicit(tmp_path, start):
    """A repository and what starts a server on it that loads on request."""
    repository = RatedRepository(tmp_path / "models")
    return repository, lambda *flags: start(repository.root, LIMIT, "--model-control-mode=explicit", *flags)


def load(server, name, protocol="http"):
    """Loads a model; returns the text of the refusal, "" when it serves."""
    client = PROTOCOLS[protocol](server)
    try:
        client.client.load_model(name)
        assert client.client.is_model_ready(name)
        return ""
    except InferenceServerException as error:
        return error.message()
    finally:
        client.close()


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_demand_that_can_never_be_met_is_refused(explicit, protocol):
    repository, begin = explicit
    repository.rated("large", (1, resource("R", 10)))
    repository.rated("unknown", (1, resource("S", 1)))
    repository.rated("fine", (1, resource("R", 4)))
    server = begin("--rate-limit-resource=R:5", "--rate-limit-resource=R:4", "--rate-limit-resource=R:1:0")
    assert SHORT.format(4, 10) in load(server, "large", protocol)
    assert SHORT.format(0, 1).replace('"R"', '"S"') in load(server, "unknown", protocol)
    assert load(server, "fine", protocol) == ""
    with Burst(server, protocol) as burst:
        assert burst.send("fine", 2).result(20).value == 2


def test_a_name_is_global_or_of_devices(explicit):
    repository, begin = explicit
    repository.rated("of_devices", (1, resource("R", 1)))
    repository.rated("of_all", (1, resource("R", 1, True)))
    repository.rated("of_both", (1, resource("R", 1)), (1, resource("R", 1, True)))
    server = begin()
    assert BOTH in load(server, "of_both")
    assert load(server, "of_devices") == ""
    assert BOTH in load(server, "of_all")
    client = PROTOCOLS["http"](server)
    client.client.unload_model("of_devices")
    assert wait_until(lambda: load(server, "of_all") == "")
    client.close()


@pytest.mark.ours  # 2.51 names the first fault only
def test_all_faults_are_named_at_once(explicit):
    repository, begin = explicit
    demands = 'resources [ { name: "R" count: 3 }, { name: "S" count: 2 }, { name: "T" count: 9 } ]'
    repository.rated("m", (1, demands), (1, resource("R", 2, True)))
    server = begin("--rate-limit-resource=R:1", "--rate-limit-resource=T:9")
    text = load(server, "m")
    for part in (BOTH, SHORT.format(1, 3), SHORT.format(0, 2).replace('"R"', '"S"'), "rate_limiter.resources[0]"):
        assert part in text
    assert '"T"' not in text and "m/config.pbtxt:" in text


def test_capacities_follow_loads_and_unloads(explicit):
    """Two instances need 1 of R each: one at a time, but two while a model that needs 2 is loaded."""
    repository, begin = explicit
    repository.rated("small", (2, resource("R", 1)), delay=800)
    repository.rated("large", (1, resource("R", 2)))
    server = begin()
    client = PROTOCOLS["http"](server)

    def seconds_of_two():
        with Burst(server, "grpc") as burst:
            begin = time.monotonic()
            burst.results([burst.send("small", value, wait=0) for value in range(2)])
            return time.monotonic() - begin

    assert load(server, "small") == ""
    assert seconds_of_two() > 1.59
    assert load(server, "large") == ""
    assert seconds_of_two() < 1.55
    client.client.unload_model("large")
    assert wait_until(lambda: seconds_of_two() > 1.59)
    client.close()


def test_work_of_an_unloaded_model_is_finished(explicit):
    repository, begin = explicit
    repository.rated("m", (1, resource("R", 1)), delay=200)
    repository.rated("other", (1, resource("R", 1)), delay=200)
    server = begin()
    assert load(server, "m") == "" and load(server, "other") == ""
    client = PROTOCOLS["http"](server)
    with Burst(server, "grpc") as burst:
        queued = [burst.send(model, value, wait=0.02) for value in range(3) for model in ("m", "other")]
        client.client.unload_model("m")
        assert not client.client.is_model_ready("m")
        assert all(answer.error is None for answer in burst.results(queued))
        assert load(server, "m") == ""
        assert burst.send("m", 7).result(20).value == 7
    client.close()


@pytest.mark.parametrize(
    "flag, text",
    [
        ("--rate-limit=sometimes", "invalid argument for --rate-limit"),
        ("--rate-limit-resource=R1", "'<resource_name>:<count>:<device>' or '<resource_name>:<count>'. Got R1"),
        ("--rate-limit-resource=R1:1:2:3", "Got R1:1:2:3"),
        ("--rate-limit-resource=R1:many", "Invalid option value. Got many"),
        ("--rate-limit-resource=R1:99999999999", "Provided option value is out of bound. Got 99999999999"),
    ],
)
def test_flags_that_say_nothing_end_the_start(tmp_path, flag, text):
    ports = [f"--{kind}-port={port}" for kind, port in zip(("http", "grpc", "metrics"), free_ports(3))]
    command = [*server_command(), f"--model-repository={tmp_path}", *ports, flag]
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert f'Bad option: "{flag.split("=")[0]}".' in ended.stderr and text in ended.stderr
