"""Many requests: nothing is mixed up, nothing is kept."""

import threading

import numpy as np
import pytest

from nereid_testing.observe import pending, wait_until
from nereid_testing.protocols import GrpcProtocol, PROTOCOLS

MB = 1024 * 1024
# A warm process still grows until its garbage collector finds a size that it likes; a leak never stops.
ROUNDS, QUIET_GROWTH = 6, 3 * MB


def run_many(protocol, count, array):
    inputs = protocol.inputs({"IN": array})
    for _ in range(count):
        protocol.client.infer("identity_fp32", inputs)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "count"), [("small", 10_000), ("large", 1_000)])
def test_memory_does_not_grow(protocol, main_server, size, count):
    """Some round of 10,000 requests adds (nearly) nothing: 300 bytes kept per request would be seen."""
    array = np.ones((1, 16 if size == "small" else 150_528), np.float32)
    run_many(protocol, count // 3, array)
    growth = []
    for _ in range(ROUNDS):
        before = main_server.rss_bytes()
        run_many(protocol, count, array)
        growth.append(main_server.rss_bytes() - before)
        if growth[-1] < QUIET_GROWTH:
            return
    pytest.fail(f"MB more in each round of {count} requests: {[round(each / MB, 1) for each in growth]}")


@pytest.mark.parametrize("name", list(PROTOCOLS))
def test_concurrent_threads_with_large_tensors(main_server, name):
    """16 threads, every byte of every answer compared."""
    failures = []

    def work(seed):
        protocol = PROTOCOLS[name](main_server)
        try:
            for round_number in range(6):
                array = np.random.default_rng(seed * 100 + round_number).random((1, 100_000 + seed * 1000), np.float32)
                got = protocol.infer("identity_fp32", {"IN": array}).as_numpy("OUT")
                if got.tobytes() != array.tobytes():
                    failures.append((seed, round_number))
        except Exception as error:  # reported by the main thread
            failures.append((seed, error))
        finally:
            protocol.close()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.ours
def test_batches_give_each_request_its_own_rows(main_server):
    """Requests of 1 to 3 rows joined by the batcher: rows come back to their owners."""
    protocol = GrpcProtocol(main_server)
    answers = {}
    done = threading.Semaphore(0)

    def collect(key):
        def callback(result, error):
            answers[key] = error or result
            done.release()

        return callback

    for key in range(120):
        array = np.full((1 + key % 3, 1), key, np.float32)
        protocol.client.async_infer("batch_total", protocol.inputs({"IN": array}), collect(key))
    for _ in range(120):
        assert done.acquire(timeout=30)
    joined = 0
    for key, result in answers.items():
        got = result.as_numpy("OUT")
        assert got.shape == (1 + key % 3, 1) and (got == key).all()
        joined += result.as_numpy("TOTAL")[0, 0] != key * (1 + key % 3)
    assert joined > 60, "most requests ran together with others"
    assert wait_until(lambda: pending(main_server, "batch_total") == 0)
    protocol.close()
