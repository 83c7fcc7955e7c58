/** The oldest Deno that this server runs on; older ones lack fixes in FFI and TCP. */
export const MINIMUM_DENO = "2.9.5";

/** Why `version` is too old, or undefined. */
export function denoVersionFault(version: string): string | undefined {
  if (compareVersions(version, MINIMUM_DENO) >= 0) return undefined;
  return `Nereid needs Deno ${MINIMUM_DENO} or newer, this is Deno ${version}. ` +
    `With Node.js and npm at hand, "npx -y deno@2.9.6 …" runs the right one without installing it.`;
}

function compareVersions(left: string, right: string): number {
  const of = (text: string): number[] =>
    text.split(/[-+]/)[0]!.split(".").map((part) => Number.parseInt(part, 10) || 0);
  const [a, b] = [of(left), of(right)];
  for (let index = 0; index < 3; index++) {
    const difference = (a[index] ?? 0) - (b[index] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}
