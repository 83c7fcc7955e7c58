"""Real ONNX models of many kinds: sequences with states, sound, strings, trees, and a model that must be refused."""

import itertools
import threading
import time

import numpy as np
import pytest

from nereid_testing.protocols import PROTOCOLS, text_array
from nereid_testing.raw_http import call, post_json

SPEECH = [0.023284, 0.019747, 0.018957, 0.010905]
IDS = itertools.count(9000)


def ramp(*shape):
    return (((np.arange(int(np.prod(shape))) * 37) % 255) / 127.5 - 1).reshape(shape).astype(np.float32)


FRAMES = np.concatenate([ramp(1, 576) * np.float32(0.1 * (index + 1)) for index in range(4)])


def frame_by_frame(client, sequence, pause_s=0.0):
    found = []
    for index, frame in enumerate(FRAMES):
        options = {"sequence_id": sequence, "sequence_start": index == 0, "sequence_end": index == 3}
        found.append(client.infer("silero_vad", {"input": frame[None]}, **options).as_numpy("output")[0, 0])
        time.sleep(pause_s)
    return found


def test_state_is_kept_by_the_server(language_client, needs_model):
    needs_model("silero_vad")
    sequence = next(IDS)
    for _ in range(2):
        assert np.allclose(frame_by_frame(language_client, sequence), SPEECH, atol=1e-5)


