import { type BrokenCase, IO } from "./broken_case.ts";

const PART = { "config.pbtxt": `backend: "identity"\n${IO}`, "1/keep": "" };

function steps(model: string, input = "X", output = "Y"): string {
  return `ensemble_scheduling {
  step {
    model_name: "${model}"
    model_version: -1
    input_map { key: "${input}" value: "X" }
    output_map { key: "${output}" value: "Y" }
  }
}
`;
}

/** Ensembles that are wrong in themselves or do not fit their models. */
export const ENSEMBLE_CASES: readonly BrokenCase[] = [
  {
    name: "ensemble_without_platform",
    config: `${IO}${steps("part_a")}`,
    others: { part_a: PART },
    says: `platform: "ensemble"`,
    at: "1:1",
    mended: true,
  },
  {
    name: "ensemble_with_group",
    config: `platform: "ensemble"\n${IO}${steps("part_b")}instance_group { count: 1 }\n`,
    others: { part_b: PART },
    says: "instance group should not be specified",
    at: "12:1",
    mended: true,
  },
  {
    name: "ensemble_with_optimization",
    config: `platform: "ensemble"\noptimization { eager_batching: true }\n${IO}${steps("part_c")}`,
    others: { part_c: PART },
    says: "optimization should not be specified",
    at: "2:1",
    mended: true,
  },
  {
    name: "ensemble_with_backend",
    config: `platform: "ensemble"\nbackend: "identity"\n${IO}${steps("part_d")}`,
    others: { part_d: PART },
    says: "empty backend type",
    at: "2:10",
    mended: true,
  },
  {
    name: "ensemble_of_nothing",
    config: `platform: "ensemble"\n${IO}${steps("part_z")}`,
    others: { part_e: PART },
    says: "not available or ambiguous: part_z",
    at: "5:8",
    mended: false,
  },
  {
    name: "ensemble_with_wrong_input",
    config: `platform: "ensemble"\n${IO}${steps("part_f", "XX")}`,
    others: { part_f: PART },
    says: "non-existing input XX in model part_f",
    at: "8:5",
    mended: false,
  },
];
