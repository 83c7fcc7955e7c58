import assert from "node:assert/strict";
import { loadMachineCode } from "../machine_code.ts";
import { addressOf, cString, pointerAt } from "../memory.ts";
import { NativeLogger } from "./logger.ts";

const LOG = { parameters: ["usize", "i32", "buffer"], result: "void", nonblocking: true } as const;
const ignore = Deno.build.os !== "linux" || !["x86_64", "aarch64"].includes(Deno.build.arch);

/** Calls the method `log` of an `ILogger` as TensorRT does, on another thread. */
async function log(logger: NativeLogger, slot: number, severity: number, text: string) {
  const cell = (address: bigint) => new Deno.UnsafePointerView(pointerAt(address)!).getBigUint64(0);
  const method = cell(cell(logger.address) + BigInt(8 * slot));
  const call = new Deno.UnsafeFnPointer(pointerAt(method) as Deno.PointerObject<never>, LOG);
  await call.call(logger.address, severity, cString(text));
}

for (const versionsLogger of [false, true]) {
  Deno.test({
    name: `NativeLogger shows lines to each reader, versioned: ${versionsLogger}`,
    ignore,
    async fn() {
      const logger = new NativeLogger(loadMachineCode(), { versionsLogger });
      const slot = versionsLogger ? 4 : 0;
      assert.notEqual(addressOf(new Uint8Array(1)), logger.address);
      await log(logger, slot, 3, "before");
      const mark = logger.mark();
      await log(logger, slot, 1, "100 % broken\nin two lines");
      const lines = [{ severity: "error", text: "100 % broken\nin two lines" }];
      assert.deepEqual(logger.since(mark), lines);
      assert.deepEqual(logger.since(mark), lines);
      assert.deepEqual(logger.since(0).map(({ severity }) => severity), ["info", "error"]);
      for (let number = 0; number < 300; number++) await log(logger, slot, 2, `line ${number}`);
      assert.equal(logger.since(0).length, 200);
      assert.equal(logger.since(logger.position - 1)[0]?.text, "line 299");
      assert.deepEqual(logger.since(logger.position), []);
    },
  });
}