def test_twelve_streams_on_four_instances(language_server, needs_model):
    needs_model("silero_vad")
    found = []

    def listen():
        client = PROTOCOLS["grpc"](language_server)
        found.append(frame_by_frame(client, next(IDS), 0.01))
        client.close()

    threads = [threading.Thread(target=listen) for _ in range(12)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(found) == 12 and np.allclose(found, [SPEECH] * 12, atol=1e-5)


@pytest.mark.parametrize("cut", [1, 2, 3, 4])
def test_two_states_in_chunks(language_client, needs_model, cut):
    needs_model("silero_vad_chunks")
    sequence, found = next(IDS), []
    chunks = [chunk for chunk in (FRAMES[:cut], FRAMES[cut:]) if len(chunk)]
    for index, chunk in enumerate(chunks):
        options = {"sequence_id": sequence, "sequence_start": index == 0, "sequence_end": index == len(chunks) - 1}
        found.append(language_client.infer("silero_vad_chunks", {"input": chunk}, **options).as_numpy("speech_probs"))
    assert np.allclose(np.concatenate(found), SPEECH, atol=1e-5)


def test_state_carried_by_the_client_and_a_scalar(language_client, needs_model):
    needs_model("silero_vad_plain")
    state, found = np.zeros((2, 1, 128), np.float32), []
    for frame in FRAMES:
        arrays = {"input": frame[None], "state": state, "sr": np.array([16000], np.int64)}
        result = language_client.infer("silero_vad_plain", arrays)
        state = result.as_numpy("stateN")
        found.append(result.as_numpy("output")[0, 0])
    assert np.allclose(found, SPEECH, atol=1e-5)
    assert np.allclose(state.ravel()[:3], [-0.134716, 0.169111, 0.279497], atol=1e-4)


@pytest.mark.parametrize("hertz, keys", [(220, [109, 36, 36]), (440, [145, 48, 48]), (880, [181, 60, 60])])
def test_notes_of_a_tone(language_client, needs_model, hertz, keys):
    needs_model("basic_pitch")
    tone = (0.5 * np.sin(2 * np.pi * hertz * np.arange(43844) / 22050)).astype(np.float32).reshape(1, -1, 1)
    result = language_client.infer("basic_pitch", {"serving_default_input_2:0": tone})
    outputs = [result.as_numpy(f"StatefulPartitionedCall:{index}")[0] for index in range(3)]
    assert [int(output.mean(0).argmax()) for output in outputs] == keys
    if hertz == 440:
        assert np.allclose([output.sum() for output in outputs], [4572.69, 1597.10, 1453.33], atol=0.5)


WORDS = {
    "助動詞 * * デス 特殊・デス 基本形": ("ナン", 0.775065, [1, 6, 24, 122, 127]),
    "動詞 自立 * スル サ変・スル 基本形": ("ナニ", 0.804063, [3, 21, 24, 58, 115, 127]),
    "助詞 格助詞 一般 ヲ * *": ("ナニ", 0.635711, [2, 19, 25, 111, 114, 124]),
    "名詞 接尾 助数詞 カイ * *": ("ナン", 0.812900, [4, 16, 26, 33, 114, 124]),
}


def word_rows():
    return text_array([word for row in WORDS for word in row.split(" ")], (len(WORDS), 6))


def test_strings_into_a_forest(language_client, needs_model):
    needs_model("nani")
    wanted = language_client.output("probabilities", class_count=1)
    result = language_client.infer("nani", {"NEXT_WORD": word_rows()}, outputs=[wanted]).as_numpy("probabilities")
    found = [text.decode().split(":") for text in result.reshape(-1)]
    assert [parts[2] for parts in found] == [label for label, _, _ in WORDS.values()]
    assert np.allclose([float(parts[0]) for parts in found], [score for _, score, _ in WORDS.values()], atol=1e-4)


def test_strings_as_positions(language_client, needs_model):
    needs_model("nani_encode")
    rows = language_client.infer("nani_encode", {"input": word_rows()}).as_numpy("variable")
    assert [np.nonzero(row)[0].tolist() for row in rows] == [positions for _, _, positions in WORDS.values()]


def test_small_models(language_client, needs_model):
    needs_model("mul_1", "sigmoid", "title_encoder")
    product = language_client.infer("mul_1", {"X": np.arange(6, dtype=np.float32).reshape(3, 2)}).as_numpy("Y")
    assert product.tolist() == [[0, 2], [6, 12], [20, 30]]
    squashed = language_client.infer("sigmoid", {"x": ramp(3, 4, 5)}).as_numpy("y").ravel()[:4]
    assert np.allclose(squashed, [0.268941, 0.329642, 0.396611, 0.467692], atol=1e-5)
    ids = np.array([[21603, 10, 37, 1139, 1]])
    arrays = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    hidden = language_client.infer("title_encoder", arrays).as_numpy("last_hidden_state").ravel()[:4]
    assert np.allclose(hidden, [0.000252795, -0.00108628, -0.000542512, 0.00832604], atol=2e-3)


@pytest.mark.parametrize(
    "name, source, output, shape, value",
    [
        ("squeezenet", "data_0", "softmaxout_1", (1, 1000, 1, 1), 0.001),
        ("resnet50", "gpu_0/data_0", "gpu_0/softmax_1", (1, 1000), 0.001),
        ("densenet121", "data_0", "fc6_1", (1, 1000, 1, 1), 0.460955),
    ],
)
def test_weights_that_are_graph_inputs(language_client, language_server, needs_model, name, source, output, shape, value):
    model = f"light_{name}"
    needs_model(model)
    config = call(language_server, "GET", f"/v2/models/{model}/config").json()
    assert [tensor["name"] for tensor in config["input"]] == [source]
    assert config["max_batch_size"] == 0
    pixels = (np.arange(150528).reshape(1, 3, 224, 224) / 150528).astype(np.float32)
    found = language_client.infer(model, {source: pixels}).as_numpy(output)
    assert found.shape == shape and np.allclose(found, value, atol=1e-4)


def test_a_model_that_must_be_refused(language_server, needs_model):
    needs_model("iris")
    index = post_json(language_server, "/v2/repository/index", {"ready": False}).json()
    [found] = [model for model in index if model["name"] == "iris"]
    assert found["state"] == "UNAVAILABLE" and "probabilities" in found["reason"] and "SEQUENCE" in found["reason"]
