"""PP-OCRv4: lines of text are found, their direction is told, and they are read exactly."""

import threading

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from nereid_testing.observe import batch_sizes, difference
from nereid_testing.protocols import PROTOCOLS

LINES = ["Triton on Deno 2026", "Invoice No 48213", "Total 199.50 EUR"]
TOPS = (40, 130, 220)
REC_OUTPUT, DET_OUTPUT, CLS_OUTPUT = "softmax_11.tmp_0", "sigmoid_0.tmp_0", "softmax_0.tmp_0"
MARGIN_X, MARGIN_Y = 6, 8


def find_font():
    """DejaVu Sans where it is installed, else the font inside Pillow."""
    try:
        return ImageFont.truetype("DejaVuSans.ttf", 36)
    except OSError:
        return ImageFont.load_default(36)


FONT = find_font()


def draw_sheet():
    sheet = Image.new("RGB", (640, 320), "white")
    for top, line in zip(TOPS, LINES):
        ImageDraw.Draw(sheet).text((40, top), line, fill="black", font=FONT)
    return sheet


def crop_line(line):
    left, top, right, bottom = ImageDraw.Draw(Image.new("RGB", (1, 1))).textbbox((0, 0), line, font=FONT)
    size = (right - left + 2 * MARGIN_X, bottom - top + 2 * MARGIN_Y)
    image = Image.new("RGB", size, "white")
    ImageDraw.Draw(image).text((MARGIN_X - left, MARGIN_Y - top), line, fill="black", font=FONT)
    return image.resize((round(size[0] * 48 / size[1]), 48), Image.BILINEAR)


def recognizer_input(image):
    bgr = np.asarray(image, np.float32)[:, :, ::-1]
    return ((bgr / 255 - 0.5) / 0.5).transpose(2, 0, 1)


def padded_batch(images):
    rows = [recognizer_input(image) for image in images]
    width = max(row.shape[2] for row in rows)
    return np.stack([np.pad(row, ((0, 0), (0, 0), (0, width - row.shape[2]))) for row in rows]).astype(np.float32)


@pytest.fixture(scope="session")
def characters(real_repository):
    text = (real_repository / "ocr_rec" / "characters.txt").read_text(encoding="utf-8")
    return ["", *text.splitlines(), " "]


def read_text(scores, characters):
    """CTC: repetitions and blanks fall away."""
    best, text, before = scores.argmax(1), "", 0
    for index in best:
        if index != before and index != 0:
            text += characters[index]
        before = index
    return text


CROPS = [crop_line(line) for line in LINES]


@pytest.mark.parametrize("index", range(3))
def test_a_line_alone(client, characters, index):
    scores = client.infer("ocr_rec", {"x": recognizer_input(CROPS[index])[None]}).as_numpy(REC_OUTPUT)
    assert scores.shape[0] == 1 and scores.shape[2] == 6625 == len(characters)
    assert read_text(scores[0], characters) == LINES[index]


def test_three_lines_in_one_padded_batch(client, characters):
    scores = client.infer("ocr_rec", {"x": padded_batch(CROPS)}).as_numpy(REC_OUTPUT)
    assert [read_text(each, characters) for each in scores] == LINES


@pytest.mark.parametrize("name", list(PROTOCOLS))
def test_batched_and_unbatched_are_equal(real_server, characters, name):
    """24 single requests at once, joined by the batcher, give what each gives alone."""
    batch = padded_batch(CROPS)
    alone = PROTOCOLS[name](real_server)
    want = [alone.infer("ocr_rec", {"x": batch[i : i + 1]}).as_numpy(REC_OUTPUT) for i in range(3)]
    alone.close()
    before = batch_sizes(real_server, "ocr_rec")
    got, failures = {}, []

    def work(number):
        protocol = PROTOCOLS[name](real_server)
        try:
            got[number] = protocol.infer("ocr_rec", {"x": batch[number % 3 : number % 3 + 1]}).as_numpy(REC_OUTPUT)
        except Exception as error:
            failures.append(error)
        finally:
            protocol.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for number, scores in got.items():
        assert np.allclose(scores, want[number % 3], atol=1e-4)
        assert read_text(scores[0], characters) == LINES[number % 3]
    sizes = difference(batch_sizes(real_server, "ocr_rec"), before)
    assert sum(size * count for size, count in sizes.items()) == 24
    assert max(sizes) > 1, "some requests ran together"


def test_detector(client):
    picture = np.asarray(draw_sheet(), np.float32) / 255
    normal = ((picture - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]).transpose(2, 0, 1)[None].astype(np.float32)
    found = client.infer("ocr_det", {"x": normal}).as_numpy(DET_OUTPUT)
    assert found.shape == (1, 1, 320, 640)
    rows = (found[0, 0] > 0.3).any(1)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], rows.astype(int), [0]])))
    bands = [(int(a), int(b) - 1) for a, b in zip(edges[::2], edges[1::2])]
    assert len(bands) == 3, bands
    for (first, last), (want_first, want_last) in zip(bands, ((54, 67), (145, 157), (234, 246))):
        assert abs(first - want_first) <= 4 and abs(last - want_last) <= 4, bands
    assert found.max() > 0.99
    assert abs(found.mean() - 0.05273) < 0.01


@pytest.mark.parametrize("turned", [False, True])
def test_direction(client, turned):
    crops = [crop.rotate(180) if turned else crop for crop in CROPS]
    rows = np.stack([recognizer_input(crop.crop((0, 0, 192, 48))) for crop in crops]).astype(np.float32)
    if turned:
        rows = np.stack([recognizer_input(crop.crop((crop.width - 192, 0, crop.width, 48))) for crop in crops]).astype(np.float32)
    found = client.infer("ocr_cls", {"x": rows}).as_numpy(CLS_OUTPUT)
    assert found.shape == (3, 2)
    assert (found.argmax(1) == int(turned)).all(), found


def test_direction_classes(client):
    """The classification extension with the label file."""
    rows = np.stack([recognizer_input(CROPS[0].crop((0, 0, 192, 48)))]).astype(np.float32)
    output = client.output(CLS_OUTPUT, class_count=1)
    text = client.infer("ocr_cls", {"x": rows}, outputs=[output]).as_numpy(CLS_OUTPUT)[0, 0].decode()
    value, index, *label = text.split(":")
    assert float(value) > 0.9 and index == "0"


def test_classifier_on_a_ramp(client):
    ramp = (((np.arange(2 * 3 * 48 * 192) * 37) % 255) / 127.5 - 1).reshape(2, 3, 48, 192).astype(np.float32)
    found = client.infer("ocr_cls", {"x": ramp}).as_numpy(CLS_OUTPUT)
    assert np.allclose(found, [[0.394817, 0.605183], [0.392075, 0.607925]], atol=1e-3)
