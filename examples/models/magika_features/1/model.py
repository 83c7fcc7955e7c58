"""Contents of files -> the bytes that the classifier looks at: the first and the last 1024 of each."""

import numpy as np
import triton_python_backend_utils as pb_utils

HALF = 1024  # bytes of the beginning in a row, and as many of the end
WINDOW = 4096  # only so much of each end of a file is looked at
NOTHING = 256  # stands where a file has no byte


def make_row(content):
    row = np.full(2 * HALF, NOTHING, np.int32)
    head = content[:WINDOW].lstrip()[:HALF]
    tail = content[-WINDOW:].rstrip()[-HALF:]
    row[: len(head)] = np.frombuffer(head, np.uint8)
    row[len(row) - len(tail) :] = np.frombuffer(tail, np.uint8)
    return row


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        files = pb_utils.get_input_tensor_by_name(request, "CONTENT").as_numpy().reshape(-1)
        rows = np.stack([make_row(content) for content in files])
        return pb_utils.InferenceResponse([pb_utils.Tensor("bytes", rows)])
