import { runBackendSuite } from "./backend_suite.ts";
import { openInstance } from "./fixture.ts";

const COPY = `
export default class Copy {
  execute(requests) {
    return requests.map(({ inputs }) => {
      const { shape, data } = inputs.INPUT0;
      if (data[0] === 9 && data[1] === 9) return { error: Object.assign(new Error("nines"), { code: "INVALID_ARG" }) };
      return { outputs: { OUTPUT0: { shape, data } } };
    });
  }
}
`;

function files(source: string) {
  return { "model.ts": new TextEncoder().encode(source) };
}

runBackendSuite({
  name: "typescript",
  open: (config, instanceCount = 1) =>
    openInstance("typescript", { config, instanceCount, files: files(COPY) }),
});
