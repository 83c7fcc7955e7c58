import type { RateLimiter } from "./rate_limiter.ts";

/** How much of each resource there is, by device, in the words and the layout of the reference's log. */
export function formatResourceMap(limiter: Pick<RateLimiter, "resources">): string {
  const byDevice = new Map<string, string[]>();
  for (const { name, deviceId, capacity } of limiter.resources()) {
    const device = String(deviceId ?? "GLOBAL");
    const lines = byDevice.get(device) ?? [];
    lines.push(`\t\tResource: ${name}\t Count: ${capacity}\n`);
    byDevice.set(device, lines);
  }
  const parts = [...byDevice].map(([device, lines]) => `\tDevice: ${device}\n${lines.join("")}`);
  return `\nMax Resource Map===>\n${parts.join("")}`;
}
