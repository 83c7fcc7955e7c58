/** How a run is done; undefined = as the process has it. */
export interface TorchRunSwitches {
  readonly inferenceMode: boolean;
  readonly optimizedExecution: boolean;
  readonly cudnn: boolean;
  readonly cacheCleaning: boolean;
  readonly jitExecutor: boolean | undefined;
  readonly jitProfiling: boolean | undefined;
  readonly tensorFuser: boolean | undefined;
}

/** The bits of `Flag` in shim.cc. */
export function switchBits(switches: TorchRunSwitches): number {
  const pair = (flag: boolean | undefined, bit: number) =>
    flag === undefined ? 0 : bit | (flag ? bit * 2 : 0);
  return (switches.inferenceMode ? 1 : 0) |
    (switches.optimizedExecution ? 0 : 2) |
    (switches.cudnn ? 0 : 8) |
    (switches.cacheCleaning ? 16 : 0) |
    pair(switches.jitExecutor, 32) |
    pair(switches.jitProfiling, 128) |
    pair(switches.tensorFuser, 512);
}

/** The bit that tells that all inputs go into one dictionary. */
export const INPUTS_ARE_DICT = 4;
