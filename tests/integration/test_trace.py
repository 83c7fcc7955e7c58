"""Trace settings, trace files and OpenTelemetry spans with real clients (L0_trace, L0_cmdline_trace)."""

import json
import subprocess
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

from nereid_testing.decoupled import Stream, add_repeat, repeat_inputs
from nereid_testing.ensembles import add_ensemble, chain
from nereid_testing.observe import pending, wait_until
from nereid_testing.otlp_collector import OtlpCollector
from nereid_testing.repository import Repository
from nereid_testing.server import ServerProcess, server_command

pytestmark = pytest.mark.ours

PARENT = "00-0af7651916cd43dd8448eb211c12666c-b7ad6b7169242424-01"
ON = ["--trace-config=level=TIMESTAMPS", "--trace-config=rate=1"]
COMPUTE = ["COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END"]


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("trace") / "repository"
    models = Repository(root)
    for name in ("simple", "other"):
        models.echo(name, "FP32", [4], max_batch_size=8)
    models.echo("slow", "FP32", [4], parameters={"execute_delay_ms": "1000"})
    models.echo("custom", "FP32", [4], max_batch_size=8, parameters={
        "execute_delay_ms": "50", "enable_custom_tracing": "true", "nested_span_count": "3", "single_activity_frequency": "2",
    })
    add_ensemble(models, "ensemble", [("X", "FP32", [4])], [("Y", "FP32", [4])], chain("simple", "other"), max_batch_size=8)
    add_repeat(models, "repeat")
    return root


def call(server, path, change=None, headers=None):
    """Status and JSON of a plain HTTP call, as curl makes it."""
    body = None if change is None else json.dumps(change).encode()
    request = urllib.request.Request(f"http://{server.http}{path}", body, headers or {})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def infer(server, module=httpclient, model="simple", name="IN", request_id="", rows=1, headers=None, **options):
    client = module.InferenceServerClient(server.http if module is httpclient else server.grpc)
    tensor = module.InferInput(name, [rows, 4], "FP32")
    tensor.set_data_from_numpy(np.arange(rows * 4, dtype=np.float32).reshape(rows, 4))
    try:
        return client.infer(model, [tensor], request_id=request_id, headers=headers, **options)
    finally:
        client.close()


def read(path):
    """Entries of a trace file."""
    return json.loads(path.read_text())


def starts(entries):
    return [each for each in entries if "model_name" in each]


def names(entries, trace_id):
    return [stamp["name"] for each in entries if each["id"] == trace_id for stamp in each.get("timestamps", [])]


def settings_over_grpc(client, model=None):
    shown = client.get_trace_settings(model, as_json=True)["settings"]
    return {name: value["value"] for name, value in shown.items()}


def test_settings_are_the_same_over_both_protocols(repository, tmp_path):
    file = tmp_path / "t.json"
    with ServerProcess(repository, f"--trace-config=triton,file={file}", *ON) as server:
        http = httpclient.InferenceServerClient(server.http)
        grpc = grpcclient.InferenceServerClient(server.grpc)
        initial = {
            "trace_level": ["TIMESTAMPS"], "trace_rate": "1", "trace_count": "-1", "log_frequency": "0",
            "trace_file": str(file), "trace_mode": "triton",
        }
        assert http.get_trace_settings() == http.get_trace_settings("simple") == initial
        as_lists = {name: value if isinstance(value, list) else [value] for name, value in initial.items()}
        assert settings_over_grpc(grpc) == settings_over_grpc(grpc, "simple") == as_lists

        http.update_trace_settings("simple", {"trace_rate": "12", "log_frequency": "34"})
        grpc.update_trace_settings(settings={"trace_rate": "56", "trace_count": "78", "trace_level": ["OFF"]})
        model = http.get_trace_settings("simple")
        assert (model["trace_rate"], model["log_frequency"], model["trace_count"], model["trace_level"]) == ("12", "34", "78", ["OFF"])
        assert http.update_trace_settings(settings={"trace_rate": None, "trace_count": None}) == {**initial, "trace_level": ["OFF"]}
        grpc.update_trace_settings("simple", {"trace_rate": None, "trace_level": None})
        assert http.get_trace_settings("simple") == {**initial, "trace_level": ["OFF"], "log_frequency": "34"}
        levels = grpc.update_trace_settings("simple", {"trace_level": ["TENSORS", "TIMESTAMPS"]}, as_json=True)["settings"]["trace_level"]
        assert levels["value"] == ["TIMESTAMPS", "TENSORS"]

        for client in (http, grpc):
            for change, text in [
                ({"trace_file": "/tmp/elsewhere"}, "trace file location can not be updated through network protocol"),
                ({"trace_rate": "many"}, "Unable to parse 'trace_rate', got: many"),
                ({"trace_rate": "10000000000"}, "out of range [ 0, 4294967295 ]"),
                ({"trace_count": "-2"}, "Expecting value >= -1"),
                ({"trace_level": ["OFF", "TENSORS"]}, "Expect only one trace level 'OFF' is specified"),
                ({"trace_level": ["TENSORS"], "trace_rate": "0"}, "sample rate must be non-zero"),
            ]:
                before = client.get_trace_settings("simple")
                with pytest.raises(InferenceServerException, match=text.replace("[", r"\[").replace("]", r"\]")):
                    client.update_trace_settings("simple", change)
                assert client.get_trace_settings("simple") == before
            with pytest.raises(InferenceServerException, match="Request for unknown model : ghost"):
                client.get_trace_settings("ghost")
            with pytest.raises(InferenceServerException, match="Request for unknown model : ghost"):
                client.update_trace_settings("ghost", {"trace_rate": "1"})


