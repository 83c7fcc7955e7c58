import { join } from "node:path";

/** Where the Vulkan loader looks for drivers on Linux, below each of the folders for data and settings. */
const DRIVER_FOLDER = "vulkan/icd.d";

/**
 * Why no Vulkan driver is there, by the files that tell of them; undefined when there is one, or when this system has
 * other ways to its GPUs. Spares a process that would look in vain.
 */
export function missingVulkanDriver(): string | undefined {
  if (Deno.build.os !== "linux") return undefined;
  const named = readVariable("VK_DRIVER_FILES") ?? readVariable("VK_ICD_FILENAMES") ??
    readVariable("VK_ADD_DRIVER_FILES");
  if (named !== undefined) return undefined;
  const folders = driverFolders();
  if (folders.some(holdsDriver)) return undefined;
  return `no Vulkan driver: none is described in ${folders.slice(0, 3).join(", ")}`;
}

function driverFolders(): string[] {
  const home = readVariable("HOME") ?? "";
  const data = readVariable("XDG_DATA_DIRS") ?? "/usr/local/share:/usr/share";
  const own = readVariable("XDG_DATA_HOME") ?? join(home, ".local/share");
  const settings = readVariable("XDG_CONFIG_DIRS") ?? "/etc/xdg";
  const roots = [...data.split(":"), ...settings.split(":"), "/etc", own];
  return roots.filter((root) => root.startsWith("/")).map((root) => join(root, DRIVER_FOLDER));
}

function holdsDriver(folder: string): boolean {
  try {
    return [...Deno.readDirSync(folder)].some(({ name }) => name.endsWith(".json"));
  } catch {
    return false;
  }
}

function readVariable(name: string): string | undefined {
  try {
    return Deno.env.get(name) || undefined;
  } catch {
    return undefined;
  }
}
