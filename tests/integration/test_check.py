"""`check` on every recorded configuration: it finds a fault exactly where the server refuses to load."""

import importlib.util
import json
import os
import pathlib
import subprocess

import pytest

PROJECT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = PROJECT / "tests" / "conformance" / "config"
pytestmark = pytest.mark.ours
# Only running the model shows these faults, and check runs nothing.
FOUND_BY_RUNNING = {"warmup_failing", "warmup_extra_input", "warmup_sequence"}


def load_recorder():
    spec = importlib.util.spec_from_file_location("config_cases", CONFIG / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def recorded_cases():
    cases = json.loads((CONFIG / "cases.json").read_text())["cases"]
    return [case for case in cases if not case.get("flags") and not case.get("load")]


def check(repository, *flags):
    command = ["deno", "run", "-A", str(PROJECT / "mod.ts"), "check", "--json"]
    done = subprocess.run(
        [*command, f"--model-repository={repository}", *flags],
        capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def texts(repository):
    return {path: path.read_bytes() for path in repository.rglob("*.pbtxt") if path.is_file()}


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    path = tmp_path_factory.mktemp("check") / "repository"
    load_recorder().write_repository(str(path), recorded_cases())
    return path


@pytest.fixture(scope="module")
def checked(repository):
    """The report on the repository as it was written, and its texts before."""
    before = texts(repository)
    return check(repository), before


def errors_by_model(report):
    found = {}
    for fault in report["faults"]:
        if fault["severity"] == "error":
            found.setdefault(fault["model"], []).append(fault)
    return found


def test_check_agrees_with_the_recorded_server(repository, checked):
    report, before = checked
    found = errors_by_model(report)
    for case in recorded_cases():
        state = case["expect"].get("state")
        if state is None or case["name"] in FOUND_BY_RUNNING:
            continue
        assert (case["name"] not in found) == (state == "READY"), (case["name"], found.get(case["name"]))
    for fault in report["faults"]:
        assert os.path.exists(fault["file"]), fault
        assert os.path.isdir(fault["file"]) == (fault["line"] is None), fault
    assert before == texts(repository)


def test_fix_changes_no_model_without_faults_and_nothing_twice(repository, checked):
    found = errors_by_model(checked[0])
    fixed = check(repository, "--fix")
    assert fixed["fixes"]
    for fix in fixed["fixes"]:
        assert pathlib.Path(fix["file"]).relative_to(repository).parts[0] in found
    assert set(errors_by_model(fixed)) < set(found)
    assert check(repository, "--fix")["fixes"] == []
