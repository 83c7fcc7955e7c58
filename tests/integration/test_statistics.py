"""The statistics extension and the metrics: the same counts everywhere."""

import numpy as np
import pytest
from google.protobuf.json_format import MessageToDict
from tritonclient.utils import InferenceServerException

from nereid_testing.observe import difference, metric, statistics
from nereid_testing.protocols import status_of
from nereid_testing.raw_http import call

ONE = np.zeros((1, 1), np.float32)


def model_statistics(protocol, model="", version=""):
    reply = protocol.client.get_inference_statistics(model, version)
    return reply["model_stats"] if protocol.name == "http" else MessageToDict(
        reply, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )["model_stats"]  # fmt: skip


def test_counts_grow_with_requests(protocol):
    before = model_statistics(protocol, "identity_fp64")[0]
    for rows in (1, 2, 4):
        protocol.infer("identity_fp64", {"IN": np.zeros((rows, 3))})
    after = model_statistics(protocol, "identity_fp64")[0]
    assert int(after["inference_count"]) - int(before["inference_count"]) == 7
    assert int(after["execution_count"]) - int(before["execution_count"]) == 3
    for part in ("success", "queue", "compute_input", "compute_infer", "compute_output"):
        grown = int(after["inference_stats"][part]["count"]) - int(before["inference_stats"][part]["count"])
        assert grown == 3, part
        assert int(after["inference_stats"][part]["ns"]) >= int(before["inference_stats"][part]["ns"])
    assert int(after["inference_stats"]["fail"]["count"]) == int(before["inference_stats"]["fail"]["count"])
    assert int(after["last_inference"]) > 1_600_000_000_000


def test_batch_statistics(protocol):
    def sizes():
        rows = model_statistics(protocol, "identity_int8")[0]["batch_stats"]
        return {int(row["batch_size"]): int(row["compute_infer"]["count"]) for row in rows}

    before = sizes()
    for rows in (1, 3, 3):
        protocol.infer("identity_int8", {"IN": np.zeros((rows, 2), np.int8)})
    assert difference(sizes(), before) == {1: 1, 3: 2}


@pytest.mark.ours  # the Python backend reports such failures as successes
def test_failures_are_counted(protocol, main_server):
    before = model_statistics(protocol, "fail_every_2")[0]["inference_stats"]["fail"]["count"]
    metric_before = metric(main_server, "nv_inference_request_failure", model="fail_every_2", reason="BACKEND")
    failed = 0
    for _ in range(4):
        try:
            protocol.infer("fail_every_2", {"IN": ONE})
        except InferenceServerException:
            failed += 1
    assert failed == 2
    assert int(model_statistics(protocol, "fail_every_2")[0]["inference_stats"]["fail"]["count"]) == int(before) + 2
    assert metric(main_server, "nv_inference_request_failure", model="fail_every_2", reason="BACKEND") == metric_before + 2


def test_validation_errors_are_not_counted(protocol):
    before = model_statistics(protocol, "identity_uint8")[0]["inference_stats"]
    with pytest.raises(InferenceServerException):
        protocol.infer("identity_uint8", {"IN": np.zeros((9, 1), np.uint8)})
    assert model_statistics(protocol, "identity_uint8")[0]["inference_stats"] == before


def test_all_models(protocol, main_server):
    names = {row["name"] for row in model_statistics(protocol)}
    assert {"echo_all", "slow_200", "identity_fp32"} <= names
    assert {row["name"] for row in call(main_server, "GET", "/v2/models/stats").json()["model_stats"]} == names


def test_statistics_of_one_version(protocol):
    assert [row["version"] for row in model_statistics(protocol, "echo_all", "1")] == ["1"]


def test_unknown_model(protocol):
    with pytest.raises(InferenceServerException, match="requested model 'nobody' is not available") as caught:
        model_statistics(protocol, "nobody")
    assert status_of(caught.value, protocol) == ("400" if protocol.name == "http" else "INVALID_ARGUMENT")


def test_metrics_agree_with_statistics(protocol, main_server):
    for _ in range(3):
        protocol.infer("identity_uint16", {"IN": np.zeros((2, 2), np.uint16)})
    found = statistics(main_server, "identity_uint16")
    read = lambda family: metric(main_server, family, model="identity_uint16")  # noqa: E731
    assert read("nv_inference_request_success") == found["inference_stats"]["success"]["count"]
    assert read("nv_inference_count") == found["inference_count"]
    assert read("nv_inference_exec_count") == found["execution_count"]
    assert read("nv_inference_pending_request_count") == 0
    assert read("nv_inference_request_duration_us") <= found["inference_stats"]["success"]["ns"] / 1000 + 1


def test_durations_are_plausible(protocol, main_server):
    """A model of 200 ms: the time lies in compute_infer, and parts do not exceed the whole."""
    before = statistics(main_server, "slow_200")["inference_stats"]
    protocol.infer("slow_200", {"IN": np.zeros(1, np.float32)})
    after = statistics(main_server, "slow_200")["inference_stats"]
    took = {part: after[part]["ns"] - before[part]["ns"] for part in after}
    assert took["compute_infer"] + took["compute_input"] + took["compute_output"] > 190e6
    assert took["success"] >= took["queue"] + took["compute_infer"] + took["compute_input"] + took["compute_output"]
    assert took["success"] < 600e6
