import assert from "node:assert/strict";
import type { InstancePlacement, ModelInstance } from "../../backends/backend.ts";
import { ServerError } from "../../proto/status.ts";
import { createFakeConfig } from "./engine_fixture.ts";
import { FakeClock } from "./fake_clock.ts";
import { planInstances } from "./instance_plan.ts";
import { InstanceSet } from "./instance_set.ts";

const LOG = { info() {}, warning() {}, error() {}, verbose() {} };

/** Instances that take 100 ms each to be created; those of `faulty` names fail at the end of it. */
class SlowInstances {
  readonly clock = new FakeClock();
  readonly open = new Set<string>();
  mostAtOnce = 0;
  readonly #faulty: readonly string[];
  #creating = 0;

  constructor(...faulty: string[]) {
    this.#faulty = faulty;
  }

  readonly create = async (placement: InstancePlacement): Promise<ModelInstance> => {
    this.mostAtOnce = Math.max(this.mostAtOnce, ++this.#creating);
    await new Promise<void>((resolve) => void this.clock.setTimer(100, resolve));
    this.#creating--;
    const { name } = placement;
    if (this.#faulty.includes(name)) throw new ServerError("INTERNAL", `no ${name}`);
    this.open.add(name);
    return {
      placement,
      execute: () => Promise.reject(new TypeError("Nothing is executed here")),
      [Symbol.asyncDispose]: () => {
        this.open.delete(name);
        return Promise.resolve();
      },
    };
  };
}

function plans(count: number) {
  return planInstances(createFakeConfig("m", { instanceGroup: [{ name: "m", count }] }));
}

Deno.test("InstanceSet.fill() creates a few instances at a time, in the order of their names", async () => {
  const slow = new SlowInstances();
  await using set = new InstanceSet({ create: slow.create, clock: slow.clock, log: LOG });
  const filled = set.fill(plans(10));
  await slow.clock.advance(300);
  await filled;
  assert.equal(slow.mostAtOnce, 4);
  const names = set.instances.map(({ placement }) => placement.name);
  assert.deepEqual(names, Array.from({ length: 10 }, (_, index) => `m_${index}`));
});

Deno.test("InstanceSet.fill() throws the first error when nothing is being created any more", async () => {
  const slow = new SlowInstances("m_1", "m_2");
  const set = new InstanceSet({ create: slow.create, clock: slow.clock, log: LOG });
  const filled = assert.rejects(set.fill(plans(10)), { message: "no m_1" });
  await slow.clock.advance(1000);
  await filled;
  // m_4 had begun before the error was known; nothing begins after that.
  assert.deepEqual([...slow.open], ["m_0", "m_3", "m_4"]);
  await set[Symbol.asyncDispose]();
  assert.deepEqual([...slow.open], []);
});
