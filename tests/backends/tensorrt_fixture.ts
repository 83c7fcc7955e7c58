import { identityPlan } from "../native/tensorrt/plan.ts";
import {
  buildStandIns,
  countStandIns,
  type StandInCounts,
  whyNoStandIns,
} from "../native/tensorrt/stand_ins.ts";
import { type OpenedModel, openInstance, type OpenOptions } from "./fixture.ts";

/** Why these tests cannot run here; undefined when they can. */
export const reasonToSkip: string | undefined = whyNoStandIns();

const standIns = reasonToSkip === undefined ? await buildStandIns() : undefined;

/** Like {@linkcode OpenOptions}, with `1/model.plan`, by default an identity. */
export interface TrtOptions extends OpenOptions {
  readonly major?: number;
  readonly plan?: Uint8Array;
}

/** Path of a libnvinfer that lacks a symbol. */
export function incompleteLibrary(): string {
  return standIns!.incomplete;
}

/** Opens a plan on the stand-ins. */
export async function openPlan(
  { major = 10, plan = identityPlan(major), ...options }: TrtOptions = {},
): Promise<OpenedModel> {
  return await openInstance("tensorrt", {
    files: { "model.plan": plan },
    placement: { kind: "KIND_GPU", deviceId: 0 },
    ...options,
    settings: {
      library: standIns!.tensorRt(major),
      "cuda-library": standIns!.cuda,
      "self-check": "false",
      ...options.settings,
    },
  });
}

/** Objects of the stand-ins that live, and wrong calls so far. */
export function count(major = 10): StandInCounts {
  return countStandIns(standIns!, major);
}

/** A test that needs the stand-ins. */
export function test(name: string, fn: () => Promise<void>): void {
  Deno.test({ name: `tensorrt: ${name}`, ignore: reasonToSkip !== undefined, fn });
}

/** Runs with settings of the stand-ins. */
export async function withEnv(
  env: Readonly<Record<string, string>>,
  run: () => Promise<void>,
): Promise<void> {
  for (const [name, value] of Object.entries(env)) Deno.env.set(name, value);
  try {
    await run();
  } finally {
    for (const name of Object.keys(env)) Deno.env.delete(name);
  }
}

/** 0, 1, 2, … */
export function ramp(length: number): number[] {
  return Array.from({ length }, (_, index) => index);
}
