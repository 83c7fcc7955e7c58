import assert from "node:assert/strict";
import { dirname } from "node:path";
import { locateOrtLibrary } from "./locate.ts";

const VARIABLES = ["NEREID_ONNXRUNTIME_LIBRARY", "ORT_DYLIB_PATH"];

/** Runs a test with these environment variables and restores the others. */
function withEnvironment(values: readonly (string | undefined)[], test: () => void): void {
  const before = VARIABLES.map((name) => Deno.env.get(name));
  const set = (name: string, value: string | undefined) =>
    value === undefined ? Deno.env.delete(name) : Deno.env.set(name, value);
  VARIABLES.forEach((name, index) => set(name, values[index]));
  try {
    test();
  } finally {
    VARIABLES.forEach((name, index) => set(name, before[index]));
  }
}

Deno.test("locateOrtLibrary() looks nowhere else when a path is configured", () => {
  withEnvironment(["/from/environment.so", undefined], () => {
    const { candidates, attempts } = locateOrtLibrary("/configured.so");
    assert.deepEqual(candidates.map(({ path }) => path), ["/configured.so"]);
    assert.deepEqual(attempts, []);
  });
});

Deno.test("locateOrtLibrary() tries environment, executable, npm package and system in order", () => {
  withEnvironment(["/first.so", "/second.so"], () => {
    const { candidates, attempts } = locateOrtLibrary(undefined);
    const origins = candidates.map(({ origin }) => origin);
    assert.deepEqual(candidates.slice(0, 2).map(({ path }) => path), ["/first.so", "/second.so"]);
    const places = [...new Set(origins.slice(2))];
    assert.equal(places.at(-1), "system library");
    assert.ok(places.length < 2 || places.at(-2) === "npm package onnxruntime-node");
    const missed = attempts.find(({ origin }) => origin === "beside the executable");
    assert.equal(missed?.path, dirname(Deno.execPath()));
  });
});

Deno.test("locateOrtLibrary() tells which places offer nothing", () => {
  withEnvironment([undefined, ""], () => {
    const { attempts } = locateOrtLibrary("");
    assert.deepEqual(
      attempts.slice(0, 2).map(({ origin, reason }) => [origin, reason]),
      VARIABLES.map((name) => [`environment variable ${name}`, "not set"]),
    );
  });
});
