"""Probabilities -> the name of the likeliest class, and how likely it is."""

import os

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        with open(os.path.join(args["model_repository"], "labels.txt"), encoding="utf-8") as file:
            self.labels = [line.encode() for line in file.read().splitlines()]

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        probabilities = pb_utils.get_input_tensor_by_name(request, "probabilities").as_numpy()
        best = probabilities.argmax(axis=1)
        labels = np.array([[self.labels[index]] for index in best], dtype=object)
        scores = np.take_along_axis(probabilities, best[:, None], axis=1)
        return pb_utils.InferenceResponse([pb_utils.Tensor("LABEL", labels), pb_utils.Tensor("SCORE", scores)])
