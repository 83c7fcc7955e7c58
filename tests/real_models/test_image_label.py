"""preprocessing → EfficientNet-Lite0 → postprocessing, as an ensemble and as a model that calls them; both languages."""

import io
import threading

import numpy as np
import pytest
from PIL import Image
from tritonclient.utils import InferenceServerException

from nereid_testing.protocols import PROTOCOLS, text_array

PICTURES = {"chelsea.png": ("tiger cat", "Egyptian cat"), "coffee.png": ("espresso",), "rocket.jpg": ("missile",)}


@pytest.fixture(autouse=True)
def fetched(needs_model):
    needs_model("image_label", "image_label_bls", "classify_image")


@pytest.fixture(params=["image_label", "image_label_bls"], ids=["ensemble", "bls"])
def model(request):
    return request.param


def test_one_picture(language_client, picture, model):
    for name, labels in PICTURES.items():
        result = language_client.infer(model, {"IMAGE": text_array([picture(name)], (1, 1))})
        assert result.as_numpy("LABEL").shape == (1, 1)
        assert result.as_numpy("LABEL")[0, 0].decode() in labels
        assert 0.3 < result.as_numpy("SCORE")[0, 0] <= 1


def test_a_batch(language_client, picture, model):
    files = [picture(name) for name in PICTURES]
    found = language_client.infer(model, {"IMAGE": text_array(files, (3, 1))}).as_numpy("LABEL")[:, 0]
    assert all(label.decode() in labels for label, labels in zip(found, PICTURES.values())), found


def test_the_file_itself_over_json(language_client, language_server, picture):
    """Ensemble and program say the same."""
    answers = [
        language_client.infer(name, {"IMAGE": text_array([picture("coffee.png")], (1, 1))}).as_numpy("SCORE")[0, 0]
        for name in ("image_label", "image_label_bls")
    ]
    assert abs(answers[0] - answers[1]) < 1e-6
    assert abs(answers[0] - 0.957) < 0.02


@pytest.mark.parametrize("name", list(PICTURES))
def test_classes_with_labels_of_the_inner_step(language_client, picture, name):
    wanted = language_client.output("probabilities", class_count=3)
    result = language_client.infer("classify_image", {"IMAGE": text_array([picture(name)], (1, 1))}, outputs=[wanted])
    best = result.as_numpy("probabilities").reshape(-1)[0].decode().split(":")
    assert best[2] in PICTURES[name], best


def test_pixels(language_client, picture):
    """The same pixels as Pillow's; JPEG decoders differ by a little."""
    for name, tolerance in (("coffee.png", 1.5 / 128), ("rocket.jpg", 40 / 128)):
        image = Image.open(io.BytesIO(picture(name))).convert("RGB")
        side = int(min(image.size) * 224 / 256)
        left, top = (image.width - side) // 2, (image.height - side) // 2
        middle = image.crop((left, top, left + side, top + side)).resize((224, 224), Image.BILINEAR)
        wanted = ((np.asarray(middle, np.float32) - 127) / 128).transpose(2, 0, 1)
        found = language_client.infer("preprocessing", {"IMAGE": text_array([picture(name)], (1, 1))}).as_numpy("image")
        assert np.abs(found[0] - wanted).max() <= tolerance
        assert np.abs(found[0] - wanted).mean() <= 1 / 128


def test_what_is_no_picture(language_client, model):
    with pytest.raises(InferenceServerException, match="cannot identify image file"):
        language_client.infer(model, {"IMAGE": text_array([b"no picture"], (1, 1))})


def test_a_broken_picture_harms_no_other_request(language_server, picture, model):
    answers = {}

    def ask(key, file):
        client = PROTOCOLS["grpc"](language_server)
        try:
            answers[key] = client.infer(model, {"IMAGE": text_array([file], (1, 1))}).as_numpy("LABEL")[0, 0].decode()
        except InferenceServerException as error:
            answers[key] = error.message()
        client.close()

    files = {"good": picture("coffee.png"), "bad": b"no picture", "also good": picture("coffee.png")}
    threads = [threading.Thread(target=ask, args=each) for each in files.items()]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert answers["good"] == answers["also good"] == "espresso"
    assert "cannot identify image file" in answers["bad"]


def test_classifier_numbers(language_client):
    """The classifier was made out of PyTorch's weights by a script of ours: the numbers are PyTorch's."""
    ramp = (((np.arange(2 * 3 * 224 * 224) * 37) % 255) / 127.5 - 1).reshape(2, 3, 224, 224).astype(np.float32)
    found = language_client.infer("efficientnet_lite0", {"image": ramp}).as_numpy("probabilities")
    assert np.allclose(found[:, 753], [0.254093, 0.214502], atol=2e-3)
    assert np.allclose(found.sum(1), 1, atol=1e-4)
