"""D28: two states of a model, both carried on each step."""

import numpy as np
import pytest

from nereid_testing.protocols import PROTOCOLS
from nereid_testing.repository import Repository
from nereid_testing.state_models import sequence_config, state_section, two_counters, zero


pytestmark = pytest.mark.ours


@pytest.mark.parametrize("name", list(PROTOCOLS))
def test_d28_two_states_with_zero_data(tmp_path, start, name):
    """After three requests 3 and 30; both are updated each step, and start at zero in every sequence."""
    repository = Repository(tmp_path / "repository")
    outputs = "".join(f'output {{ name: "{n}" data_type: TYPE_FP32 dims: [ 1 ] }}\n' for n in ("OUT", "zA", "yB"))
    states = state_section("sA", "zA", more=zero()) + state_section("sB", "yB", more=zero())
    repository.onnx("counters", two_counters(), sequence_config(states, outputs=outputs))
    client = PROTOCOLS[name](start(repository.root))
    for sequence_id in (1, 2):
        shown = []
        for index in range(3):
            flags = {"sequence_id": sequence_id, "sequence_start": index == 0, "sequence_end": index == 2}
            result = client.infer("counters", {"IN": np.zeros(1, np.float32)}, **flags)
            shown.append(tuple(float(result.as_numpy(n)[0]) for n in ("zA", "yB")))
        assert shown == [(1, 10), (2, 20), (3, 30)]
    client.close()