def test_a_rate_beyond_32_bits_is_refused(repository):
    """Scenario D15."""
    with ServerProcess(repository) as server:
        status, answer = call(server, "/v2/trace/setting", {"trace_rate": "10000000000"})
        assert status == 400
        assert answer["error"] == "Unable to parse 'trace_rate', value is out of range [ 0, 4294967295 ], got: 10000000000"
        assert call(server, "/v2/trace/setting")[1]["trace_rate"] == "1000"
        status, answer = call(server, "/v2/trace/setting", {"trace_level": ["TIMESTAMPS"]})
        assert (status, answer["error"]) == (400, "Attempting to set invalid trace setting :trace file name is not given")
        infer(server)


def test_timestamps_over_both_protocols(repository, tmp_path):
    file = tmp_path / "t.json"
    with ServerProcess(repository, f"--trace-config=triton,file={file}", *ON) as server:
        infer(server, httpclient, request_id="h")
        infer(server, httpclient, request_id="z", rows=3, request_compression_algorithm="gzip")
        infer(server, grpcclient, request_id="g")
        with pytest.raises(InferenceServerException):
            infer(server, httpclient, name="WRONG", request_id="x")
        with pytest.raises(InferenceServerException):
            infer(server, grpcclient, name="WRONG", request_id="y")
        with pytest.raises(InferenceServerException):
            infer(server, httpclient, model="ghost")
        assert pending(server, "simple") == 0
    entries = read(file)
    by_id = {each.get("request_id"): each for each in starts(entries)}
    assert sorted(by_id) == ["g", "h", "z"]
    core = ["REQUEST_START", "QUEUE_START", *COMPUTE, "INFER_RESPONSE_COMPLETE", "REQUEST_END"]
    for request_id, before, after in [
        ("h", ["HTTP_RECV_START", "HTTP_RECV_END"], ["HTTP_SEND_START", "HTTP_SEND_END"]),
        ("z", ["HTTP_RECV_START", "HTTP_RECV_END"], ["HTTP_SEND_START", "HTTP_SEND_END"]),
        ("g", ["GRPC_WAITREAD_START", "GRPC_WAITREAD_END"], ["GRPC_SEND_START", "GRPC_SEND_END"]),
    ]:
        start = by_id[request_id]
        assert (start["model_name"], start["model_version"]) == ("simple", 1)
        assert names(entries, start["id"]) == [*before, *core, *after]
        times = [s["ns"] for e in entries if e["id"] == start["id"] for s in e.get("timestamps", [])]
        assert times == sorted(times) and all(isinstance(ns, int) for ns in times)
    assert len({each["id"] for each in entries}) == 5, "each request has an id of its own, from 1"
    assert min(each["id"] for each in entries) == 1


def test_streams_and_generate(repository, tmp_path):
    file = tmp_path / "t.json"
    with ServerProcess(repository, f"--trace-config=triton,file={file}", *ON) as server:
        stream = Stream(server)
        stream.send("repeat", repeat_inputs([1, 2, 3]), request_id="s")
        for _ in range(3):
            stream.good()
        stream.close()
        call(server, "/v2/models/simple/generate", {"id": "g", "IN": [1, 2, 3, 4]})
    entries = read(file)
    by_id = {each.get("request_id"): each["id"] for each in starts(entries)}
    streamed = names(entries, by_id["s"])
    assert [streamed.count(each) for each in ("GRPC_SEND_START", "GRPC_SEND_END", "INFER_RESPONSE_COMPLETE")] == [3, 3, 3]
    assert streamed.count("REQUEST_END") == 1


