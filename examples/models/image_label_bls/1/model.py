"""Pictures -> what they show, by three calls of other models."""

import triton_python_backend_utils as pb_utils


def call(model, tensor, outputs):
    response = pb_utils.InferenceRequest(
        model_name=model, requested_output_names=outputs, inputs=[tensor]
    ).exec()
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    return [pb_utils.get_output_tensor_by_name(response, name) for name in outputs]


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        try:
            picture = pb_utils.get_input_tensor_by_name(request, "IMAGE")
            [pixels] = call("preprocessing", picture, ["image"])
            [probabilities] = call("efficientnet_lite0", pixels, ["probabilities"])
            return pb_utils.InferenceResponse(call("postprocessing", probabilities, ["LABEL", "SCORE"]))
        except pb_utils.TritonModelException as error:  # the error of this request, not of the batch
            return pb_utils.InferenceResponse([], pb_utils.TritonError(str(error)))
