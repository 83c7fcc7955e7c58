import assert from "node:assert/strict";
import { denoVersionFault } from "./deno_version.ts";
import { DEFAULT_SERVER_OPTIONS } from "../core/options.ts";
import {
  adviceOnModels,
  formatNoModels,
  formatStartReport,
  formatTable,
  formatUrl,
} from "./start_report.ts";

Deno.test("formatStartReport() aligns columns and continues long reasons", () => {
  const report = formatStartReport([{ name: "HTTP", place: "http://localhost:8000" }], [
    { name: "m", version: "1", state: "READY", remark: "12 ms" },
    { name: "longer", version: "", state: "UNAVAILABLE", remark: "first\nsecond" },
  ]);
  assert.equal(
    report,
    `
  Model   Version  State
  ------  -------  -----------
  m       1        READY        12 ms
  longer           UNAVAILABLE  first
                                second

  HTTP     http://localhost:8000
`,
  );
});

Deno.test("formatTable() draws a line under each title", () => {
  assert.equal(
    formatTable(["Option", "Value"], [["a", "b"]]),
    "  Option  Value\n  ------  -----\n  a       b",
  );
});

Deno.test("formatNoModels() says where a model has to lie", () => {
  const options = { ...DEFAULT_SERVER_OPTIONS, modelRepositories: ["/m"] };
  assert.match(formatNoModels(options), /no model directory in \/m\n.*\/m\/NAME\/1\/model\.onnx$/);
  assert.match(formatNoModels({ ...options, modelControlMode: "explicit" }), /--load-model/);
});

Deno.test("adviceOnModels() speaks when some models could be served", () => {
  const row = { name: "m", version: 1, reason: "", loadMs: 1 };
  const adviceOn = (...states: ("READY" | "UNAVAILABLE")[]) =>
    adviceOnModels({
      ok: false,
      error: undefined,
      models: states.map((state) => ({ ...row, state })),
    });
  assert.match(adviceOn("READY", "UNAVAILABLE"), /^1 of 2 .*--exit-on-error=false/);
  assert.equal(adviceOn("UNAVAILABLE"), "");
  assert.equal(adviceOn("READY"), "");
});

Deno.test("formatUrl() gives addresses that a client can use", () => {
  assert.equal(formatUrl("http", "0.0.0.0", 80), "http://localhost:80");
  assert.equal(formatUrl("http", "::1", 80), "http://[::1]:80");
  assert.equal(formatUrl("http", "unix:/run/a", 0), "unix:/run/a");
});

Deno.test("denoVersionFault() accepts 2.9.5 and newer", () => {
  for (const version of ["2.9.5", "2.9.6", "2.10.0", "3.0.0-rc.1"]) {
    assert.equal(denoVersionFault(version), undefined, version);
  }
  for (const version of ["2.9.4", "2.8.10", "1.46.3"]) {
    assert.match(denoVersionFault(version) ?? "", /needs Deno 2\.9\.5 or newer/);
  }
});
