import type { ModelHost } from "./model_host.ts";

/** A host for backends under test: every call is a mistake unless the test gives its own. */
export function fakeHost(calls: Partial<ModelHost> = {}): ModelHost {
  const refuse = (): never => {
    throw new TypeError("The test did not expect this call of the host");
  };
  return {
    infer: refuse,
    isModelReady: refuse,
    loadModel: refuse,
    unloadModel: refuse,
    openMetricFamily: refuse,
    ...calls,
  };
}
