import assert from "node:assert/strict";
import { matchRoute } from "./routes.ts";

function describe(target: string): string {
  const route = matchRoute(target);
  if (route === undefined) return "none";
  const { endpoint, path } = route;
  const call = (endpoint.GET ?? endpoint.POST)!.name;
  const parts = [path.model, path.version, path.region, path.repository];
  return `${call} ${parts.join("|")}`;
}

Deno.test("matchRoute() finds every endpoint", () => {
  const cases: [string, string][] = [
    ["/v2", "getServerMetadata |||"],
    ["/v2?x=1", "getServerMetadata |||"],
    ["http://host:8000/v2", "getServerMetadata |||"],
    ["/v2/health/live", "getLive |||"],
    ["/v2/devices", "getDevices |||"],
    ["/v2/health/ready", "getReady |||"],
    ["/v2/models/stats", "getStatistics |||"],
    ["/v2/models/stats/config", "getModelConfig stats|||"],
    ["/v2/models/stats/versions/1", "getModelMetadata stats|1||"],
    ["/v2/models/m", "getModelMetadata m|||"],
    ["/v2/models/m/versions/12/ready", "getModelReady m|12||"],
    ["/v2/models/two%20words/infer", "postInfer two words|||"],
    ["/v2/models/m/%69nfer", "postInfer m|||"],
    ["/v2/models/m/versions/1/stats", "getStatistics m|1||"],
    ["/v2/models/m/generate", "postGenerate m|||"],
    ["/v2/models/m/generate_stream", "postGenerateStream m|||"],
    ["/v2/models/m/trace/setting", "getTraceSettings m|||"],
    ["/v2/trace/setting", "getTraceSettings |||"],
    ["/v2/logging", "getLogSettings |||"],
    ["/v2/systemsharedmemory/status", "getSystemSharedMemory |||"],
    ["/v2/systemsharedmemory/region/r/status", "getSystemSharedMemory ||r|"],
    ["/v2/systemsharedmemory/unregister", "unregisterSystemSharedMemory |||"],
    ["/v2/systemsharedmemory/region/r/register", "registerSystemSharedMemory ||r|"],
    ["/v2/cudasharedmemory/region/r/register", "registerCudaSharedMemory ||r|"],
    ["/v2/cudasharedmemory/region/r/unregister", "unregisterCudaSharedMemory ||r|"],
    ["/v2/repository/index", "postIndex |||"],
    ["/v2/repository/main/index", "postIndex |||"],
    ["/v2/repository/models/m/load", "postLoad m|||"],
    ["/v2/repository/models/a/b/unload", "postUnload a/b|||"],
    ["/v2/repository/models//load", "postLoad |||"],
    ["/v2/repository/models/..%2Fx/load", "postLoad ../x|||"],
    ["/v2/repository/main/models/m/load", "postLoad m|||main"],
  ];
  for (const [target, expected] of cases) assert.equal(describe(target), expected, target);
});

Deno.test("matchRoute() finds nothing else", () => {
  const targets = [
    "/",
    "/v1/models/m",
    "/v2/",
    "/v2/devices/0",
    "/v2//health/live",
    "/v2/health/live/",
    "/v2/health/live/now",
    "/v2/health/../health/live",
    "/v2/models",
    "/v2/models/",
    "/v2/models/m/",
    "/v2/models/m/versions/-1",
    "/v2/models/m/versions/1a",
    "/v2/models/m/versions/a%2Fb",
    "/v2/models/m/versions/stable/trace/setting",
    "/v2/models/m/versions/1/trace/setting",
    "/v2/models/m/nothing",
    "/v2/models/m/infer/",
    "/v2/models/%zz",
    "/v2/repository",
    "/v2/repository//index",
    "/v2/repository/models/load",
    "/v2/systemsharedmemory/region//status",
    "/v2/systemsharedmemory/region/r",
    "/metrics",
    "*",
    "http://host",
    "/v2/models/constructor/__proto__",
  ];
  for (const target of targets) assert.equal(describe(target), "none", target);
});
