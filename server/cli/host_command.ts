import { hostInstance } from "../../backends/isolated/child_process.ts";
import { openBackendHere } from "../../backends/registry.ts";

/** Runs one instance of a model for the server that started this process; the one argument is the path of its socket. */
export async function hostCommand([socketPath = ""]: readonly string[]): Promise<number> {
  return await hostInstance(socketPath, openBackendHere);
}
