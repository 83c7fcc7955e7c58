"""Picture files -> pixels as the classifier takes them. Needs the package `pillow`."""

import io

import numpy as np
import triton_python_backend_utils as pb_utils
from PIL import Image

SIDE = 224
FULL_SIDE = 256  # the classifier was trained on the middle of pictures whose shorter side is this


def read_pixels(content):
    image = Image.open(io.BytesIO(content)).convert("RGB")
    side = max(1, int(min(image.size) * SIDE / FULL_SIDE))
    left, top = (image.width - side) // 2, (image.height - side) // 2
    middle = image.crop((left, top, left + side, top + side)).resize((SIDE, SIDE), Image.BILINEAR)
    return ((np.asarray(middle, np.float32) - 127) / 128).transpose(2, 0, 1)


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        files = pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy().reshape(-1)
        try:
            pixels = np.stack([read_pixels(content) for content in files])
        except Exception as error:  # one broken picture is the error of its own request, not of the batch
            return pb_utils.InferenceResponse([], pb_utils.TritonError(str(error)))
        return pb_utils.InferenceResponse([pb_utils.Tensor("image", pixels)])
