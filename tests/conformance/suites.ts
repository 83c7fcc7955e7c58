import { ensurePython } from "../python.ts";
import { parseSuiteOutput, type SuiteResult } from "./case_result.ts";
import type { PendingLists } from "./pending.ts";
import { serverCommand, startServer } from "./server_process.ts";

const HERE = new URL(".", import.meta.url).pathname;

/** What a suite is run with. */
export interface SuiteContext {
  readonly pending: PendingLists;
  /** First of three ports. */
  readonly port: number;
  /** Glob of case names; "" = all. */
  readonly only: string;
  readonly print: (line: string) => void;
}

/** One recorded suite: how its README says that it is started, and what it said. */
export interface Suite {
  readonly name: string;
  run(context: SuiteContext): Promise<SuiteResult>;
}

/** All suites, in the order of a run. */
export const SUITES: readonly Suite[] = [
  httpSuite("http", "cases", { control: true }, ["--allow-client-shm=true"]),
  httpSuite("http-flags", "cases-flags", { control: true, python: true }, [
    "--id=golden",
    "--http-restricted-api=model-repository,logging:admin-key=swordfish",
    "--http-restricted-api=inference:infer-key=opensesame",
    "--http-header-forward-pattern=^(x-fwd-.*|sequence_id|triton_x)$",
    "--trace-config=mode=triton",
    "--trace-config=triton,file=/tmp/trace.json",
    "--trace-config=rate=100",
  ]),
  httpSuite("http-no-control", "cases-no-control", { control: false }, []),
  httpSuite("http-python", "cases-python", { control: true, python: true }, []),
  grpcSuite(),
  configSuite("config", "cases.json"),
  configSuite("config-python", "cases-python.json"),
  behaviourSuite(),
];

/** Words of the behaviour suite's README for what comes later: scenarios that need one of them are not run. */
const LATER_NEEDS: readonly string[] = [];

function httpSuite(
  name: string,
  cases: string,
  how: { control: boolean; python?: boolean },
  flags: readonly string[],
): Suite {
  return {
    name,
    run: (context) =>
      withRepository("http", how.python ? ["--python"] : [], async (directory, python, more) => {
        const listed = how.control ? await lines(python, "http", ["--flags", ...more]) : [];
        const mode = how.control ? ["--model-control-mode=explicit"] : [];
        const given = servedFlags(context.pending, [...mode, ...listed, ...flags]);
        await using server = await startServer(
          [`--model-repository=${directory}`, "--exit-on-error=false", ...given],
          context.port,
        );
        const args = ["--http", `localhost:${server.httpPort}`, "--cases", `${HERE}http/${cases}`];
        return await runSuite(python, "http", args, context);
      }),
  };
}

function grpcSuite(): Suite {
  return {
    name: "grpc",
    run: (context) =>
      withRepository("grpc", ["--python"], async (directory, python, more) => {
        const listed = await lines(python, "grpc", ["--print-flags", ...more]);
        const given = servedFlags(context.pending, [...listed, "--allow-client-shm=true"]);
        await using server = await startServer(
          [`--model-repository=${directory}`, "--exit-on-error=false", ...given],
          context.port,
        );
        return await runSuite(python, "grpc", ["--grpc", `localhost:${server.grpcPort}`], context);
      }),
  };
}

function configSuite(name: string, cases: string): Suite {
  return {
    name,
    run: async (context) => {
      const python = await ensurePython(context.print);
      const args = ["--server", serverCommand().join(" "), "--cases", `${HERE}config/${cases}`];
      return await runSuite(python, "config", [...args, "--port", `${context.port}`], context);
    },
  };
}

function behaviourSuite(): Suite {
  return {
    name: "behaviour",
    run: async (context) => {
      const python = await ensurePython(context.print);
      const without = LATER_NEEDS.map((word) => `--without=${word}`);
      const args = ["--server", serverCommand().join(" "), "--models=onnx", ...without];
      return await runSuite(python, "behaviour", [...args, "--port", `${context.port}`], context);
    },
  };
}

/** Leaves out the flags and models of later features. */
export function servedFlags(pending: PendingLists, flags: readonly string[]): string[] {
  return flags.filter((flag) => {
    const [name, value] = [flag.split("=")[0]!, flag.slice(flag.indexOf("=") + 1)];
    return pending.flags[name] === undefined &&
      !(name === "--load-model" && pending.models[value] !== undefined);
  });
}

async function withRepository(
  suite: "http" | "grpc",
  more: readonly string[],
  use: (directory: string, python: string, more: readonly string[]) => Promise<SuiteResult>,
): Promise<SuiteResult> {
  const python = await ensurePython(() => {});
  const directory = await Deno.makeTempDir({ prefix: "conformance-" });
  try {
    await lines(python, suite, [directory, ...more]);
    return await use(directory, python, more);
  } finally {
    await Deno.remove(directory, { recursive: true });
  }
}

async function lines(python: string, suite: string, args: readonly string[]): Promise<string[]> {
  const { code, stdout, stderr } = await new Deno.Command(python, {
    args: ["-B", `${HERE}${suite}/make_repository.py`, ...args],
    stdin: "null",
  }).output();
  const decoder = new TextDecoder();
  if (code !== 0) throw new Error(`Cannot make the repository: ${decoder.decode(stderr)}`);
  return decoder.decode(stdout).split("\n").filter((line) => line !== "");
}

async function runSuite(
  python: string,
  suite: string,
  args: readonly string[],
  context: SuiteContext,
): Promise<SuiteResult> {
  const only = context.only === "" ? [] : ["--only", context.only];
  // This suite names what passes anyway; more would be a line per check.
  const verbose = suite === "behaviour" ? [] : ["--verbose"];
  const { stdout, stderr } = await new Deno.Command(python, {
    args: ["-B", `${HERE}${suite}/run.py`, ...verbose, ...args, ...only],
    stdin: "null",
  }).output();
  const decoder = new TextDecoder();
  const output = decoder.decode(stdout);
  try {
    return parseSuiteOutput(output);
  } catch (reason) {
    const end = output.split("\n").slice(-20).join("\n") + decoder.decode(stderr);
    throw new Error(`Cannot read the result of ${suite}:\n${end}`, { cause: reason });
  }
}
