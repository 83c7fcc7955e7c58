import assert from "node:assert/strict";
import { denoVersionFault } from "./deno_version.ts";
import { formatStartReport, formatUrl } from "./start_report.ts";

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