def test_steps_of_an_ensemble_have_a_parent(repository, tmp_path):
    file = tmp_path / "t.json"
    with ServerProcess(repository, f"--trace-config=triton,file={file}", "--trace-config=level=TENSORS", *ON) as server:
        infer(server, model="ensemble", name="X", request_id="e")
    entries = read(file)
    assert [(each["model_name"], each.get("parent_id")) for each in starts(entries)] == [("ensemble", None), ("simple", 1), ("other", 1)]
    assert "COMPUTE_START" not in names(entries, 1)
    for child in (2, 3):
        assert [each for each in names(entries, child) if each.startswith("COMPUTE")] == COMPUTE
        assert [each["activity"] for each in entries if each["id"] == child and "activity" in each] == [
            "TENSOR_QUEUE_INPUT", "TENSOR_BACKEND_INPUT", "TENSOR_BACKEND_OUTPUT",
        ]
    tensors = [each["tensor"] for each in entries if each.get("activity") == "TENSOR_QUEUE_INPUT" and each["id"] == 1]
    assert tensors == [{"name": "X", "data": "0,1,2,3", "shape": "1,4", "dtype": "FP32"}]


def test_files_by_number_and_what_is_counted_down(repository, tmp_path):
    file = tmp_path / "t.json"
    with ServerProcess(repository, f"--trace-config=triton,file={file}", *ON) as server:
        infer(server, request_id="a")
        call(server, "/v2/trace/setting", {"trace_count": "2"})
        for each in "bcd":
            infer(server, request_id=each)
        assert call(server, "/v2/trace/setting")[1]["trace_count"] == "0"
        wait_until(lambda: (tmp_path / "t.json.0").exists())
        assert [each["request_id"] for each in starts(read(tmp_path / "t.json.0"))] == ["b", "c"]
        call(server, "/v2/trace/setting", {"trace_count": None, "log_frequency": "2"})
        for each in "efg":
            infer(server, request_id=each)
        wait_until(lambda: (tmp_path / "t.json.1").exists())
        call(server, "/v2/models/simple/trace/setting", {"trace_level": ["OFF"]})
        infer(server, request_id="not traced")
    found = {path.name: [each["request_id"] for each in starts(read(path))] for path in tmp_path.iterdir()}
    assert found == {"t.json": ["a"], "t.json.0": ["b", "c"], "t.json.1": ["e", "f"], "t.json.2": ["g"]}


def test_a_client_that_goes_leaves_a_complete_trace(repository, tmp_path):
    file = tmp_path / "t.json"
    with ServerProcess(repository, f"--trace-config=triton,file={file}", *ON) as server:
        for module in (httpclient, grpcclient):
            options = {"client_timeout": 0.2} if module is grpcclient else {}
            if module is httpclient:
                client = httpclient.InferenceServerClient(server.http, network_timeout=0.2)
                tensor = httpclient.InferInput("IN", [4], "FP32")
                tensor.set_data_from_numpy(np.zeros(4, np.float32))
                with pytest.raises(Exception):
                    client.infer("slow", [tensor], request_id="h")
                client.close()
            else:
                client = grpcclient.InferenceServerClient(server.grpc)
                tensor = grpcclient.InferInput("IN", [4], "FP32")
                tensor.set_data_from_numpy(np.zeros(4, np.float32))
                with pytest.raises(InferenceServerException):
                    client.infer("slow", [tensor], request_id="g", **options)
                client.close()
        wait_until(lambda: pending(server, "slow") == 0)
        time.sleep(1.2)
    entries = read(file)
    ids = {each["request_id"]: each["id"] for each in starts(entries)}
    assert sorted(ids) == ["g", "h"]
    for trace_id in ids.values():
        assert names(entries, trace_id)[-1] != "HTTP_SEND_END"
        assert names(entries, trace_id).count("REQUEST_END") == 1


def test_a_file_that_cannot_be_written_costs_only_the_traces(repository, tmp_path):
    flag = f"--trace-config=triton,file={tmp_path}/no/such/folder/t.json"
    with ServerProcess(repository, flag, *ON) as server:
        infer(server)
        wait_until(lambda: "traces are lost: failed to write" in server.log())
        infer(server)


