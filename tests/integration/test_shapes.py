"""0-d and zero-size tensors, optional inputs, reshape, dynamic output shapes, large tensors."""

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from nereid_testing.protocols import sample, status_of, text_array
from nereid_testing.raw_http import infer_binary, infer_json

pytestmark = pytest.mark.ours


@pytest.mark.parametrize("shape", [(), (1,)])
def test_0d_tensor(protocol, shape):
    """Shape [] is a scalar; the reference's clients also send it as [1]."""
    result = protocol.infer("scalar", {"IN": np.full(shape, 2.5, np.float32)})
    got = result.as_numpy("OUT")
    assert got.shape in ((), (1,)) and got.reshape(()) == 2.5


def test_0d_tensor_as_json_is_one_element(main_server):
    answer = infer_json(main_server, "scalar", [{"name": "IN", "datatype": "FP32", "shape": [1], "data": [7.25]}])
    assert answer.status == 200, answer.body
    assert answer.json()["outputs"][0]["data"] == [7.25]


def test_0d_string(protocol):
    got = protocol.infer("scalar_text", {"IN": text_array([b"a\x00b"])}).as_numpy("OUT")
    assert got.reshape(-1).tolist() == [b"a\x00b"]


@pytest.mark.parametrize("datatype", ["FP32", "INT64", "BOOL", "BYTES", "FP16"])
@pytest.mark.parametrize("shape", [(2, 0), (1, 0)])
def test_zero_size_tensor(protocol, datatype, shape):
    array = sample(datatype, shape)
    result = protocol.infer(f"identity_{datatype.lower()}", {"IN": array}, {"IN": datatype})
    assert result.as_numpy("OUT").shape == shape


@pytest.mark.parametrize("binary", [True, False])
def test_zero_size_tensor_http_encodings(http, binary):
    array = np.zeros((2, 0), np.float32)
    outputs = [http.output("OUT", binary_data=binary)]
    result = http.client.infer("identity_fp32", [http.input("IN", array, binary_data=binary)], outputs=outputs)
    assert result.as_numpy("OUT").shape == (2, 0)


def test_optional_input_left_out(protocol):
    a = np.array([1, 2, 3], np.float32)
    assert protocol.infer("optional_add", {"A": a}).as_numpy("OUT").tolist() == [11, 12, 13]
    both = protocol.infer("optional_add", {"A": a, "B": np.array([5], np.float32)})
    assert both.as_numpy("OUT").tolist() == [6, 7, 8]


def test_required_input_missing_beside_an_optional_one(protocol):
    with pytest.raises(InferenceServerException) as caught:
        protocol.infer("optional_add", {"B": np.array([5], np.float32)})
    assert status_of(caught.value, protocol) == ("400" if protocol.name == "http" else "INVALID_ARGUMENT")


def test_optional_model_without_any_input(protocol):
    with pytest.raises(InferenceServerException) as caught:
        protocol.infer("optional_add", {})
    assert caught.value.message() == (
        "[request id: <id_unknown>] expected number of inputs between 1 and 2 but got 0 inputs for model "
        "'optional_add'. Got input(s) [], but missing required input(s) ['A']. Please provide all required input(s)."
    )


def test_optional_input_in_the_configuration(http):
    config = http.client.get_model_config("optional_add")
    assert {each["name"]: each["optional"] for each in config["input"]} == {"A": False, "B": True}


def test_reshape_both_ways(protocol):
    """Clients send [n,6]; the model sees [n,2,3] and transposes each matrix."""
    array = np.arange(12, dtype=np.float32).reshape(2, 6)
    got = protocol.infer("reshaped", {"IN": array}).as_numpy("OUT")
    assert got.shape == (2, 6)
    assert got.tolist() == array.reshape(2, 2, 3).transpose(0, 2, 1).reshape(2, 6).tolist()


def test_output_shape_depends_on_the_data(protocol):
    for values, positions in (([0, 3, 0, 4], [1, 3]), ([1], [0]), ([0, 0], [])):
        got = protocol.infer("nonzero", {"IN": np.array(values, np.float32)}).as_numpy("OUT")
        assert got.shape == (1, len(positions)) and got.ravel().tolist() == positions


def test_external_data_file(protocol):
    got = protocol.infer("external", {"IN": np.full((2, 2048), 2, np.float32)}).as_numpy("OUT")
    assert got[1].tolist() == (np.arange(2048, dtype=np.float32) * 2).tolist()


def test_default_model_filename(protocol):
    assert protocol.infer("other_file", {"IN": np.ones(3, np.float32)}).as_numpy("OUT").tolist() == [1, 1, 1]


def test_versions(protocol):
    for version, answered in (("", "10"), ("2", "2"), ("10", "10")):
        result = protocol.infer("versions", {"IN": np.arange(3, dtype=np.int32)}, model_version=version)
        response = result.get_response()
        got = response["model_version"] if protocol.name == "http" else response.model_version
        assert got == answered


@pytest.mark.parametrize("datatype", ["FP32", "UINT8", "BYTES"])
def test_64_mb_tensor(protocol, datatype):
    """64 MB in and out, every byte compared."""
    size = 64 * 1024 * 1024 - 4096
    raw = np.random.default_rng(5).integers(0, 256, size, dtype=np.uint8)
    if datatype == "BYTES":
        array = text_array([raw.tobytes()], (1, 1))
    else:
        array = raw.view(np.uint8 if datatype == "UINT8" else np.uint32).reshape(1, -1)
        if datatype == "FP32":
            array = (array & 0x3FFFFFFF).view(np.float32)  # no NaN: numpy may change its payload
    got = protocol.infer(f"identity_{datatype.lower()}", {"IN": array}, {"IN": datatype}).as_numpy("OUT")
    assert got.shape == array.shape
    assert got[0, 0] == array[0, 0] if datatype == "BYTES" else got.tobytes() == array.tobytes()


def test_raw_request_without_a_header(main_server):
    """Header length 0: the whole body is the data of the only input, its one variable dimension is computed."""
    data = np.arange(5, dtype=np.float32).tobytes()
    answer = infer_binary(main_server, "plain_fp32", b"", [data])
    assert answer.status == 200, answer.body
    length = int(answer.headers["inference-header-content-length"])
    assert answer.body[length:] == data


@pytest.mark.parametrize("shape", [[3], [1, 3, 1], [1, 2]])
def test_wrong_shape(protocol, shape):
    with pytest.raises(InferenceServerException) as caught:
        protocol.infer("add_sub_fp32", {"INPUT0": np.zeros(shape, np.float32), "INPUT1": np.zeros((1, 4), np.float32)})
    assert status_of(caught.value, protocol) == ("400" if protocol.name == "http" else "INVALID_ARGUMENT")
    assert "for model 'add_sub_fp32'" in caught.value.message() or "for 'add_sub_fp32'" in caught.value.message()


def test_batch_too_large(protocol):
    with pytest.raises(InferenceServerException, match="inference request batch-size must be <= 4 for 'identity_fp32'"):
        protocol.infer("identity_fp32", {"IN": np.zeros((5, 1), np.float32)})
