"""The module that models import as `pb_utils` (python-backend.md §A5)."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np  # noqa: F401  models take it from here

from nereid_datatypes import (  # noqa: F401
    TRITON_STRING_TO_NUMPY,
    deserialize_bytes_tensor,
    numpy_to_triton_type,
    serialize_byte_tensor,
    triton_string_to_numpy,
    triton_to_numpy_type,
)
from nereid_errors import TritonError, TritonModelException  # noqa: F401
from nereid_model_config import (  # noqa: F401
    ModelConfig,
    get_input_config_by_name,
    get_output_config_by_name,
    using_decoupled_model_transaction_policy,
)
from nereid_request import (  # noqa: F401
    RELEASE_ALL,
    RELEASE_RESCHEDULE,
    InferenceRequest,
    MemoryType,
    PreferredMemory,
)
from nereid_response import InferenceResponse  # noqa: F401
from nereid_services import Logger, MetricFamily, is_model_ready, load_model, unload_model  # noqa: F401
from nereid_session import session as _session
from nereid_tensor import Tensor

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
TRITONSERVER_REQUEST_RELEASE_ALL = RELEASE_ALL
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = RELEASE_RESCHEDULE
TRITONSERVER_MEMORY_GPU = MemoryType.TRITONSERVER_MEMORY_GPU
TRITONSERVER_MEMORY_CPU = MemoryType.TRITONSERVER_MEMORY_CPU


def get_input_tensor_by_name(inference_request: Any, name: str) -> Optional[Tensor]:
    """The first input of that name, or None."""
    for tensor in inference_request.inputs():
        if tensor._name == name:
            return tensor
    return None


def get_output_tensor_by_name(inference_response: Any, name: str) -> Optional[Tensor]:
    """The first output of that name, or None."""
    for tensor in inference_response.output_tensors():
        if tensor._name == name:
            return tensor
    return None


def get_model_dir() -> str:
    """The folder of the model's version."""
    return _session.version_directory
