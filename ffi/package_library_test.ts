import assert from "node:assert/strict";
import { locatePackageLibrary, type PackageLibrary } from "./package_library.ts";

const VARIABLE = "NEREID_EXAMPLE_LIBRARY";

const LIBRARY: PackageLibrary = {
  backend: "example",
  variable: VARIABLE,
  packageName: "nereid-example",
  install: "pip install nereid-example",
  packageFolder: "nereid_example/libs",
  otherFolders: ["lib"],
  systemNames: ["libexample.so"],
  filesIn: (folder) =>
    ["/a/nereid_example/libs", "/b/lib"].includes(folder) ? [`${folder}/x.so`] : [],
};

const pathsOf = (configured?: string) =>
  locatePackageLibrary(LIBRARY, configured).candidates.map(({ path }) => path);

Deno.test("a configured path is the only one, a folder stands for the library in it", () => {
  assert.deepEqual(pathsOf("/c/libmine.so"), ["/c/libmine.so"]);
  assert.deepEqual(pathsOf("/a"), ["/a/nereid_example/libs/x.so"]);
  assert.deepEqual(pathsOf("/b"), ["/b/lib/x.so"]);
});

Deno.test("the environment goes before the system, and what is not there is told", () => {
  const { candidates, attempts } = locatePackageLibrary(LIBRARY, undefined);
  assert.deepEqual(candidates, [{ origin: "system library", path: "libexample.so" }]);
  assert.deepEqual(attempts.map(({ reason }) => reason), [
    "not set",
    "not installed; 'pip install nereid-example' does it",
  ]);
  Deno.env.set(VARIABLE, "/a");
  try {
    assert.deepEqual(pathsOf(), ["/a/nereid_example/libs/x.so", "libexample.so"]);
  } finally {
    Deno.env.delete(VARIABLE);
  }
});
