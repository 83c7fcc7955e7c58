"""Vectors of tokens -> one vector per text: the mean over what is not padding, of length 1."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        hidden = pb_utils.get_input_tensor_by_name(request, "last_hidden_state").as_numpy()
        mask = pb_utils.get_input_tensor_by_name(request, "attention_mask").as_numpy().astype(np.float32)
        sums = np.einsum("rts,rt->rs", hidden, mask)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        vectors = sums / np.where(lengths == 0, 1, lengths)
        return pb_utils.InferenceResponse([pb_utils.Tensor("EMBEDDING", vectors.astype(np.float32))])
