import { deepEqual, rejects, throws } from "node:assert/strict";
import type { AgentAction, AgentOutcome, RepositoryAgent } from "./repository_agent.ts";
import { ModelHold } from "./model_hold.ts";

/** A hold over two agents and a folder, and what happens to them. */
function createHold(outcome: (action: AgentAction) => Promise<AgentOutcome>) {
  const events: string[] = [];
  const warnings: string[] = [];
  const note = (message: string) => void warnings.push(message);
  const run = (name: string) => {
    const agent: RepositoryAgent = {
      call: ({ action }) => {
        events.push(`${name} ${action}`);
        return outcome(action);
      },
    };
    const createDirectory = () => Promise.resolve("/new");
    const call = { model: "m", parameters: {}, directory: "/m", root: "/m", createDirectory };
    return { name, agent, call };
  };
  const remove = () => {
    events.push("removed");
    return Promise.resolve();
  };
  const hold = new ModelHold({
    model: "m",
    runs: [run("a"), run("b")],
    folders: [{ path: "/t", remove }],
    log: { info: note, warning: note, error: note, verbose: () => {} },
  });
  return { hold, events, warnings };
}

const FINE = () => Promise.resolve({ faults: [] });

Deno.test("ModelHold tells the agents in their order what becomes of a model that was loaded", async () => {
  const { hold, events } = createHold(FINE);
  hold.retainLoaded();
  await hold.settle();
  deepEqual(events.splice(0), ["b LOAD_COMPLETE", "a LOAD_COMPLETE"]);
  await hold.releaseLoaded(() => {
    events.push("freed");
    return Promise.resolve();
  });
  deepEqual(events, [
    "a UNLOAD",
    "b UNLOAD",
    "freed",
    "b UNLOAD_COMPLETE",
    "a UNLOAD_COMPLETE",
    "removed",
  ]);
});

Deno.test("ModelHold removes the folder of a model that was not loaded", async () => {
  const { hold, events } = createHold(FINE);
  hold.retainLoaded();
  await hold.releaseLoaded();
  await hold.settle();
  deepEqual(events, ["b LOAD_FAIL", "a LOAD_FAIL", "removed"]);
  throws(() => hold.retain(), TypeError);
});

Deno.test("ModelHold keeps the folder until the last version is gone, in whatever order they end", async () => {
  const { hold, events } = createHold(FINE);
  hold.retainLoaded();
  hold.retainLoaded();
  hold.retain();
  await hold.settle();
  events.length = 0;
  await hold.releaseLoaded();
  await hold.release();
  deepEqual(events, []);
  await hold.releaseLoaded();
  deepEqual(events.at(-1), "removed");
});

Deno.test("ModelHold removes the folder though agents fail, or the version cannot be freed", async () => {
  const { hold, events, warnings } = createHold((action) =>
    action === "UNLOAD" ? Promise.reject(new Error("gone")) : Promise.resolve({
      faults: action === "LOAD_COMPLETE" ? [{ message: "no wish" }] : [],
    })
  );
  hold.retainLoaded();
  await hold.settle();
  await rejects(hold.releaseLoaded(() => Promise.reject(new Error("stuck"))), /stuck/);
  deepEqual(events.at(-1), "removed");
  deepEqual(warnings, [
    "repo agent 'b' failed at LOAD_COMPLETE of model 'm': no wish",
    "repo agent 'a' failed at LOAD_COMPLETE of model 'm': no wish",
    "repo agent 'a' failed at UNLOAD of model 'm': gone",
    "repo agent 'b' failed at UNLOAD of model 'm': gone",
  ]);
});
