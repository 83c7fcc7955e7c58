import type { BackendSettings } from "../../backends/backend.ts";

/** The settings that hold for one backend: those of all backends, overridden by its own. */
export function settingsOf(
  config: ReadonlyMap<string, ReadonlyMap<string, string>>,
  backend: string,
): BackendSettings {
  return new Map([...config.get("") ?? [], ...config.get(backend) ?? []]);
}
