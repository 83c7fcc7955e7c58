"""PP-OCRv6 behind one model that finds, turns and reads lines, in TypeScript and in Python; and PP-OCRv4 in the demo."""

import io

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont
from tritonclient.utils import InferenceServerException

from nereid_testing.observe import pending, wait_until
from nereid_testing.protocols import text_array

LINES = ["Triton on Deno 2026", "Invoice No 48213", "Total 199.50 EUR"]
TOPS = (40, 130, 220)
BOXES = [[37, 43, 381, 83], [38, 133, 330, 173], [37, 223, 325, 263]]
PAGE_LINES = [
    "Region-based segmentation",
    "Let us first determine markers of the coins and the",
    "background. These markers are pixels that we can label",
    "unambiguously as either object or background. Here,",
    "the markers are found at the two extreme parts of the",
    "histogram of grey values:",
]
BUILT_IN_FONT = ImageFont.load_default(36)


def find_system_font():
    try:
        return ImageFont.truetype("DejaVuSans.ttf", 36)
    except OSError:
        return BUILT_IN_FONT


@pytest.fixture
def fetched(needs_model):
    needs_model("ocr")


def draw_sheet(font=BUILT_IN_FONT):
    sheet = Image.new("RGB", (640, 320), "white")
    for top, line in zip(TOPS, LINES):
        ImageDraw.Draw(sheet).text((40, top), line, fill="black", font=font)
    return sheet


def encode(image, kind="PNG", **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def read(client, file):
    return client.infer("ocr", {"IMAGE": text_array([file])})


def lines_of(result):
    return [line.decode() for line in result.as_numpy("TEXT")]


@pytest.mark.parametrize("font", [BUILT_IN_FONT, find_system_font()], ids=["built-in", "DejaVu"])
def test_drawn_lines(language_client, fetched, font):
    result = read(language_client, encode(draw_sheet(font)))
    assert lines_of(result) == LINES
    scores = result.as_numpy("SCORE")
    assert scores.shape == (3,) and scores.min() > 0.95, scores


def test_boxes(language_client, fetched):
    assert np.allclose(read(language_client, encode(draw_sheet())).as_numpy("BOX"), BOXES, atol=2.5)


def test_upside_down(language_client, fetched):
    assert lines_of(read(language_client, encode(draw_sheet().rotate(180)))) == LINES[::-1]


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "1"])
def test_kinds_of_png(language_client, fetched, mode):
    assert lines_of(read(language_client, encode(draw_sheet().convert(mode)))) == LINES


@pytest.mark.parametrize("options", [{"quality": 90}, {"quality": 90, "progressive": True}], ids=["baseline", "progressive"])
def test_jpeg(language_client, fetched, options):
    assert lines_of(read(language_client, encode(draw_sheet(), "JPEG", **options))) == LINES


def test_blank_picture(language_client, fetched):
    result = read(language_client, encode(Image.new("RGB", (300, 100), "white")))
    shapes = {name: result.as_numpy(name).shape for name in ("TEXT", "SCORE", "BOX")}
    assert shapes == {"TEXT": (0,), "SCORE": (0,), "BOX": (0, 4)}


@pytest.mark.parametrize("size", [(1, 1), (1, 500), (33, 17)])
def test_tiny_pictures(language_client, fetched, size):
    assert read(language_client, encode(Image.new("RGB", size, "white"))).as_numpy("BOX").shape[1] == 4


def test_a_scanned_page(language_client, fetched, picture):
    page = Image.open(io.BytesIO(picture("page.png"))).convert("RGB")
    large = page.resize((page.width * 2, page.height * 2), Image.BICUBIC)
    assert lines_of(read(language_client, encode(large)))[:6] == PAGE_LINES


@pytest.mark.parametrize("file", [b"no picture", b"", b"\x89PNG\r\n\x1a\n cut", b"\xff\xd8\xff\xe0"])
def test_what_is_no_picture(language_client, language_server, fetched, file):
    """The model's own error, and nothing is left over."""
    with pytest.raises(InferenceServerException) as raised:
        read(language_client, file)
    if file == b"no picture":
        assert "cannot identify image file" in str(raised.value)
    assert lines_of(read(language_client, encode(draw_sheet()))) == LINES
    assert wait_until(lambda: pending(language_server, "ocr_rec") == 0)


def test_direction_on_a_ramp(language_client, fetched):
    ramp = (((np.arange(2 * 3 * 48 * 192) * 37) % 255) / 127.5 - 1).reshape(2, 3, 48, 192).astype(np.float32)
    found = language_client.infer("ocr_cls", {"x": ramp}).as_numpy("save_infer_model/scale_0.tmp_1")
    assert np.allclose(found, [[0.394817, 0.605183], [0.392075, 0.607925]], atol=1e-3)


@pytest.mark.parametrize("turned", [False, True], ids=["upright", "upside-down"])
def test_the_demo_reads_the_same_lines(client, turned):
    sheet = draw_sheet(find_system_font())
    result = read(client, encode(sheet.rotate(180) if turned else sheet))
    assert lines_of(result) == (LINES[::-1] if turned else LINES)
