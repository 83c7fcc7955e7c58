"""The process: start, ports, signals, TLS, restricted routes, size limits."""

import re
import shutil
import signal
import subprocess
import threading
import time

import grpc as grpc_runtime
import numpy as np
import pytest
import tritonclient.grpc as grpc_client
from tritonclient.utils import InferenceServerException

from nereid_testing.protocols import GrpcProtocol, HttpProtocol
from nereid_testing.raw_http import call, infer_json
from nereid_testing.repository import Repository
from nereid_testing.server import ServerProcess

pytestmark = pytest.mark.ours
ONE = np.zeros(1, np.float32)


@pytest.fixture
def repository(tmp_path):
    made = Repository(tmp_path / "repository")
    made.echo("quick", "FP32", [-1])
    made.echo("slow", "FP32", [1], parameters={"execute_delay_ms": 1000})
    return made.root


def infer_in_background(protocol, found):
    def work():
        try:
            found.append(protocol.infer("slow", {"IN": ONE}).as_numpy("OUT").tolist())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("make", [HttpProtocol, GrpcProtocol])
def test_a_signal_lets_requests_finish(start, repository, make, kind):
    server = start(repository)
    protocol, found = make(server), []
    thread = infer_in_background(protocol, found)
    time.sleep(0.3)
    server.process.send_signal(kind)
    thread.join(10)
    assert found == [[0]]
    protocol.close()
    assert server.process.wait(10) == 0


def test_new_connections_are_refused_while_ending(start, repository):
    server = start(repository)
    protocol, found = HttpProtocol(server), []
    thread = infer_in_background(protocol, found)
    time.sleep(0.3)
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    with pytest.raises(OSError):
        call(server, "GET", "/v2/health/live", timeout=2)
    thread.join(10)
    assert found == [[0]]


def test_a_second_ctrl_c_ends_at_once(start, tmp_path):
    made = Repository(tmp_path / "repository")
    made.echo("slow", "FP32", [1], parameters={"execute_delay_ms": 20000})
    server = start(made.root)
    protocol, found = HttpProtocol(server), []
    thread = infer_in_background(protocol, found)
    time.sleep(0.3)
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(5) == 1
    thread.join(10)


def test_further_sigterms_speed_nothing_up(start, repository):
    server = start(repository)
    protocol, found = HttpProtocol(server), []
    thread = infer_in_background(protocol, found)
    time.sleep(0.3)
    for _ in range(3):
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
    assert server.process.wait(20) == 0
    thread.join(10)
    assert found == [[0]]


def test_exit_timeout(start, tmp_path):
    made = Repository(tmp_path / "repository")
    made.echo("slow", "FP32", [1], parameters={"execute_delay_ms": 20000})
    server = start(made.root, "--exit-timeout-secs=1")
    protocol, found = HttpProtocol(server), []
    thread = infer_in_background(protocol, found)
    time.sleep(0.3)
    begin = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(10)
    assert 0.8 < time.monotonic() - begin < 4
    thread.join(10)


def test_a_port_in_use_ends_the_start(start, repository):
    server = start(repository)
    other = ServerProcess(repository)
    other.command = [re.sub(r"--http-port=\d+", f"--http-port={server.http_port}", each) for each in other.command]
    run = subprocess.run(other.command, capture_output=True, text=True, timeout=30)
    assert run.returncode == 1 and str(server.http_port) in run.stdout + run.stderr


