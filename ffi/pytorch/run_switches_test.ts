import assert from "node:assert/strict";
import { switchBits } from "./run_switches.ts";

const PLAIN = {
  ...{ inferenceMode: false, optimizedExecution: true, cudnn: true, cacheCleaning: false },
  ...{ jitExecutor: undefined, jitProfiling: undefined, tensorFuser: undefined },
};

Deno.test("switchBits() has a bit for each switch, and two for those that may stay as they are", () => {
  assert.equal(switchBits(PLAIN), 0);
  const bits = [
    switchBits({ ...PLAIN, inferenceMode: true }),
    switchBits({ ...PLAIN, optimizedExecution: false }),
    switchBits({ ...PLAIN, cudnn: false }),
    switchBits({ ...PLAIN, cacheCleaning: true }),
    switchBits({ ...PLAIN, jitExecutor: false }),
    switchBits({ ...PLAIN, jitExecutor: true }),
    switchBits({ ...PLAIN, jitProfiling: true }),
    switchBits({ ...PLAIN, tensorFuser: true }),
  ];
  assert.deepEqual(bits, [1, 2, 8, 16, 32, 96, 384, 1536]);
});