def spans_of(collector, count, timeout_s=15):
    wait_until(lambda: len(collector.spans()) >= count, timeout_s)
    return collector.spans()


def tree(spans):
    by_id = {each["spanId"]: each["name"] for each in spans}
    return sorted(f"{by_id.get(each['parentSpanId'], '')}>{each['name']}" for each in spans)


def otel(collector, *more):
    return [
        "--trace-config=mode=opentelemetry", f"--trace-config=opentelemetry,url={collector.url}",
        "--trace-config=level=TIMESTAMPS", "--trace-config=opentelemetry,bsp_schedule_delay=100", *more,
    ]


def test_spans_over_otlp(repository):
    with OtlpCollector() as collector:
        flags = otel(collector, "--trace-config=rate=1", "--trace-config=opentelemetry,resource=service.name=test_triton",
                     "--trace-config=opentelemetry,resource=test.key=test.value")
        with ServerProcess(repository, *flags) as server:
            infer(server, request_id="r")
            spans = spans_of(collector, 3)
            assert tree(spans) == [">InferRequest", "InferRequest>simple", "simple>compute"]
            events = {each["name"]: [event["name"] for event in each["events"]] for each in spans}
            assert events == {
                "InferRequest": ["HTTP_RECV_START", "HTTP_RECV_END", "INFER_RESPONSE_COMPLETE", "HTTP_SEND_START", "HTTP_SEND_END"],
                "simple": ["REQUEST_START", "QUEUE_START", "REQUEST_END"],
                "compute": COMPUTE,
            }
            model = next(each for each in spans if each["name"] == "simple")
            attributes = {each["key"]: each["value"] for each in model["attributes"]}
            assert attributes["triton.model_name"] == {"stringValue": "simple"}
            assert attributes["triton.model_version"] == {"intValue": "1"}
            assert attributes["triton.request_id"] == {"stringValue": "r"}
            assert attributes["triton.trace_id"] == {"intValue": "1"}
            assert len({each["traceId"] for each in spans}) == 1 and {each["kind"] for each in spans} == {2}
            assert abs(int(model["startTimeUnixNano"]) / 1e9 - time.time()) < 60
            resource = collector.exports[0]["resourceSpans"][0]["resource"]["attributes"]
            assert {"key": "service.name", "value": {"stringValue": "test_triton"}} in resource
            assert {"key": "test.key", "value": {"stringValue": "test.value"}} in resource
            assert collector.content_types == {"application/x-protobuf"}

            infer(server, grpcclient, model="ensemble", name="X")
            assert tree(spans_of(collector, 9)[3:]) == [
                ">InferRequest", "InferRequest>ensemble", "ensemble>other", "ensemble>simple", "other>compute", "simple>compute",
            ]
            shown = call(server, "/v2/trace/setting")[1]
            assert "trace_file" not in shown and "log_frequency" not in shown
            assert (shown["trace_mode"], shown["bsp_max_queue_size"], shown["url"]) == ("opentelemetry", "2048", collector.url)
            listed = settings_over_grpc(grpcclient.InferenceServerClient(server.grpc))
            assert listed["resource"] == ["service.name=test_triton", "test.key=test.value"]


def test_activities_of_the_model_itself(repository, tmp_path):
    """The reference's identity backend notes them: alone, as a span, and as spans within one another."""
    file = tmp_path / "t.json"
    with ServerProcess(repository, f"--trace-config=triton,file={file}", *ON) as server:
        infer(server, model="custom", request_id="c")
        infer(server, grpcclient, model="custom", request_id="g")
    entries = read(file)
    single = "CUSTOM_SINGLE_ACTIVITY"
    custom = ["CUSTOM_ACTIVITY_START", "CUSTOM_ACTIVITY_END", single, "CUSTOM_ACTIVITY0_START", single]
    custom += ["CUSTOM_ACTIVITY1_START", "CUSTOM_ACTIVITY2_START", single]
    custom += [f"CUSTOM_ACTIVITY{index}_END" for index in (2, 1, 0)]
    for start in starts(entries):
        noted = [each for each in names(entries, start["id"]) if each.startswith("CUSTOM")]
        assert noted == custom, start

    with OtlpCollector() as collector, ServerProcess(repository, *otel(collector, "--trace-config=rate=1")) as server:
        infer(server, model="custom")
        spans = spans_of(collector, 7)
        assert tree(spans) == sorted([
            ">InferRequest", "InferRequest>custom", "custom>compute", "custom>CUSTOM_ACTIVITY", "custom>CUSTOM_ACTIVITY0",
            "CUSTOM_ACTIVITY0>CUSTOM_ACTIVITY1", "CUSTOM_ACTIVITY1>CUSTOM_ACTIVITY2",
        ])
        events = {each["name"]: [event["name"] for event in each["events"]] for each in spans}
        assert events["custom"] == ["REQUEST_START", "QUEUE_START", single, "REQUEST_END"]
        assert events["CUSTOM_ACTIVITY0"] == ["CUSTOM_ACTIVITY0_START", single, "CUSTOM_ACTIVITY0_END"]
        assert events["CUSTOM_ACTIVITY1"] == ["CUSTOM_ACTIVITY1_START", "CUSTOM_ACTIVITY1_END"]
        span = next(each for each in spans if each["name"] == "CUSTOM_ACTIVITY")
        assert int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"]) > 40e6


