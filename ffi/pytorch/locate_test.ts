import assert from "node:assert/strict";
import { join } from "node:path";
import { hasCudaLibrary, locateTorch } from "./locate.ts";

/** An unpacked package with these files; its folder. */
async function withPackage(files: readonly string[], run: (folder: string) => void): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "nereid_torch_" });
  try {
    for (const file of files) {
      await Deno.mkdir(join(folder, file, ".."), { recursive: true });
      await Deno.writeTextFile(join(folder, file), `// ${file}`);
    }
    run(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

function isThere(path: string): boolean {
  try {
    return Deno.statSync(path).isFile;
  } catch {
    return false;
  }
}

const LIBRARY = "torch/lib/libtorch.so";
const HEADER = "torch/include/torch/script.h";
const VERSION = "torch/include/torch/headeronly/version.h";

Deno.test("locateTorch() takes the library, its folder, or the folder of the package", async () => {
  await withPackage([LIBRARY, HEADER, VERSION], (folder) => {
    for (const path of ["", "torch", "torch/lib", LIBRARY]) {
      const { libraries, headers, stamp } = locateTorch(join(folder, path));
      assert.equal(libraries, join(folder, "torch/lib"));
      assert.equal(headers, join(folder, "torch/include"));
      assert.equal(stamp, `${libraries}\n// ${VERSION}`);
      assert.equal(hasCudaLibrary({ libraries }), false);
    }
  });
});

Deno.test("locateTorch() finds headers where distributions unpack them", async () => {
  await withPackage(["usr/lib/cpu/libtorch.so", "usr/include/torch/script.h"], (folder) => {
    assert.equal(locateTorch(join(folder, "usr/lib/cpu")).headers, join(folder, "usr/include"));
  });
});

Deno.test("locateTorch() tells what was tried, and what brings it", () => {
  assert.throws(
    () => locateTorch("/nowhere"),
    /Cannot find libtorch; tried: --backend-config=pytorch,library: '\/nowhere': no libtorch\.so\. 'pip install torch' or 'apt-get install libtorch-dev' brings it; --backend-config=pytorch,library=PATH names it/,
  );
});

Deno.test({
  name: "locateTorch() tells that headers are missing",
  // Another libtorch of the system would be found there.
  ignore: isThere("/usr/include/torch/script.h"),
  async fn() {
    await withPackage([LIBRARY], (folder) => {
      assert.throws(
        () => locateTorch(folder),
        /torch\/lib': no headers \(torch\/script\.h\) beside it\. 'pip install torch'/,
      );
    });
  },
});

Deno.test("hasCudaLibrary() looks at the files", async () => {
  await withPackage([LIBRARY, "torch/lib/libtorch_cuda.so"], (folder) => {
    assert.equal(hasCudaLibrary({ libraries: join(folder, "torch/lib") }), true);
  });
});
