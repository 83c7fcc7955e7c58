"""Log settings at run time, formats, files and escaping with real clients (L0_logging)."""

import json
import os
import re
import urllib.error
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

from nereid_testing.observe import pending, wait_until
from nereid_testing.repository import Repository
from nereid_testing.server import ServerProcess

pytestmark = pytest.mark.ours

DEFAULTS = {
    "log_file": "", "log_info": True, "log_warning": True, "log_error": True, "log_verbose_level": 0, "log_format": "default",
}
DEFAULT_LINE = re.compile(r'[IWE]\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ [\w.]+:\d+\] (".*")$')
ISO_LINE = re.compile(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ [IWE] \d+ [\w.]+:\d+\] (".*")$')


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("logging") / "repository"
    Repository(root).echo("m", "FP32", [4])
    return root


def call(server, path, body=None):
    """Status and JSON of a plain HTTP call, as curl makes it."""
    request = urllib.request.Request(f"http://{server.http}{path}", body and body.encode())
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        text = error.read()
        return error.code, json.loads(text) if text[:1] == b"{" else text.decode()


def infer(server, request_id=""):
    client = httpclient.InferenceServerClient(server.http)
    tensor = httpclient.InferInput("IN", [4], "FP32")
    tensor.set_data_from_numpy(np.zeros(4, np.float32))
    client.infer("m", [tensor], request_id=request_id)
    client.close()


def over_grpc(answer):
    return {name: next(iter(value.values())) for name, value in answer["settings"].items()}


def lines_since(server, mark):
    return server.log()[mark:].splitlines()


def test_settings_are_read_and_changed_over_both_protocols(repository):
    with ServerProcess(repository) as server:
        http = httpclient.InferenceServerClient(server.http)
        grpc = grpcclient.InferenceServerClient(server.grpc)
        assert http.get_log_settings() == over_grpc(grpc.get_log_settings(as_json=True)) == DEFAULTS
        changed = {"log_info": False, "log_verbose_level": 1, "log_format": "ISO8601"}
        assert http.update_log_settings(changed) == {**DEFAULTS, **changed}
        assert over_grpc(grpc.get_log_settings(as_json=True)) == {**DEFAULTS, **changed}
        back = {"log_info": True, "log_verbose_level": 0, "log_format": "default", "log_error": False}
        assert over_grpc(grpc.update_log_settings(back, as_json=True)) == {**DEFAULTS, "log_error": False}
        assert http.get_log_settings() == {**DEFAULTS, "log_error": False}


def test_verbose_lines_come_and_go_for_the_server_and_the_core(repository):
    with ServerProcess(repository) as server:
        mark = len(server.log())
        infer(server)
        assert lines_since(server, mark) == []
        call(server, "/v2/logging", '{"log_verbose_level":1}')
        mark = len(server.log())
        infer(server, "r1")
        wait_until(lambda: "[request id: r1]" in server.log()[mark:])
        lines = "\n".join(lines_since(server, mark))
        assert "HTTP request: POST /v2/models/m/infer" in lines
        assert "[request id: r1] request for 'm' version 1" in lines
        grpcclient.InferenceServerClient(server.grpc).is_server_live()
        wait_until(lambda: "gRPC call: /inference.GRPCInferenceService/ServerLive" in server.log())
        call(server, "/v2/logging", '{"log_verbose_level":0}')
        mark = len(server.log())
        infer(server)
        assert lines_since(server, mark) == []
        assert pending(server, "m") == 0


def test_levels_and_formats_change_at_once(repository):
    with ServerProcess(repository, "--model-control-mode=explicit", "--load-model=m") as server:
        first = [line for line in server.log().splitlines() if "successfully loaded 'm'" in line]
        assert DEFAULT_LINE.match(first[0])
        call(server, "/v2/logging", '{"log_format":"ISO8601"}')
        mark = len(server.log())
        call(server, "/v2/repository/models/m/load", "{}")
        wait_until(lambda: "successfully loaded 'm'" in server.log()[mark:])
        assert all(ISO_LINE.match(line) for line in lines_since(server, mark))
        call(server, "/v2/logging", '{"log_info":false}')
        mark = len(server.log())
        assert call(server, "/v2/repository/models/nothing/load", "{}")[0] >= 400
        wait_until(lambda: "nothing" in server.log()[mark:])
        assert {line.split()[1] for line in lines_since(server, mark) if ISO_LINE.match(line)} == {"E"}
        call(server, "/v2/logging", '{"log_error":false}')
        mark = len(server.log())
        call(server, "/v2/repository/models/nothing/load", "{}")
        assert lines_since(server, mark) == []


