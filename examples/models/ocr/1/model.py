"""A picture -> its lines of text: finds them, turns them upright, reads them. Needs the package `pillow`."""

import io
import json
import os

import numpy as np
import triton_python_backend_utils as pb_utils
from PIL import Image

DETECTOR_STEP = 32  # the detector takes sides that are multiples of it
DETECTOR_MEAN = np.array([0.485, 0.456, 0.406])
DETECTOR_DEVIATION = np.array([0.229, 0.224, 0.225])
PIXEL_THRESHOLD = 0.3  # pixels of the map above it belong to text
MEAN_THRESHOLD = 0.5  # a part is text if its pixels have this mean
MIN_PIXELS = 12  # smaller parts are dirt
DEFAULT_GROWTH = 1.6  # the map shows the inner part of a line only
LINE_HEIGHT = 48
MAX_LINE_WIDTH = 4096
DIRECTION_WIDTH = 192  # the direction classifier looks at the beginning of a line, in this shape
DIRECTION_LINES = 16
LINES_PER_CALL = 8


def call(model, tensor):
    """The three models have one input and one output each."""
    response = pb_utils.InferenceRequest(
        model_name=model, requested_output_names=[], inputs=[pb_utils.Tensor("x", tensor)]
    ).exec()
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    return response.output_tensors()[0].as_numpy()


def find_parts(text):
    """Connected parts (by an edge) of a map of booleans, as arrays of rows and columns."""
    height, width = text.shape
    open_pixels = text.copy()
    for start in zip(*np.nonzero(text)):
        if not open_pixels[start]:
            continue
        open_pixels[start] = False
        waiting, part = [start], []
        while waiting:
            y, x = pixel = waiting.pop()
            part.append(pixel)
            for near in ((y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)):
                if 0 <= near[0] < height and 0 <= near[1] < width and open_pixels[near]:
                    open_pixels[near] = False
                    waiting.append(near)
        yield tuple(np.array(part).T)


def find_boxes(probabilities, growth=DEFAULT_GROWTH):
    """Boxes (left, top, right, bottom) around the text of a map, in reading order."""
    height, width = probabilities.shape
    boxes = []
    for rows, columns in find_parts(probabilities > PIXEL_THRESHOLD):
        if len(rows) < MIN_PIXELS or probabilities[rows, columns].mean() < MEAN_THRESHOLD:
            continue
        left, top, right, bottom = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
        wide, high = right - left, bottom - top
        edge = wide * high * growth / (2 * (wide + high))
        box = (max(0, left - edge), max(0, top - edge), min(width, right + edge), min(height, bottom + edge))
        boxes.append(box)
    boxes.sort(key=lambda box: (round(box[1] / 10), box[0]))
    return np.array(boxes, np.float64).reshape(-1, 4)


def to_blue_green_red(image):
    return np.asarray(image, np.float32)[:, :, ::-1] / 255


def detector_tensor(image):
    pixels = (to_blue_green_red(image) - DETECTOR_MEAN) / DETECTOR_DEVIATION
    return pixels.transpose(2, 0, 1)[None].astype(np.float32)


def line_tensor(crops, width=None):
    """Lines of one height, zeros to the right of the shorter ones; none is wider than `width`."""
    lines = []
    for crop in crops:
        scaled = max(1, round(LINE_HEIGHT * crop.width / crop.height))
        lines.append(crop.resize((min(width or MAX_LINE_WIDTH, scaled), LINE_HEIGHT), Image.BILINEAR))
    full = width or max(line.width for line in lines)
    tensor = np.zeros((len(lines), 3, LINE_HEIGHT, full), np.float32)
    for row, line in zip(tensor, lines):
        row[:, :, : line.width] = (to_blue_green_red(line).transpose(2, 0, 1) - 0.5) / 0.5
    return tensor


def read_line(probabilities, characters):
    """The recognizer's answer (CTC): the same class twice without class 0 in between is one character."""
    best = probabilities.argmax(axis=1)
    is_new = (best != 0) & (best != np.concatenate([[0], best[:-1]]))
    text = "".join(characters[index - 1] if index <= len(characters) else " " for index in best[is_new])
    scores = probabilities[is_new, best[is_new]]
    return text, float(scores.mean()) if len(scores) else 0.0


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"]).get("parameters", {})
        self.growth = float(parameters.get("box_growth", {"string_value": DEFAULT_GROWTH})["string_value"])
        path = os.path.join(args["model_repository"], args["model_version"], "characters.txt")
        # Only line feeds end a line: some of the characters are line ends elsewhere.
        with open(path, encoding="utf-8", newline="\n") as file:
            self.characters = file.read().split("\n")

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        try:
            content = pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy()[0]
            image = Image.open(io.BytesIO(content)).convert("RGB")
            boxes = self.find(image)
            lines = self.read([image.crop(tuple(box)) for box in boxes])
        except Exception as error:  # one broken picture is the error of its own request, not of the batch
            return pb_utils.InferenceResponse([], pb_utils.TritonError(str(error)))
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("TEXT", np.array([text.encode() for text, _ in lines], dtype=object)),
                pb_utils.Tensor("SCORE", np.array([score for _, score in lines], np.float32)),
                pb_utils.Tensor("BOX", boxes.astype(np.float32)),
            ]
        )

    def find(self, image):
        size = [max(DETECTOR_STEP, round(side / DETECTOR_STEP) * DETECTOR_STEP) for side in image.size]
        scaled = image.resize(size, Image.BILINEAR)
        boxes = find_boxes(call("ocr_det", detector_tensor(scaled))[0, 0], self.growth)
        scale_x, scale_y = size[0] / image.width, size[1] / image.height
        return boxes / [scale_x, scale_y, scale_x, scale_y]

    def read(self, crops):
        if not crops:
            return []
        if self.are_turned(crops):
            crops = [crop.rotate(180) for crop in crops]
        lines = []
        for start in range(0, len(crops), LINES_PER_CALL):
            answers = call("ocr_rec", line_tensor(crops[start : start + LINES_PER_CALL]))
            lines += [read_line(answer, self.characters) for answer in answers]
        return lines

    def are_turned(self, crops):
        """Are the lines upside down? Their beginnings decide together."""
        heads = [crop.crop((0, 0, min(crop.width, 4 * crop.height), crop.height)) for crop in crops]
        answers = call("ocr_cls", line_tensor(heads[:DIRECTION_LINES], DIRECTION_WIDTH))
        return answers[:, 1].mean() > 0.5