def certificates(folder):
    """A root, a server certificate for localhost and a client certificate."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")

    def openssl(*args):
        subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True)

    folder.mkdir()
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.crt", "-days", "2",
            "-subj", "/CN=test root", "-addext", "basicConstraints=critical,CA:TRUE")  # fmt: skip
    for name in ("server", "client"):
        (folder / f"{name}.ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
                "-out", f"{name}.crt", "-days", "2", "-extfile", f"{name}.ext")  # fmt: skip
    return folder


@pytest.mark.parametrize("mutual", [False, True])
def test_grpc_over_tls(start, repository, tmp_path, mutual):
    folder = certificates(tmp_path / "certificates")
    flags = ["--grpc-use-ssl=true", f"--grpc-server-cert={folder}/server.crt", f"--grpc-server-key={folder}/server.key"]
    if mutual:
        flags += ["--grpc-use-ssl-mutual=true", f"--grpc-root-cert={folder}/ca.crt"]
    server = start(repository, *flags)
    identity = {"private_key": f"{folder}/client.key", "certificate_chain": f"{folder}/client.crt"} if mutual else {}
    address = f"localhost:{server.grpc_port}"
    client = grpc_client.InferenceServerClient(address, ssl=True, root_certificates=f"{folder}/ca.crt", **identity)
    array = np.random.default_rng(1).random(200_000, np.float32)
    tensor = grpc_client.InferInput("IN", [200_000], "FP32")
    tensor.set_data_from_numpy(array)
    seconds = []
    for _ in range(5):
        begin = time.monotonic()
        assert client.infer("quick", [tensor]).as_numpy("OUT").tobytes() == array.tobytes()
        seconds.append(time.monotonic() - begin)
    assert min(seconds) < 0.035, "no waiting for delayed acknowledgements"
    client.close()
    with pytest.raises(InferenceServerException):  # cleartext
        grpc_client.InferenceServerClient(address).is_server_live(client_timeout=3)
    if mutual:
        with pytest.raises(InferenceServerException):
            grpc_client.InferenceServerClient(address, ssl=True, root_certificates=f"{folder}/ca.crt").is_server_live(client_timeout=3)


def test_restricted_routes(start, repository):
    server = start(
        repository, "--http-restricted-api=inference,metadata:secret=abc", "--grpc-restricted-protocol=inference:secret=abc"
    )
    assert call(server, "GET", "/v2/health/live").status == 200
    refused = call(server, "GET", "/v2")
    assert (refused.status, refused.error()) == (403, "This API is restricted, expecting header 'secret'")
    assert call(server, "GET", "/v2", headers={"Secret": "abc"}).status == 200
    assert call(server, "GET", "/v2", headers={"Secret": "ABC"}).status == 403
    grpc = GrpcProtocol(server)
    with pytest.raises(InferenceServerException, match="This protocol is restricted, expecting header 'triton-grpc-protocol-secret'"):
        grpc.infer("quick", {"IN": ONE})
    grpc.infer("quick", {"IN": ONE}, headers={"triton-grpc-protocol-secret": "abc"})
    assert grpc.client.get_server_metadata().name == "triton"
    grpc.close()


def test_http_size_limit(start, repository):
    server = start(repository, "--http-max-input-size=1000", "--id=someone")
    assert call(server, "GET", "/v2").json()["name"] == "someone"
    tensor = {"name": "IN", "datatype": "FP32", "shape": [1000], "data": [1] * 1000}
    answer = infer_json(server, "quick", [tensor])
    assert answer.status == 400
    assert "exceeds the maximum allowed input size of 1000 bytes. Use --http-max-input-size to increase the limit." in answer.error()
    http = HttpProtocol(server)
    assert http.infer("quick", {"IN": np.ones(1000, np.float32)}).as_numpy("OUT").shape == (1000,)  # binary is not limited
    http.close()


def test_services_can_be_left_out(start, repository):
    server = start(repository, "--allow-grpc=false", "--allow-metrics=false")
    for port in (server.grpc_port, server.metrics_port):
        with pytest.raises(OSError):
            call(server, "GET", "/metrics", port=port, timeout=2)


def test_both_protocols_on_each_port(start, repository):
    """HTTP/1.1 on the gRPC port, gRPC on the HTTP port."""
    server = start(repository)
    assert call(server, "GET", "/v2/health/ready", port=server.grpc_port).status == 200
    with grpc_runtime.insecure_channel(server.http) as channel:
        live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
        assert live(b"", timeout=5) == b"\x08\x01"


def test_grpc_over_a_unix_socket(start, repository, tmp_path):
    path = tmp_path / "grpc.sock"
    start(repository, f"--grpc-address=unix:{path}")
    tensor = grpc_client.InferInput("IN", [1], "FP32")
    tensor.set_data_from_numpy(ONE)
    with grpc_client.InferenceServerClient(f"unix:{path}") as client:
        assert client.infer("quick", [tensor]).as_numpy("OUT").tolist() == [0]


def test_port_zero_is_printed(repository):
    server = ServerProcess(repository)
    server.command = [re.sub(r"-port=\d+", "-port=0", each) for each in server.command]
    process = subprocess.Popen(server.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        found, begin = set(), time.monotonic()
        while len(found) < 3 and time.monotonic() - begin < 20:
            line = process.stdout.readline()
            found.update(int(port) for port in re.findall(r"(?:0\.0\.0\.0|localhost|127\.0\.0\.1):(\d+)", line))
        assert len(found - {0}) >= 3, found
        assert any(_is_live(port) for port in found)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)


def _is_live(port):
    class Server:
        http_port = port

    try:
        return call(Server, "GET", "/v2/health/live", timeout=2).status == 200
    except OSError:
        return False


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("--http-prot=1", "http-port"),
        ("--no-such-thing", "no-such-thing"),
        ("--log-info=maybe", "invalid value for bool option: maybe"),
        ("--model-control-mode=sometimes", "model-control-mode"),
    ],
)
def test_bad_flags(repository, flag, text):
    command = [*ServerProcess(repository).command, flag]
    run = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert run.returncode == 1 and text in run.stdout + run.stderr