def test_what_is_wrong_is_refused_and_what_came_before_stays(repository):
    with ServerProcess(repository) as server:
        for body, status, text in [
            ('{"log_file":"/tmp/elsewhere.log"}', 501, "log file location can not be updated through network protocol"),
            ('{"log_format":"xml"}', 503, "invalid argument for --log_format, got: xml"),
            ('{"log_info":"yes"}', 400, "'log_info'"),
            ('{"log_verbose_level":-1}', 400, "'log_verbose_level'"),
            ('{"log_verbose_level":1.5}', 400, "'log_verbose_level'"),
            ('{"log_verbose_level":99999999999}', 400, "'log_verbose_level'"),
        ]:
            got, answer = call(server, "/v2/logging", body)
            assert (got, text in answer["error"]) == (status, True), (body, got, answer)
        assert call(server, "/v2/logging")[1] == DEFAULTS
        assert call(server, "/v2/logging", '{"log_warning":false,"log_format":"xml"}')[0] == 503
        assert call(server, "/v2/logging")[1] == {**DEFAULTS, "log_warning": False}
        assert call(server, "/v2/logging", '{"log_warning":true,"log_file":null,"log_colour":7}') == (200, DEFAULTS)
        grpc = grpcclient.InferenceServerClient(server.grpc)
        for change, text in [
            ({"log_file": "x"}, "log file location can not be updated through network protocol"),
            ({"log_format": "xml"}, "invalid argument for log_format, got: xml"),
        ]:
            with pytest.raises(InferenceServerException, match=text):
                grpc.update_log_settings(change)
        assert call(server, "/v2/logging")[1] == DEFAULTS


def test_no_client_moves_the_log_file(repository, tmp_path):
    file = tmp_path / "server.log"
    with ServerProcess(repository, f"--log-file={file}", "--log-verbose=1") as server:
        assert call(server, "/v2/logging")[1] == {**DEFAULTS, "log_file": str(file), "log_verbose_level": 1}
        for name in ("other.log", "../other.log", str(tmp_path / "other.log"), str(file)):
            status, answer = call(server, "/v2/logging", json.dumps({"log_file": name}))
            assert (status, answer["error"]) == (501, "log file location can not be updated through network protocol")
        assert os.listdir(tmp_path) == ["server.log"]
        wait_until(lambda: "HTTP request: POST /v2/logging" in file.read_text())
        assert "HTTP request" not in server.log()


@pytest.mark.parametrize("escapes", [True, False])
def test_no_request_forges_a_line(repository, escapes, monkeypatch):
    if not escapes:
        monkeypatch.setenv("TRITON_SERVER_ESCAPE_LOG_MESSAGES", "0")
    forged = 'I0205 18:34:18.707423 1 file.cc:123] "THIS ENTRY WAS INJECTED"'
    with ServerProcess(repository, "--log-verbose=1") as server:
        mark = len(server.log())
        infer(server, f"a\n{forged}\u001b[31m\u0007")
        call(server, "/v2/models/" + "x%0A" + forged.replace(" ", "%20").replace('"', "%22"))
        wait_until(lambda: server.log()[mark:].count("INJECTED") >= 2)
        lines = lines_since(server, mark)
        assert not any(line.startswith("I0205") for line in lines)
        assert not any("\u001b" in line or "\u0007" in line for line in lines)
        if escapes:
            assert all(DEFAULT_LINE.match(line) and json.loads(DEFAULT_LINE.match(line)[1]) is not None for line in lines)
