"""The generate extension over plain HTTP: mapping, events as they are made, errors, slow readers and those who leave."""

import http.client
import json
import shutil
import socket
import subprocess
import threading
import time

import pytest

from nereid_testing.decoupled import inflight, sent_responses, write_decoupled_repository
from nereid_testing.observe import metric, wait_until
from nereid_testing.raw_http import post_json, send_and_leave
from nereid_testing.server import ServerProcess

pytestmark = pytest.mark.ours

WRONG_COUNT = (
    "generate expects model to produce exactly 1 response, use generate stream for model that "
    "generates various number of responses"
)


@pytest.fixture(scope="module", params=["native", "deno"])
def server(request, tmp_path_factory):
    """The server with each of its HTTP engines in turn."""
    root = tmp_path_factory.mktemp("generate")
    write_decoupled_repository(root)
    with ServerProcess(root, f"--http-engine={request.param}") as each:
        each.engine = request.param
        yield each
        for model in ("repeat_int32", "repeat_wide", "repeat_many"):
            assert wait_until(lambda: inflight(each, model) == 0, 10), model  # noqa: B023
        assert each.alive(), each.log()[-4000:]


def path(model, stream=True):
    return f"/v2/models/{model}/generate{'_stream' if stream else ''}"


def body(values, delays=0, **more):
    delays = delays if isinstance(delays, list) else [delays] * len(values)
    return {"IN": values, "DELAY": delays, "WAIT": 0, **more}


def events(answer):
    """The JSON of each event."""
    text = answer.body.decode()
    assert text == "" or text.endswith("\n\n")
    lines = text.split("\n\n")[:-1]
    assert all(line.startswith("data: ") and "\n" not in line for line in lines)
    return [json.loads(line[len("data: ") :]) for line in lines]


def row(value, index, **more):
    return {"model_name": "repeat_int32", "model_version": "1", "OUT": value, "IDX": index, **more}


def test_one_event_per_response(server):
    answer = post_json(server, path("repeat_int32"), body([7, 8, 9], id="x", note=True))
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["transfer-encoding"] == "chunked"
    assert "content-length" not in answer.headers
    assert events(answer) == [row(7 + index, index, id="x") for index in range(3)]
    assert events(post_json(server, "/v2/models/repeat_int32/versions/1/generate_stream", body([1]))) == [row(1, 0)]


def test_no_response_is_an_empty_stream(server):
    answer = post_json(server, path("square_int32"), {"IN": 0})
    assert (answer.status, answer.body) == (200, b"")


@pytest.mark.parametrize("count", [1, 2, 5])
def test_generate_is_for_one_response(server, count):
    answer = post_json(server, path("repeat_int32", stream=False), body([4] * count))
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == (row(4, 0) if count == 1 else {"error": WRONG_COUNT})


def test_generate_of_no_response(server):
    answer = post_json(server, path("square_int32", stream=False), {"IN": 0})
    assert (answer.status, answer.json()) == (200, {"error": WRONG_COUNT})


def test_ordinary_models_can_be_used_too(server):
    for stream in (False, True):
        answer = post_json(server, path("identity_int32", stream), {"IN": [1, 2]})
        found = events(answer)[0] if stream else answer.json()
        assert found["OUT"] == [1, 2]


def test_errors_after_the_start_are_events(server):
    answer = post_json(server, path("repeat_fail_3"), body([1, 2, 3, 4]))
    assert answer.status == 200
    found = events(answer)
    assert [each.get("OUT") for each in found] == [1, 2, None, 4]
    assert list(found[2]) == ["error"]


def test_an_error_as_first_response_decides_the_status(server):
    answer = post_json(server, path("repeat_fail_1"), body([1, 2]))
    assert answer.status == 500
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert [list(each) for each in events(answer)] == [["error"]] * 2
    answer = post_json(server, path("repeat_fail_1", stream=False), body([1]))
    assert (answer.status, list(answer.json())) == (500, ["error"])
    answer = post_json(server, path("repeat_fail_1", stream=False), body([1, 2]))
    assert (answer.status, answer.json()) == (500, {"error": WRONG_COUNT})


