"""The README's demo, started a second time: nothing is fetched, and the printed command works as printed."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nereid_testing.server import PROJECT, deno

NO_NETWORK = {
    "npm_config_registry": "http://127.0.0.1:9/",
    "PIP_INDEX_URL": "http://127.0.0.1:9/",
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "NO_PROXY": "localhost,127.0.0.1",
    "NO_COLOR": "1",
}
START_LIMIT_S = 60


def read_until(stream, pattern):
    lines = []
    for line in stream:
        lines.append(line)
        if re.search(pattern, line):
            break
    return "".join(lines)


def check_readme_requests(address):
    """What the README asks the demo for has the answers that it shows."""
    text = (Path(PROJECT) / "README.md").read_text().replace("localhost:8000", address)
    curl = re.search(r"^curl -s --data-binary .*\\\n.*$", text, re.MULTILINE)[0]
    answer = subprocess.run(curl, shell=True, cwd=PROJECT, capture_output=True, timeout=30)
    assert answer.stdout.startswith(b'{"model_name":"filetype",') and b"png" in answer.stdout
    program = re.search(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[1]
    expected = program.strip().splitlines()[-1].removeprefix("# ")
    answer = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, timeout=60
    )
    assert answer.stdout.strip() == expected, answer.stderr


def test_second_start_without_network_prints_a_command_that_works(real_repository):
    if not (real_repository / "filetype").is_dir():
        pytest.skip("the model of file types could not be fetched")
    flags = ["--http-port=0", "--grpc-port=0", "--metrics-port=0"]
    demo = subprocess.Popen(
        [deno(), "run", "-A", "scripts/demo.ts", *flags],
        cwd=PROJECT,
        env={**os.environ, **NO_NETWORK},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    guard = threading.Timer(START_LIMIT_S, demo.kill)
    guard.start()
    try:
        output = read_until(demo.stdout, r"^\s+curl ")
        command = re.search(r"^\s+(curl .*)$", output, re.MULTILINE)
        assert command is not None, output
        for name in ("filetype", "magika_features", "speech", "ocr", "ocr_det"):
            assert re.search(rf"\b{name}\b.*READY", output), output
        answer = subprocess.run(
            command[1], shell=True, cwd=PROJECT, capture_output=True, text=True, timeout=30
        )
        assert json.loads(answer.stdout)["LABEL"] == "python", answer
        check_readme_requests(re.search(r"HTTP +http://(localhost:\d+)", output)[1])
        demo.send_signal(signal.SIGTERM)
        rest = demo.stdout.read()
        assert demo.wait(timeout=30) == 0, output + rest
    finally:
        guard.cancel()
        if demo.poll() is None:
            demo.kill()
        demo.wait()
