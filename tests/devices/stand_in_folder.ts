import { join } from "node:path";
import { buildStandIns as buildTensorRt } from "../native/tensorrt/stand_ins.ts";
import { buildStandIns } from "./stand_in_libraries.ts";

/** Puts the stand-ins for NVML, the driver, CUDA's runtime and TensorRT 10 into a folder for the system's loader. */
export async function prepareStandIns(folder: string): Promise<string> {
  await Deno.mkdir(folder, { recursive: true });
  await using driver = await buildStandIns();
  const tensorRt = await buildTensorRt();
  const files = [driver.nvml, driver.cudaDriver, tensorRt.cuda, tensorRt.tensorRt(10)];
  for (const file of files) await Deno.copyFile(file, join(folder, file.split("/").at(-1)!));
  return folder;
}