@pytest.mark.parametrize(
    ("model", "request_body", "status", "text"),
    [
        ("nobody", {"IN": 1}, 404, "Request for unknown model: 'nobody' is not found"),
        ("repeat_int32", "{", 400, ""),
        ("repeat_int32", "[1]", 400, "attempt to get members for non-object"),
        ("repeat_int32", {"IN": [1]}, 400, "expected 3 inputs but got 1"),
        ("repeat_int32", {"IN": [[1]]}, 400, ""),
        ("repeat_int32", {"IN": ["a"]}, 400, ""),
        ("repeat_int32", {"parameters": 1}, 400, "Expected JSON object for keyword: 'parameters'"),
        ("repeat_int32", {**body([1]), "other": [1]}, 400, ""),
        ("square_int32", {"IN": [1, 2]}, 400, "The schema can not convert input 'IN' to tensor with proper shape"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_refused_requests_are_plain_json(server, model, request_body, status, text, stream):
    answer = post_json(server, path(model, stream), request_body)
    assert answer.status == status, answer.body
    assert answer.headers["content-type"] == "application/json"
    assert text in answer.error()


def test_inputs_and_parameters_may_be_nested(server):
    given = {"IN": [5], "parameters": {"DELAY": 0, "WAIT": 0, "temperature": 0.5}}
    assert events(post_json(server, path("repeat_int32"), given)) == [row(5, 0)]


def test_a_content_encoding_is_refused(server):
    answer = post_json(server, path("repeat_int32"), body([1]), {"content-encoding": "gzip"})
    assert (answer.status, answer.error()) == (400, "Unsupported content-encoding, only 'identity' is supported.")


def open_stream(server, model, value, timeout=30):
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=timeout)
    connection.request("POST", path(model), json.dumps(value))
    return connection, connection.getresponse()


def next_event(response):
    line = response.readline()
    assert response.readline() == b"\n"
    return json.loads(line[len("data: ") :])


def test_events_arrive_while_the_model_works(server):
    begin = time.monotonic()
    connection, response = open_stream(server, "repeat_int32", body([1, 2, 3], [0, 1200, 300]))
    assert next_event(response)["OUT"] == 1
    assert inflight(server, "repeat_int32") == 1, "the model still works"
    assert [next_event(response)["OUT"] for _ in range(2)] == [2, 3]
    assert time.monotonic() - begin > 1.4
    assert response.read() == b""
    connection.request("POST", path("repeat_int32", stream=False), json.dumps(body([9])))
    assert json.loads(connection.getresponse().read())["OUT"] == 9, "the connection can be used again"
    connection.close()


def test_many_streams_at_once(server):
    found = {}

    def run(number):
        found[number] = [each["OUT"] for each in events(post_json(server, path("repeat_int32"), body([number] * 50, 1)))]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(40)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    assert found == {number: [number] * 50 for number in range(40)}


def test_twenty_thousand_events(server):
    answer = post_json(server, path("repeat_many"), body([3]))
    found = events(answer)
    assert [each["IDX"] for each in found] == list(range(20000))


def test_a_slow_reader_stops_the_model(server):
    """600 events of about 33 KB: the model goes no further than the reader, memory stays."""
    assert len(events(post_json(server, path("repeat_wide"), body([3])))) == 600, "what the garbage collector leaves"
    before = sent_responses(server, "repeat_wide")
    connection, response = open_stream(server, "repeat_wide", body([3]))
    next_event(response)
    time.sleep(1)
    start, made = server.rss_bytes(), sent_responses(server, "repeat_wide") - before
    time.sleep(0.7)
    assert sent_responses(server, "repeat_wide") - before == made, "it waits"
    assert made < 400
    peak, count = start, 1
    while block := response.read(1 << 18):
        # a mark that is cut by the end of a block is counted in neither
        count += block.count(b"model_version")
        peak = max(peak, server.rss_bytes())
        time.sleep(0.005)
    assert 500 < count <= 600
    assert peak - start < 100e6, f"memory grew by {(peak - start) / 1e6:.0f} MB"
    connection.close()


@pytest.mark.parametrize("when", ["before the first event", "between events", "while it is held back"])
def test_a_reader_that_goes_away_frees_the_model(server, when):
    model = "repeat_wide" if when == "while it is held back" else "repeat_int32"
    cancelled = metric(server, "nv_inference_request_failure", model=model, reason="CANCELED")
    delay = {"before the first event": 5000, "between events": 20, "while it is held back": 0}[when]
    value = json.dumps(body([1] * 1000, delay)).encode()
    connection = send_and_leave(server, "POST", path(model), value)
    assert wait_until(lambda: inflight(server, model) == 1)
    if when != "before the first event":
        assert connection.recv(15).startswith(b"HTTP/1.1 200")
    if when == "while it is held back":
        time.sleep(0.5)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    connection.close()
    assert wait_until(lambda: inflight(server, model) == 0, 8)
    assert metric(server, "nv_inference_request_failure", model=model, reason="CANCELED") == cancelled + 1


def test_http_1_0(server):
    if server.engine == "deno":
        pytest.skip("Deno.serve frames responses itself")
    value = json.dumps(body([1, 2])).encode()
    with socket.create_connection(("127.0.0.1", server.http_port), timeout=10) as connection:
        head = f"POST {path('repeat_int32')} HTTP/1.0\r\ncontent-length: {len(value)}\r\n\r\n".encode()
        connection.sendall(head + value)
        received = b""
        while data := connection.recv(65536):
            received += data
    head, _, text = received.partition(b"\r\n\r\n")
    assert b"chunked" not in head.lower()
    assert [json.loads(line[6:])["OUT"] for line in text.split(b"\n\n")[:-1]] == [1, 2]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_http_2(server):
    command = ["curl", "-s", "--http2-prior-knowledge", "-w", "%{http_version} %{http_code}", "-d", json.dumps(body([1, 2], 1)),
               f"http://{server.http}{path('repeat_int32')}"]  # fmt: skip
    output = subprocess.run(command, capture_output=True, text=True, timeout=30).stdout
    *lines, last = output.split("\n\n")
    assert [json.loads(line[6:])["OUT"] for line in lines] == [1, 2]
    assert last == "2 200"


def test_a_stream_ends_before_the_server(start, tmp_path):
    """Shutdown waits for a stream that runs."""
    write_decoupled_repository(tmp_path / "repository")
    server = start(tmp_path / "repository")
    connection, response = open_stream(server, "repeat_int32", body([1, 2, 3], 300))
    next_event(response)
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    assert [next_event(response)["OUT"] for _ in range(2)] == [2, 3]
    assert response.read() == b""
    stopping.join(20)
    assert server.process.returncode == 0
    connection.close()
