"""Servers and clients for all Python tests."""

import pytest

from nereid_testing.main_repository import write_main_repository
from nereid_testing.protocols import PROTOCOLS
from nereid_testing.server import ServerProcess, is_reference


@pytest.fixture(scope="session")
def main_server(tmp_path_factory):
    """The server of the shared repository, one for the whole run."""
    root = tmp_path_factory.mktemp("main") / "repository"
    write_main_repository(root)
    with ServerProcess(root) as server:
        yield server
        assert server.alive(), f"the server died:\n{server.log()[-4000:]}"


@pytest.fixture(params=["http", "grpc"])
def protocol(request, main_server):
    """tritonclient's HTTP and gRPC client in turn, connected to the shared server."""
    each = PROTOCOLS[request.param](main_server)
    yield each
    each.close()


@pytest.fixture
def http(main_server):
    each = PROTOCOLS["http"](main_server)
    yield each
    each.close()


@pytest.fixture
def grpc(main_server):
    each = PROTOCOLS["grpc"](main_server)
    yield each
    each.close()


@pytest.fixture
def start(tmp_path):
    """Starts servers of a test's own: start(repository, *flags) → ServerProcess; all are stopped at the end."""
    running = []

    def begin(repository, *flags, **options):
        server = ServerProcess(repository, *flags, **options)
        running.append(server)
        return server.__enter__()

    yield begin
    for server in running:
        server.__exit__()


def pytest_collection_modifyitems(items):
    """Against the real Triton (see server.is_reference) the tests marked `ours` are left out."""
    if is_reference():
        for item in items:
            if item.get_closest_marker("ours"):
                item.add_marker(pytest.mark.skip(reason="not on the real Triton"))


def pytest_terminal_summary(terminalreporter):
    """One line in the form that tests/run_all.ts sums up."""
    count = lambda *names: sum(len(terminalreporter.stats.get(name, [])) for name in names)  # noqa: E731
    terminalreporter.write_line(f"{count('passed')} passed, {count('failed', 'error')} failed, {count('skipped')} skipped")
