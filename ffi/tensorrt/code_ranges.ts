/** Addresses of code: from `start` up to, not including, `end`. */
export interface CodeRange {
  readonly start: bigint;
  readonly end: bigint;
}

/** The executable mappings of the library that has `address` in its code; empty where the system does not tell. */
export function codeRanges(address: bigint): CodeRange[] {
  return parseCodeRanges(readMaps(), address);
}

/** {@linkcode codeRanges} from the text of `/proc/self/maps`. */
export function parseCodeRanges(maps: string, address: bigint): CodeRange[] {
  const ranges = maps.split("\n").flatMap((line) => {
    const match = /^([0-9a-f]+)-([0-9a-f]+) ..x. \S+ \S+ \S+ +(\S.*)$/.exec(line);
    if (match === null) return [];
    return [{ start: BigInt(`0x${match[1]}`), end: BigInt(`0x${match[2]}`), path: match[3]! }];
  });
  const own = ranges.find((range) => contains(range, address));
  return ranges.filter(({ path }) => path === own?.path).map(({ start, end }) => ({ start, end }));
}

/** Whether an address lies in one of the ranges. */
export function isCode(ranges: readonly CodeRange[], address: bigint): boolean {
  return ranges.some((range) => contains(range, address));
}

function contains({ start, end }: CodeRange, address: bigint): boolean {
  return address >= start && address < end;
}

function readMaps(): string {
  try {
    return Deno.readTextFileSync("/proc/self/maps");
  } catch {
    return "";
  }
}
