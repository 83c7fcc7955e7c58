"""Builds a TensorRT plan out of an ONNX model, for the GPU of this machine: MODEL PLAN DIM,DIM,…"""

import sys

import tensorrt as trt


def build(model: str, plan: str, shape: "tuple[int, ...]") -> None:
    """Writes the plan; every input gets the shape. Raises RuntimeError with the parser's words."""
    logger = trt.Logger(trt.Logger.WARNING)
    builder = trt.Builder(logger)
    major = int(trt.__version__.split(".")[0])
    flags = 1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH) if major < 10 else 0
    network = builder.create_network(flags)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(model):
        raise RuntimeError("; ".join(str(parser.get_error(index)) for index in range(parser.num_errors)))
    profile = builder.create_optimization_profile()
    for index in range(network.num_inputs):
        profile.set_shape(network.get_input(index).name, shape, shape, shape)
    config = builder.create_builder_config()
    config.add_optimization_profile(profile)
    serialized = builder.build_serialized_network(network, config)
    if serialized is None:
        raise RuntimeError("the builder gave no plan; its log has the reason")
    with open(plan, "wb") as file:
        file.write(serialized)


if __name__ == "__main__":
    build(sys.argv[1], sys.argv[2], tuple(int(size) for size in sys.argv[3].split(",")))
    print(trt.__version__)
