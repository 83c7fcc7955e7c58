import type { Devices } from "../backend.ts";
import type { Frame } from "../process/frame.ts";
import type { FramePort } from "../process/stub_link.ts";
import { FRAME } from "./isolated_wire.ts";

/** CALL: answers what a process asks of the devices of this machine. Never rejects. */
export async function answerDeviceCall(
  devices: Devices | undefined,
  { id, json }: Frame,
  port: FramePort,
): Promise<void> {
  port.send(FRAME.reply, id, { v: await look(devices, json) ?? null });
}

async function look(devices: Devices | undefined, { m: what, gpu }: Frame["json"]) {
  switch (what) {
    case "gpus":
      return await devices?.gpus();
    case "webGpuAdapters":
      return await devices?.webGpuAdapters();
    case "gpuMemory":
      return await devices?.gpuMemory(Number(gpu));
    default:
      return undefined;
  }
}
