"""The same classes under the name that the reference's compiled module has: some models import them from there."""

from nereid_calls import ResponseIterator  # noqa: F401
from nereid_errors import TritonError, TritonModelException  # noqa: F401
from nereid_request import InferenceRequest, InferenceTrace, MemoryType, PreferredMemory  # noqa: F401
from nereid_response import InferenceResponse, InferenceResponseSender  # noqa: F401
from nereid_services import (  # noqa: F401
    Logger,
    Metric,
    MetricFamily,
    MetricKind,
    is_model_ready,
    load_model,
    unload_model,
)
from nereid_tensor import Tensor  # noqa: F401
