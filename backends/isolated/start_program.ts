import { makeSocketFolder } from "../process/socket_folder.ts";
import { StubProcess } from "../process/stub_process.ts";
import { childCommand } from "./child_command.ts";

/** Starts this program once more and waits until it is connected. @throws ServerError; nothing of it is left then. */
export async function startProgram(backend: string, timeoutMs: number): Promise<StubProcess> {
  const command = childCommand();
  const folder = await makeSocketFolder("nereid-isolated-");
  try {
    return await StubProcess.start({
      ...command,
      program: { name: "the program of the server", advice: "leave isolation=process out" },
      socketPath: `${folder}/host.sock`,
      environment: Deno.env.toObject(),
      instanceName: backend,
      connectTimeoutMs: timeoutMs,
      letters: ["A"],
    });
  } finally {
    // The process itself removes it, too, as soon as it can.
    await Deno.remove(folder, { recursive: true }).catch(() => {});
  }
}
