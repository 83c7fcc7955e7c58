import assert from "node:assert/strict";
import { executeRequest } from "../../backends/execute_request_fixture.ts";
import type { ExecuteRequest, ExecuteResponse } from "../../backends/backend.ts";
import { DataType } from "../../proto/gen/model_config_pb.ts";
import { runBackendSuite } from "./backend_suite.ts";
import { type ConfigInit, floats, openInstance, outputsOf, tensor } from "./fixture.ts";

function open(source: string, config: ConfigInit, instanceCount = 1) {
  const files = { "model.ts": new TextEncoder().encode(source) };
  return openInstance("typescript", { config, instanceCount, files });
}

const CONFIG: ConfigInit = {
  maxBatchSize: 8,
  input: [{ name: "INPUT0", dataType: DataType.TYPE_FP32, dims: [4n] }],
  output: [{ name: "OUTPUT0", dataType: DataType.TYPE_FP32, dims: [4n] }],
};

const COPY = `
export default class Copy {
  execute(requests) {
    return requests.map(({ inputs }) => ({ outputs: { OUTPUT0: inputs.INPUT0 } }));
  }
}
`;

const FAILING = `
export default class Failing {
  execute(requests) {
    return requests.map(({ inputs }, index) =>
      index === 1 ? { error: new Error("second") } : { outputs: { OUTPUT0: inputs.INPUT0 } }
    );
  }
}
`;

runBackendSuite({
  name: "typescript",
  open: (config, instanceCount = 1) => open(COPY, config, instanceCount),
  async failing() {
    const opened = await open(FAILING, CONFIG);
    return { ...opened, failing: 1, [Symbol.asyncDispose]: () => opened[Symbol.asyncDispose]() };
  },
});

const ROW = tensor("INPUT0", "FP32", [1, 4], [1, 2, 3, 4]);

/** A request whose responses are kept, and a promise of its end. */
function streamed(more: Partial<ExecuteRequest> = {}) {
  const sent: (ExecuteResponse | undefined)[] = [];
  const over = Promise.withResolvers<void>();
  const request = executeRequest({
    inputs: [ROW],
    outputs: ["OUTPUT0"],
    send(response, isFinal) {
      sent.push(response);
      if (isFinal) over.resolve();
      return undefined;
    },
    ...more,
  });
  return { request, sent, over: over.promise };
}

Deno.test("typescript: a request that asks for another turn has no response", async () => {
  await using opened = await open(
    `export default class Turns {
      #turns = 0;
      execute([request]) {
        if (++this.#turns < 3) return [request.reschedule()];
        return [{ outputs: { OUTPUT0: request.inputs.INPUT0 } }];
      }
    }`,
    CONFIG,
  );
  for (let turn = 0; turn < 2; turn++) {
    const { outcomes } = await opened.instance.execute([opened.request([ROW])]);
    assert.deepEqual(outcomes, [{ streamed: true, reschedule: true }]);
  }
  const { outcomes } = await opened.instance.execute([opened.request([ROW])]);
  assert.deepEqual(floats(outputsOf(outcomes[0])[0]!), [1, 2, 3, 4]);
});

Deno.test("typescript: a stream stops when its request is cancelled", async () => {
  await using opened = await open(
    `export default class Endless {
      async *stream(request) {
        while (true) {
          yield { outputs: { OUTPUT0: request.inputs.INPUT0 } };
          await new Promise((resolve) => setTimeout(resolve, 1));
        }
      }
    }`,
    { ...CONFIG, modelTransactionPolicy: { decoupled: true } },
  );
  const controller = new AbortController();
  const { request, sent, over } = streamed({ signal: controller.signal });
  assert.deepEqual((await opened.instance.execute([request])).outcomes, [{ streamed: true }]);
  controller.abort();
  await over;
  assert.equal(sent.at(-1), undefined);
});

Deno.test("typescript: a stream goes no further than its receiver takes it", async () => {
  await using opened = await open(
    `let made = 0;
    export default class Counting {
      async *stream(request) {
        for (let index = 0; index < 200; index++) {
          made++;
          yield { outputs: { OUTPUT0: request.inputs.INPUT0 } };
        }
      }
      isReady() { throw new Error("made " + made); }
    }`,
    { ...CONFIG, modelTransactionPolicy: { decoupled: true } },
  );
  const gate = Promise.withResolvers<void>();
  const over = Promise.withResolvers<void>();
  let count = 0;
  const { request } = streamed({
    send(response, isFinal) {
      if (response !== undefined) count++;
      if (isFinal) over.resolve();
      return gate.promise;
    },
  });
  await opened.instance.execute([request]);
  const { reason } = await opened.instance.isReady!();
  assert.match(reason!, /made (1[0-9]|[0-9])\b/);
  gate.resolve();
  await over.promise;
  assert.equal(count, 200);
});

Deno.test("typescript: a model can import packages that are installed", async () => {
  await using opened = await open(
    `import { create } from "npm:@bufbuild/protobuf@2.17.0";
    export default class Packages {
      execute(requests) {
        const data = new Float32Array(4).fill(typeof create === "function" ? 1 : 0);
        return requests.map(() => ({ outputs: { OUTPUT0: { shape: [1, 4], data } } }));
      }
    }`,
    CONFIG,
  );
  const { outcomes } = await opened.instance.execute([opened.request([ROW])]);
  assert.deepEqual(floats(outputsOf(outcomes[0])[0]!), [1, 1, 1, 1]);
});

Deno.test("typescript: a model may answer with the same array again", async () => {
  await using opened = await open(
    `const data = new Float32Array([5, 6, 7, 8]);
    export default class Constant {
      execute(requests) {
        return requests.map(() => ({ outputs: { OUTPUT0: { shape: [1, 4], data } } }));
      }
    }`,
    CONFIG,
  );
  for (let run = 0; run < 3; run++) {
    const { outcomes } = await opened.instance.execute([opened.request([ROW])]);
    assert.deepEqual(floats(outputsOf(outcomes[0])[0]!), [5, 6, 7, 8]);
  }
});

Deno.test("typescript: with restart=never a Worker that ended stays down", async () => {
  const source = `export default class Exits { execute() { Deno.exit(1); } }`;
  await using opened = await openInstance("typescript", {
    config: CONFIG,
    files: { "model.ts": new TextEncoder().encode(source) },
    settings: { restart: "never" },
  });
  for (let run = 0; run < 2; run++) {
    const { outcomes } = await opened.instance.execute([opened.request([ROW])]);
    assert.throws(() => outputsOf(outcomes[0]), {
      code: "INTERNAL",
      message: /Worker 'm_0' is not healthy: it called Deno\.exit\(1\)/,
    });
  }
  assert.deepEqual(await opened.instance.isReady!(), {
    isReady: false,
    reason: "Worker 'm_0' is not healthy.",
  });
});
