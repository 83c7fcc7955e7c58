import { deepEqual, equal, throws } from "node:assert/strict";
import { readDeviceOptions, readGpuLimits } from "./device_flags.ts";
import { parseFlags } from "./flags.ts";

Deno.test("readDeviceOptions() has the defaults of Triton", () => {
  const options = readDeviceOptions(parseFlags([]));
  equal(options.minComputeCapability, 6);
  equal(options.pinnedPoolByteSize, 268_435_456);
  equal(options.cudaPoolByteSizes.size, 0);
});

Deno.test("readDeviceOptions() reads pools by GPU, the last word on each", () => {
  const options = readDeviceOptions(parseFlags([
    "--cuda-memory-pool-byte-size=0:1024",
    "--cuda-memory-pool-byte-size=1:0",
    "--cuda-memory-pool-byte-size=0:2048",
    "--min-supported-compute-capability=7.5",
    "--pinned-memory-pool-byte-size=0",
  ]));
  deepEqual([...options.cudaPoolByteSizes], [[0, 2048], [1, 0]]);
  equal(options.minComputeCapability, 7.5);
  equal(options.pinnedPoolByteSize, 0);
});

Deno.test("readGpuLimits() reads fractions of a GPU's memory", () => {
  const flags = parseFlags(["--model-load-gpu-limit=0:0.5", "--model-load-gpu-limit", "3:1"]);
  deepEqual([...readGpuLimits(flags)], [[0, 0.5], [3, 1]]);
});

Deno.test("flags about devices that make no sense are refused with what is expected", () => {
  const pool = (text: string) => () =>
    readDeviceOptions(parseFlags([`--cuda-memory-pool-byte-size=${text}`]));
  throws(pool("1024"), /option format is '<gpu>:<bytes>'\. Got 1024/);
  throws(
    pool("0:many"),
    /Bad option: "--cuda-memory-pool-byte-size"\.\nInvalid option value\. Got many/,
  );
  throws(pool("99999999999:1"), /Provided option value is out of bound/);
  const limit = (text: string) => () =>
    readGpuLimits(parseFlags([`--model-load-gpu-limit=${text}`]));
  throws(limit("0:1.5"), /Got 0:1\.5, expected a fraction from 0 to 1/);
  throws(limit("GPU0:0.5"), /option format is '<gpu>:<fraction>'/);
  throws(
    () => parseFlags(["--pinned-memory-pool-byte-size=-1"]),
    /--pinned-memory-pool-byte-size must not be negative/,
  );
});