@pytest.mark.parametrize("module", [httpclient, grpcclient])
def test_a_context_of_the_client_forces_a_trace(repository, module):
    with OtlpCollector() as collector, ServerProcess(repository, *otel(collector, "--trace-config=rate=0")) as server:
        for _ in range(3):
            infer(server, module)
        infer(server, module, headers={"traceparent": PARENT, "tracestate": "vendor=1"})
        infer(server, module, headers={"traceparent": "00-nonsense"})
        spans = spans_of(collector, 3)
        time.sleep(0.5)
        assert len(collector.spans()) == 3
        root = next(each for each in spans if each["name"] == "InferRequest")
        assert root["parentSpanId"] == "b7ad6b7169242424"
        assert {each["traceId"] for each in spans} == {"0af7651916cd43dd8448eb211c12666c"}
        assert {each["traceState"] for each in spans} == {"vendor=1"}


def test_what_waits_is_exported_at_the_end(repository):
    with OtlpCollector() as collector:
        with ServerProcess(repository, *otel(collector, "--trace-config=rate=1", "--trace-config=opentelemetry,bsp_schedule_delay=60000")) as server:
            infer(server)
            assert collector.spans() == []
        assert len(collector.spans()) == 3


def test_a_collector_that_is_not_there_costs_only_the_spans(repository):
    with OtlpCollector(status=503) as collector, ServerProcess(repository, *otel(collector, "--trace-config=rate=1")) as server:
        infer(server)
        wait_until(lambda: "trace spans are dropped (3 so far)" in server.log(), 10)
        assert "the collector answered 503" in server.log()
        infer(server)


@pytest.mark.parametrize(
    "flags, text",
    [
        (["--trace-config=level=SOMETIMES"], "invalid value for trace level option: SOMETIMES"),
        (["--trace-config=mode=magic"], 'invalid value for trace mode option: magic. Available options are "triton" and "opentelemetry"'),
        (["--trace-config=rate=often"], "Invalid option value. Got often"),
        (["--trace-config=nonsense"], "--trace-config option format is '<trace mode>,<setting>=<value>'. Got nonsense"),
        (["--trace-config=opentelemetry,bsp_schedule_delay=bad"], 'Bad option: "--trace-config opentelemetry,bsp_schedule_delay"'),
        (["--trace-level=TIMESTAMPS"], "trace file name is not given"),
        (["--trace-config=level=TIMESTAMPS", "--trace-config=rate=0", "--trace-file=/tmp/x"], "sample rate must be non-zero"),
    ],
)
def test_wrong_flags_stop_the_start(repository, flags, text):
    run = subprocess.run(
        [*server_command(), f"--model-repository={repository}", *flags], capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 1
    assert text in run.stdout + run.stderr


def test_older_flags(repository, tmp_path):
    file = tmp_path / "old.json"
    flags = [f"--trace-file={file}", "--trace-level=MIN", "--trace-rate=2", "--trace-count=3", "--trace-log-frequency=1"]
    with ServerProcess(repository, *flags) as server:
        assert call(server, "/v2/trace/setting")[1] == {
            "trace_level": ["TIMESTAMPS"], "trace_rate": "2", "trace_count": "3", "log_frequency": "1",
            "trace_file": str(file), "trace_mode": "triton",
        }
        infer(server)
        infer(server)
        wait_until(lambda: (tmp_path / "old.json.0").exists())
