import type { BackendSettings } from "../../backends/backend.ts";
import { BACKEND_NAMES } from "../../backends/registry.ts";

/**
 * The settings that hold for one backend: those of all backends, overridden by its own. A backend that is not built in
 * is one in Python, and has those of `python` as well (python-backend.md §A1).
 */
export function settingsOf(
  config: ReadonlyMap<string, ReadonlyMap<string, string>>,
  backend: string,
): BackendSettings {
  const names = BACKEND_NAMES.includes(backend) ? ["", backend] : ["", "python", backend];
  return new Map(names.flatMap((name) => [...config.get(name) ?? []]));
}
