import { ServerError } from "../../proto/status.ts";
import type { ModelSource } from "../backend.ts";

const CPU_ONLY_KEY = "FORCE_CPU_ONLY_INPUT_TENSORS";

/** @throws ServerError UNSUPPORTED for a value that a parameter cannot have (python-backend.md §A7). */
export function checkModelParameters({ config }: ModelSource): void {
  // Inputs always come in the memory of the CPU, whatever it says.
  const value = config.parameters[CPU_ONLY_KEY]?.stringValue;
  if (value === undefined || value === "yes" || value === "no") return;
  throw new ServerError(
    "UNSUPPORTED",
    `Incorrect value for ${CPU_ONLY_KEY}: ${value}. It must be 'yes' or 'no'`,
  );
}
