import { equal, notEqual, rejects } from "node:assert/strict";
import { openCudaExecution } from "../../ffi/cuda/execution_library.ts";
import { MemoryBudget } from "../../ffi/cuda/memory_budget.ts";
import { PooledDevice } from "../../ffi/cuda/pooled_device.ts";
import { openTensorRt } from "../../ffi/tensorrt/library.ts";
import { buildStandIns, countStandIns, whyNoStandIns } from "../native/tensorrt/stand_ins.ts";

const reasonToSkip = whyNoStandIns() ?? "";

Deno.test({
  name:
    "PooledDevice bounds pinned memory, uses memory of the device again, and leaves nothing behind",
  ignore: reasonToSkip !== "",
  fn: async () => {
    const standIns = await buildStandIns();
    const { runner } = openTensorRt({ path: standIns.tensorRt(10) });
    const cuda = await openCudaExecution(runner, { path: standIns.cuda });
    const before = countStandIns(standIns, 10);
    const pinned = new MemoryBudget(10_000);
    const [first, second] = [0, 1].map((id) =>
      new PooledDevice(cuda, id, { pinned, deviceByteSize: 8192 })
    );
    const staging = await first!.allocatePinned(6000);
    await rejects(
      second!.allocatePinned(6000),
      /pool of pinned memory has 10000 bytes, 6000 of them in use \(--pinned-memory-pool-byte-size\)/,
    );
    await first!.destroy([staging]);
    equal(pinned.usedBytes, 0);
    await second!.destroy([await second!.allocatePinned(6000)]);
    equal(pinned.usedBytes, 0);

    const block = await first!.allocate(4096);
    await first!.destroy([block]);
    const again = await first!.allocate(3000);
    equal(again.address, block.address);
    const other = await first!.allocate(3000);
    notEqual(other.address, block.address);
    const large = await first!.allocate(10_000);
    await first!.destroy([again, other, large]);
    await first!.trim();
    await second!.trim();
    const after = countStandIns(standIns, 10);
    equal(after.cuda, before.cuda);
    equal(after.faults, before.faults);
    const none = new PooledDevice(cuda, 0, { pinned: new MemoryBudget(0), deviceByteSize: 0 });
    await rejects(none.allocatePinned(1), /has 0 bytes/);
    await none.destroy([await none.allocate(256)]);
    equal(countStandIns(standIns, 10).cuda, before.cuda);
  },
});
