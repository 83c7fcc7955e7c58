import { Code, ConnectError } from "@connectrpc/connect";

const UNIT_MS: Readonly<Record<string, number>> = {
  H: 3_600_000,
  M: 60_000,
  S: 1_000,
  m: 1,
  u: 1e-3,
  n: 1e-6,
};

/**
 * Parses a `grpc-timeout` value: one to eight digits and a unit.
 * @returns Milliseconds, with fraction.
 * @throws ConnectError INTERNAL for anything else.
 */
export function parseGrpcTimeout(text: string): number {
  const unit = UNIT_MS[text.at(-1) ?? ""];
  const digits = text.slice(0, -1);
  if (unit === undefined || !/^\d{1,8}$/.test(digits)) {
    throw new ConnectError(`Malformed grpc-timeout '${text.slice(0, 32)}'`, Code.Internal);
  }
  return Number(digits) * unit;
}
