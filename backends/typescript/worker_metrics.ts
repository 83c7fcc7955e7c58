import type { ModelMetric, ModelMetricFamily, ModelMetrics } from "./model_api.ts";
import { codedError } from "./worker_errors.ts";
import type { WorkerPort } from "./worker_port.ts";

type Kind = "counter" | "gauge" | "histogram";

const OPERATIONS: Readonly<Record<Kind, readonly string[]>> = {
  counter: ["increment", "value"],
  gauge: ["increment", "set", "value"],
  histogram: ["observe"],
};

/** The metrics of a model: the server keeps them, a Worker names them by number. */
export function createModelMetrics(port: WorkerPort): ModelMetrics {
  const open = async (metricKind: Kind, name: string, description: string) => {
    const question = { what: "openFamily", metricKind, name, description } as const;
    return createFamily(port, metricKind, await port.ask(question) as number);
  };
  return {
    counter: (name, description) => open("counter", name, description),
    gauge: (name, description) => open("gauge", name, description),
    histogram: (name, description) => open("histogram", name, description),
  };
}

function createFamily(port: WorkerPort, kind: Kind, family: number): ModelMetricFamily {
  return {
    async metric(labels = {}, { buckets } = {}) {
      const question = { what: "openMetric", family, labels, buckets } as const;
      return createMetric(port, kind, await port.ask(question) as number);
    },
    [Symbol.dispose]: () => port.post({ kind: "dispose", what: "family", id: family }),
  };
}

function createMetric(port: WorkerPort, kind: Kind, metric: number): ModelMetric {
  const check = (operation: string, value: unknown = 0): void => {
    if (!OPERATIONS[kind].includes(operation)) {
      throw codedError("UNSUPPORTED", `a ${kind} has no ${operation}()`);
    }
    if (typeof value !== "number" || Number.isNaN(value)) {
      throw codedError("INVALID_ARG", `${operation}() needs a number, got ${Deno.inspect(value)}`);
    }
    if (kind === "counter" && value < 0) {
      throw codedError("INVALID_ARG", `a counter cannot be incremented by ${value}`);
    }
  };
  const change = (operation: "increment" | "set" | "observe") => (value: number) => {
    check(operation, value);
    port.post({ kind: "metric", metric, operation, value });
  };
  return {
    increment: change("increment"),
    set: change("set"),
    observe: change("observe"),
    async value() {
      check("value");
      return await port.ask({ what: "metricValue", metric }) as number;
    },
    [Symbol.dispose]: () => port.post({ kind: "dispose", what: "metric", id: metric }),
  };
}
