"""The reference's load generator runs unchanged. NEREID_REFERENCE_DIR is the folder made by the reference's setup.sh."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest


def find_perf_analyzer():
    folder = os.environ.get("NEREID_REFERENCE_DIR", ".reference")
    candidate = Path(folder) / "perf_analyzer"
    return str(candidate) if candidate.is_file() else shutil.which("perf_analyzer")


PERF_ANALYZER = find_perf_analyzer()
pytestmark = pytest.mark.skipif(PERF_ANALYZER is None, reason="perf_analyzer is not installed (NEREID_REFERENCE_DIR)")

WAYS = {
    "http": ["-i", "http"],
    "http async": ["-i", "http", "--async"],
    "grpc": ["-i", "grpc"],
    "grpc async": ["-i", "grpc", "--async"],
    "grpc streaming": ["-i", "grpc", "--streaming"],
    "http json": ["-i", "http", "--input-tensor-format=json", "--output-tensor-format=json"],
    "grpc gzip": ["-i", "grpc", "--grpc-compression-algorithm=gzip"],
}


CASES = [(way, "identity_fp32") for way in WAYS] + [("grpc streaming", "slow_batched")]


@pytest.mark.parametrize(("way", "model"), CASES)
def test_perf_analyzer(main_server, way, model):
    shapes = ["--shape=IN:16"] if model == "identity_fp32" else []
    address = main_server.grpc if "grpc" in way else main_server.http
    command = [PERF_ANALYZER, "-m", model, "-u", address, *WAYS[way], *shapes, "--concurrency-range=4",
               "--measurement-interval=250", "-s", "900", "-r", "10"]  # fmt: skip
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    output = run.stdout + run.stderr
    throughput = re.search(r"throughput: ([\d.]+) infer/sec", output)
    assert throughput and float(throughput.group(1)) > 0, output
    assert run.returncode == 0, output
