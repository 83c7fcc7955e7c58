"""A text -> a title, token by token: the likeliest one after those before. Needs the package `tokenizers`."""

import os

import numpy as np
import triton_python_backend_utils as pb_utils
from tokenizers import Tokenizer

START, END = 0, 1
DEFAULT_TOKENS = 24


def call(model, output, **inputs):
    request = pb_utils.InferenceRequest(
        model_name=model,
        requested_output_names=[output],
        inputs=[pb_utils.Tensor(name, array) for name, array in inputs.items()],
    )
    response = request.exec()
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    return pb_utils.get_output_tensor_by_name(response, output).as_numpy()


class TritonPythonModel:
    def initialize(self, args):
        folder = os.path.join(args["model_repository"], args["model_version"])
        self.tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        self.tokenizer.no_padding()

    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            try:
                for piece in self.pieces(request, sender):
                    title = pb_utils.Tensor("TITLE", np.array([piece.encode()], dtype=object))
                    sender.send(pb_utils.InferenceResponse([title]))
            except pb_utils.TritonModelException as error:
                sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error))))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def pieces(self, request, sender):
        text = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()[0].decode()
        most = pb_utils.get_input_tensor_by_name(request, "MAX_TOKENS")
        limit = DEFAULT_TOKENS if most is None else int(most.as_numpy()[0])
        ids = np.array([self.tokenizer.encode(text).ids], np.int64)
        mask = np.ones_like(ids)
        hidden = call("title_encoder", "last_hidden_state", input_ids=ids, attention_mask=mask)
        made, said = [START], ""
        while len(made) <= limit and not sender.is_cancelled():
            tokens = np.array([made], np.int64)
            logits = call(
                "title_decoder",
                "logits",
                input_ids=tokens,
                encoder_hidden_states=hidden,
                encoder_attention_mask=mask,
            )
            made.append(int(logits[0, -1].argmax()))
            if made[-1] == END:
                return
            # A token may change how the one before it is written, so the whole is decoded each time.
            title = self.tokenizer.decode(made, skip_special_tokens=True)
            yield title[len(said) :]
            said = title
