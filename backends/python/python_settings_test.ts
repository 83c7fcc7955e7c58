import assert from "node:assert/strict";
import { readPythonSettings } from "./python_settings.ts";

const read = (settings: Record<string, string> = {}) =>
  readPythonSettings(new Map(Object.entries(settings)));

Deno.test("readPythonSettings() has defaults for everything", () => {
  assert.deepEqual(read(), {
    memory: { initialByteSize: 1048576, growthByteSize: 1048576, maxByteSize: 4294967296 },
    stubTimeoutMs: 30_000,
    executable: "python3",
    restarts: true,
    executeTimeoutMs: 0,
  });
});

Deno.test("readPythonSettings() reads every setting", () => {
  assert.deepEqual(
    read({
      "shm-default-byte-size": "2097152",
      "shm-growth-byte-size": "4096",
      "shm-max-byte-size": "8388608",
      "stub-timeout-seconds": "5",
      "python-executable": "/opt/python",
      "stub-restart": "never",
      "execute-timeout-seconds": "1.5",
      "thread-pool-size": "8",
      "shm_message_queue_size": "10",
      "shm-region-prefix-name": "mine",
      "default-max-batch-size": "4",
    }),
    {
      memory: { initialByteSize: 2097152, growthByteSize: 4096, maxByteSize: 8388608 },
      stubTimeoutMs: 5000,
      executable: "/opt/python",
      restarts: false,
      executeTimeoutMs: 1500,
    },
  );
});

const REFUSED: readonly [string, string, RegExp][] = [
  ["shm-default-byte-size", "1000", /^shm-default-byte-size can't be smaller than 1 MiB/],
  ["shm-default-byte-size", "abc", /'abc'.*shm-default-byte-size/],
  ["shm-growth-byte-size", "0", /^shm-growth-byte-size can't be smaller than or equal to zero\./],
  ["shm-max-byte-size", "1000", /^shm-max-byte-size can't be smaller/],
  ["stub-timeout-seconds", "0", /^stub-timeout-seconds can't be smaller than or equal to zero\./],
  ["thread-pool-size", "0", /^thread-pool-size can't be less than 1\./],
  ["thread-pool-size", "", /thread-pool-size/],
  ["shm_message_queue_size", "x", /'x'.*shm_message_queue_size/],
  ["shm-region-prefix-name", "", /shm-region-prefix-name/],
  ["stub-restart", "always", /'on-failure' or 'never'.*'always'/],
  ["execute-timeout-seconds", "-1", /execute-timeout-seconds.*'-1'/],
  ["execute-timeout-seconds", "soon", /execute-timeout-seconds.*'soon'/],
];

for (const [key, value, message] of REFUSED) {
  Deno.test(`readPythonSettings() refuses ${key}=${value}`, () => {
    assert.throws(() => read({ [key]: value }), { code: "INVALID_ARG", message });
  });
}
