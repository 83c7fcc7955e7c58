import { PYTHON } from "./python.ts";

/** One program that runs tests and says how many passed. */
export interface Runner {
  readonly name: string;
  readonly what: string;
  readonly command: readonly string[];
  readonly limitMinutes: number;
  /** Needs the virtual environment. */
  readonly python?: boolean;
  /** Runs at the same time as the others. */
  readonly isBeside?: boolean;
}

const DENO = Deno.execPath();

/** Every runner, quick ones first. */
export const RUNNERS: readonly Runner[] = [
  {
    name: "static",
    what: "formatting, lint with the house rules, types, documentation",
    command: [DENO, "run", "-A", "tests/static_checks.ts"],
    limitMinutes: 5,
  },
  {
    name: "unit",
    what: "tests beside the sources",
    command: [
      DENO,
      "test",
      "-A",
      "--parallel",
      "--trace-leaks",
      "--doc",
      "proto",
      "ffi",
      "backends",
      "server",
    ]
      .concat("mod.ts", "tests/lint", "tests/conformance", "scripts", "examples"),
    limitMinutes: 15,
  },
  {
    name: "parts",
    what: "tests of more than one layer: native code, backends, transport, gRPC, HTTP",
    command: [
      DENO,
      "test",
      "-A",
      "tests/native",
      "tests/devices",
      "tests/backends",
      "tests/transport",
      "tests/grpc",
      "tests/http",
      "tests/agents",
    ],
    limitMinutes: 20,
    python: true,
  },
  {
    name: "cli",
    what: "the program: flags, start, signals",
    command: [DENO, "test", "-A", "tests/cli"],
    limitMinutes: 10,
  },
  {
    name: "python",
    what: "tritonclient, scenarios, real models, ONNX node tests",
    command: [PYTHON, "-B", "-m", "pytest", "-q", "-c", "tests/pytest.ini", "tests"],
    limitMinutes: 40,
    python: true,
  },
  {
    name: "conformance",
    what: "recorded answers of the reference server",
    command: [DENO, "run", "-A", "tests/conformance/run.ts", "--details"],
    limitMinutes: 30,
    python: true,
    isBeside: true,
  },
];

/** Reads the last count of a runner's output: `N passed, N failed`, or that of `deno test`. */
export function parseCount(
  output: string,
): { readonly passed: number; readonly failed: number } | undefined {
  const matches = [...output.matchAll(/(\d+) passed(?: \(\d+ steps?\))?(?:,| \|) (\d+) failed/g)];
  const last = matches.at(-1);
  if (last === undefined) return undefined;
  return { passed: Number(last[1]), failed: Number(last[2]) };
}
