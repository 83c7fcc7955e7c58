"""Metrics of models' own on /metrics (L0_backend_python/custom_metrics)."""

import pytest

from nereid_testing.observe import metric, wait_until
from nereid_testing.protocols import PROTOCOLS
from nereid_testing.python_models import add_python
from nereid_testing.raw_http import call
from nereid_testing.repository import Repository
from nereid_testing.script_model import add_script, run

pytestmark = pytest.mark.ours

COUNTS = """
class TritonPythonModel:
    def initialize(self, args):
        self.family = pb_utils.MetricFamily("shared_calls", "Calls of all models", pb_utils.MetricFamily.COUNTER)
        self.metric = self.family.Metric(labels={"model": args["model_name"]})
        self.metric.increment(1)

    def execute(self, requests):
        self.metric.increment(len(requests))
        return [answer(values(r)) for r in requests]
"""

FAMILY = "kept['{0}'] = pb_utils.MetricFamily('{0}', 'about {0}', pb_utils.MetricFamily.{1})\n"


def text_of(server):
    answered = call(server, "GET", "/metrics", port=server.metrics_port)
    assert answered.status == 200
    return answered.body.decode()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    from nereid_testing.server import ServerProcess

    repository = Repository(tmp_path_factory.mktemp("metrics") / "repository")
    add_script(repository)
    add_python(repository, "one", COUNTS)
    add_python(repository, "two", COUNTS)
    flags = ["--metrics-config=counter_latencies=false", "--model-control-mode=explicit", "--load-model=*"]
    with ServerProcess(repository.root, *flags) as each:
        yield each


@pytest.fixture(params=["http", "grpc"])
def client(request, server):
    each = PROTOCOLS[request.param](server)
    yield each
    run(each, "kept.clear(); import gc; gc.collect()")
    each.close()


def test_counters(client, server):
    lines = FAMILY.format("calls", "COUNTER") + """
metric = kept['m'] = kept['calls'].Metric(labels={'b': '1', 'a': 'x"y\\\\z'})
kept['plain'] = kept['calls'].Metric()
metric.increment(1.5)
metric.increment(0)
def told(work):
    try:
        return work()
    except pb_utils.TritonModelException as error:
        return str(error)
result = [metric.value(), told(lambda: metric.increment(-1)), told(lambda: metric.set(1)), told(lambda: metric.observe(1))]
"""
    value, negative, setting, observing = run(client, lines)
    assert value == 1.5
    assert "COUNTER can only be incremented monotonically by non-negative values." in negative
    assert "COUNTER does not support Set" in setting and "COUNTER does not support Observe" in observing
    text = text_of(server)
    assert "# HELP calls about calls\n# TYPE calls counter\n" in text
    assert 'calls{a="x\\"y\\\\z",b="1"} 1.5\n' in text and "\ncalls 0\n" in text


def test_gauges_are_shared_by_their_labels(client, server):
    lines = FAMILY.format("level", "GAUGE") + """
kept['again'] = pb_utils.MetricFamily('level', 'another text', pb_utils.MetricFamily.GAUGE)
kept['g'], kept['h'] = kept['level'].Metric(labels={'x': 'y'}), kept['again'].Metric(labels={'x': 'y'})
kept['g'].set(2.25)
kept['h'].increment(-3)
result = [kept['g'].value(), kept['h'].value()]
"""
    assert run(client, lines) == [-0.75, -0.75]
    assert metric(server, "level", x="y") == -0.75
    run(client, "del kept['g']")
    assert metric(server, "level", x="y") == -0.75
    run(client, "del kept['h']; import gc; gc.collect()")
    assert wait_until(lambda: metric(server, "level") is None)
    assert "level" not in text_of(server)


def test_histograms(client, server):
    lines = FAMILY.format("took", "HISTOGRAM") + """
kept['h'] = kept['took'].Metric(labels={'l': '1'}, buckets=[0.1, 1, 2.5, 10])
for value in (0.1, 3, 100):
    kept['h'].observe(value)
"""
    assert run(client, lines) is None
    lines = [line for line in text_of(server).splitlines() if line.startswith("took")]
    assert lines == [
        'took_count{l="1"} 3', 'took_sum{l="1"} 103.1', 'took_bucket{l="1",le="0.1"} 1', 'took_bucket{l="1",le="1"} 1',
        'took_bucket{l="1",le="2.5"} 1', 'took_bucket{l="1",le="10"} 2', 'took_bucket{l="1",le="+Inf"} 3',
    ]  # fmt: skip


@pytest.mark.parametrize(
    "family, text",
    [
        ("'calls', '', pb_utils.MetricFamily.GAUGE", "Family name already exists with different type"),
        ("'bad name', '', pb_utils.MetricFamily.GAUGE", "Invalid metric name"),
        ("'', '', pb_utils.MetricFamily.GAUGE", "Invalid metric name"),
        ("'nv_inference_count', '', pb_utils.MetricFamily.COUNTER", "Family name already exists"),
    ],
)
def test_families_that_cannot_be(client, family, text):
    lines = FAMILY.format("calls", "COUNTER") + f"result = pb_utils.MetricFamily({family})"
    assert text in run(client, lines)


@pytest.mark.parametrize(
    "metric, text",
    [
        ("kept['c'].Metric(labels={'a-b': '1'})", "Invalid label name"),
        ("kept['c'].Metric(labels='text')", "Labels must be a dictionary"),
        ("kept['c'].Metric(buckets=[1])", "Unexpected buckets found."),
        ("kept['h'].Metric()", "Missing required buckets."),
        ("kept['h'].Metric(buckets=[2, 1])", "ascending order"),
        ("kept['h'].Metric(labels={'le': '1'}, buckets=[1])", "Invalid label name"),
    ],
)
def test_metrics_that_cannot_be(client, metric, text):
    lines = FAMILY.format("c", "COUNTER") + FAMILY.format("h", "HISTOGRAM")
    assert text in run(client, f"{lines}result = {metric}")


def test_metrics_end_with_the_model(client, server):
    import numpy as np

    client.infer("one", {"IN": np.zeros([1], np.int32)})
    before = metric(server, "shared_calls", model="one")
    assert before >= 2 and metric(server, "shared_calls", model="two") >= 1
    client.client.unload_model("one")
    assert wait_until(lambda: metric(server, "shared_calls", model="one") is None)
    assert metric(server, "shared_calls", model="two") >= 1
    client.client.load_model("one")
    assert metric(server, "shared_calls", model="one") == 1
