const FOLDER = new URL("./", import.meta.url).pathname;
const PROJECT = new URL("../../../", import.meta.url).pathname;
const SOURCES = ["cuda_stand_in.h", "cuda_stand_in.cc", "nvinfer_stand_in.cc"];

/** Major versions that have a stand-in. */
export const MAJORS: readonly number[] = [8, 9, 10, 11];

/** Libraries with the ABI of CUDA's runtime and of TensorRT. */
export interface StandIns {
  readonly folder: string;
  readonly cuda: string;
  readonly tensorRt: (major: number) => string;
  /** A libnvinfer that lacks a symbol. */
  readonly incomplete: string;
}

/** The reason why stand-ins cannot be built here; undefined when they can. */
export function whyNoStandIns(): string | undefined {
  if (Deno.build.os !== "linux") return "the stand-ins of TensorRT are for Linux";
  try {
    const { success } = new Deno.Command("g++", { args: ["--version"] }).outputSync();
    return success ? undefined : "g++ does not run";
  } catch {
    return "there is no g++ to build the stand-ins of TensorRT";
  }
}

/** Compiles the stand-ins, once for each state of their sources. */
export async function buildStandIns(): Promise<StandIns> {
  const texts = await Promise.all(SOURCES.map((name) => Deno.readFile(FOLDER + name)));
  const hash = await crypto.subtle.digest("SHA-256", await new Blob(texts).arrayBuffer());
  const folder = `${PROJECT}.cache/tensorrt_stand_ins/${new Uint8Array(hash).toHex().slice(0, 16)}`;
  const standIns = {
    folder,
    cuda: `${folder}/libcudart.so.12`,
    tensorRt: (major: number) => `${folder}/libnvinfer.so.${major}`,
    incomplete: `${folder}/incomplete/libnvinfer.so.10`,
  };
  if (await exists(`${folder}/complete`)) return standIns;
  // Into a folder of our own first: tests that run side by side must not see half a library.
  const work = await Deno.makeTempDir({ prefix: "nereid_stand_ins_" });
  try {
    await Deno.mkdir(`${work}/incomplete`);
    await compile(work, "libcudart.so.12", ["cuda_stand_in.cc"]);
    const link = [`-L${work}`, "-l:libcudart.so.12"];
    const origin = (rpath: string) => ["nvinfer_stand_in.cc", ...link, `-Wl,-rpath,${rpath}`];
    await Promise.all(
      MAJORS.map((major) =>
        compile(work, `libnvinfer.so.${major}`, [`-DMAJOR=${major}`, ...origin("$ORIGIN")])
      ),
    );
    const without = ["-DMAJOR=10", "-DWITHOUT_RUNTIME", ...origin("$ORIGIN/..")];
    await compile(work, "incomplete/libnvinfer.so.10", without);
    await Deno.writeTextFile(`${work}/complete`, "");
    await moveInto(work, folder);
  } finally {
    await Deno.remove(work, { recursive: true });
  }
  return standIns;
}

async function compile(work: string, name: string, args: readonly string[]): Promise<void> {
  const output = `${work}/${name}`;
  const flags = ["-std=c++17", "-O1", "-fPIC", "-shared", `-Wl,-soname,${name.split("/").pop()}`];
  const { success, stderr } = await new Deno.Command("g++", {
    args: [...flags, "-o", output, ...args],
    cwd: FOLDER,
    stderr: "piped",
  }).output();
  if (!success) throw new Error(`Cannot compile ${name}: ${new TextDecoder().decode(stderr)}`);
}

async function moveInto(work: string, folder: string): Promise<void> {
  await Deno.mkdir(`${folder}/incomplete`, { recursive: true });
  const names = [...MAJORS.map((major) => `libnvinfer.so.${major}`), "libcudart.so.12"];
  for (const name of [...names, "incomplete/libnvinfer.so.10", "complete"]) {
    const copy = `${folder}/${name}.${Deno.pid}`;
    await Deno.copyFile(`${work}/${name}`, copy);
    await Deno.rename(copy, `${folder}/${name}`);
  }
}

async function exists(path: string): Promise<boolean> {
  return await Deno.stat(path).then(() => true, () => false);
}

/** What a stand-in counts: objects that live in CUDA and TensorRT, and calls that were wrong. */
export interface StandInCounts {
  readonly cuda: number;
  readonly tensorRt: number;
  readonly faults: number;
}

/** Reads the counters of stand-ins that are open in this process. */
export function countStandIns(standIns: StandIns, major: number): StandInCounts {
  const cuda = Deno.dlopen(standIns.cuda, {
    stand_in_cuda_live: { parameters: [], result: "i32" },
    stand_in_faults: { parameters: [], result: "i32" },
  });
  const tensorRt = Deno.dlopen(standIns.tensorRt(major), {
    stand_in_trt_live: { parameters: [], result: "i32" },
  });
  const counts = {
    cuda: cuda.symbols.stand_in_cuda_live(),
    tensorRt: tensorRt.symbols.stand_in_trt_live(),
    faults: cuda.symbols.stand_in_faults(),
  };
  cuda.close();
  tensorRt.close();
  return counts;
}
