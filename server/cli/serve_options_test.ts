import assert from "node:assert/strict";
import { parseFlags } from "./flags.ts";
import { readServeOptions, type ServeOptions } from "./serve_options.ts";

function read(...args: string[]): ServeOptions {
  return readServeOptions(parseFlags(args));
}

function fault(...args: string[]): string {
  try {
    read(...args);
  } catch (reason) {
    return (reason as Error).message;
  }
  return "";
}

Deno.test("readServeOptions() has Triton's defaults", () => {
  const options = read("--model-repository=/b", "--model-store=/a", "--model-repository=/b");
  assert.deepEqual(options.server.modelRepositories, ["/a", "/b"]);
  assert.equal(options.server.modelControlMode, "none");
  assert.equal(options.server.autoCompleteConfig, true);
  assert.equal(options.server.exitTimeoutSecs, 30);
  assert.equal(options.http?.port, 8000);
  assert.equal(options.http?.maxInputBytes, 67108864);
  assert.equal(options.grpc?.port, 8001);
  assert.equal(options.metrics?.port, 8002);
  assert.equal(options.metrics?.address, "0.0.0.0");
  assert.equal(options.grpc?.maxStreamRequests, 2147483647);
  assert.equal(read("--grpc-max-response-pool-size=3").grpc?.maxStreamRequests, 3);
});

Deno.test("readServeOptions() makes paths absolute, and leaves addresses of storages alone", () => {
  const options = read("--model-repository=models", "--model-repository=s3://bucket/x");
  assert.deepEqual(options.server.modelRepositories, [`${Deno.cwd()}/models`, "s3://bucket/x"]);
});

Deno.test("readServeOptions() reads what there is of the rate limiter's resources", () => {
  assert.equal(read().server.rateLimit, "off");
  const { server } = read(
    "--rate-limit=Execution_Count",
    "--rate-limit-resource=R:4",
    "--rate-limit-resource=S:2:1",
    "--rate-limit-resource=:3:-1",
  );
  assert.equal(server.rateLimit, "execution_count");
  assert.deepEqual(server.rateLimitResources, [
    { name: "R", count: 4 },
    { name: "S", count: 2, deviceId: 1 },
    { name: "", count: 3 },
  ]);
});

Deno.test("readServeOptions() refuses resources of the rate limiter that say nothing", () => {
  const start = 'Bad option: "--rate-limit-resource".\n';
  const format = "--rate-limit-resource option format is '<resource_name>:<count>:<device>' or " +
    "'<resource_name>:<count>'. Got ";
  for (const text of ["R1", "R:1:2:3"]) {
    assert.equal(fault(`--rate-limit-resource=${text}`), start + format + text);
  }
  for (const [text, got] of [["R:many", "many"], ["R::1", ""], ["R:1:", ""], ["R:2:x", "x"]]) {
    const message = `${start}Invalid option value. Got ${got}`;
    assert.equal(fault(`--rate-limit-resource=${text}`), message);
  }
  assert.match(fault("--rate-limit-resource=R:99999999999"), /out of bound\. Got 99999999999$/);
  assert.match(fault("--rate-limit-resource=R:-1"), /Got -1, expected 0 or more$/);
  assert.match(fault("--rate-limit-resource=R:1:-2"), /Got -2, expected a device number$/);
  assert.match(fault("--rate-limit=sometimes"), /invalid argument for --rate-limit: sometimes/);
});

Deno.test("readServeOptions() leaves out services that are switched off", () => {
  const options = read("--allow-http=false", "--allow-grpc=off", "--allow-metrics=0");
  assert.deepEqual([options.http, options.grpc, options.metrics], [
    undefined,
    undefined,
    undefined,
  ]);
});

Deno.test("readServeOptions() refuses two services at one place", () => {
  assert.equal(
    fault("--grpc-port=8000"),
    "The server cannot listen to HTTP requests and GRPC requests at the same address and port " +
      "0.0.0.0:8000",
  );
  assert.equal(fault("--grpc-port=8000", "--grpc-address=127.0.0.1"), "");
  assert.equal(fault("--http-port=0", "--grpc-port=0", "--metrics-port=0"), "");
  assert.match(fault("--http-address=unix:/a", "--grpc-address=unix:/a"), /port unix:\/a$/);
});

Deno.test("readServeOptions() checks flags that need each other", () => {
  assert.match(fault("--load-model=m"), /requires setting '--model-control-mode=explicit'/);
  assert.match(fault("--model-config-name="), /empty argument for --model-config-name/);
  assert.match(fault("--grpc-use-ssl=true"), /needs --grpc-server-cert and --grpc-server-key/);
  assert.match(fault("--http-port=70000"), /invalid port 70000; expected 0 to 65535/);
  assert.match(fault("--http-header-forward-pattern=("), /"--http-header-forward-pattern"/);
});

Deno.test("readServeOptions() matches headers without regard to case unless the pattern says so", () => {
  const matches = (pattern: string, name: string): boolean =>
    read(`--grpc-header-forward-pattern=${pattern}`).grpc!.headerForwardPattern!.test(name);
  assert.equal(matches("MY_HEADER.*", "my_header_1"), true);
  assert.equal(matches("(?-i)MY_HEADER.*", "my_header_1"), false);
  assert.equal(matches("(?-i)MY_HEADER.*", "MY_HEADER_1"), true);
  assert.equal(matches("(?is)my_header", "MY_HEADER"), true);
  assert.equal(matches("(?s-i)a", "A"), false);
  assert.match(fault("--grpc-header-forward-pattern=(?U)a"), /"--grpc-header-forward-pattern"/);
});

Deno.test("readServeOptions() sorts backend settings by backend", () => {
  const config = read(
    "--backend-config=default-max-batch-size=8",
    "--backend-config=onnxruntime,library=/x=y,z",
  ).server.backendConfig;
  assert.equal(config.get("")?.get("default-max-batch-size"), "8");
  assert.equal(config.get("onnxruntime")?.get("library"), "/x=y,z");
  assert.match(fault("--backend-config=onnxruntime"), /option format is/);
});

Deno.test("readServeOptions() reads restricted calls", () => {
  assert.deepEqual(
    read("--http-restricted-api=inference,health:Key=a:b=c").http?.restrictedApis,
    [{ categories: ["inference", "health"], key: "Key", value: "a:b=c" }],
  );
  assert.match(fault("--http-restricted-api=nothing:k=v"), /unknown restricted api 'nothing' /);
  assert.match(
    fault("--grpc-restricted-protocol=health:k=v", "--grpc-restricted-protocol=health:k=v"),
    /restricted protocol 'health' can not be specified in multiple config groups/,
  );
  assert.match(fault("--http-restricted-api=health"), /<config name>:<setting>=<value>/);
});

Deno.test("readServeOptions() reads verbose levels as words and numbers", () => {
  assert.equal(read("--log-verbose=true").log.verbose, 1);
  assert.equal(read("--log-verbose=3").log.verbose, 3);
  assert.equal(read("--log-verbose=off").log.verbose, 0);
});

Deno.test("readServeOptions() takes strict configurations from both spellings", () => {
  assert.equal(read("--strict-model-config=true").server.autoCompleteConfig, false);
  assert.equal(read("--strict-model-config=false").server.autoCompleteConfig, true);
  assert.equal(read("--disable-auto-complete-config").server.autoCompleteConfig, false);
});

function cacheConfig(...args: string[]) {
  const { server } = readServeOptions(parseFlags(["--model-repository=/r", ...args]));
  return [...server.cacheConfig].map(([name, settings]) => [name, Object.fromEntries(settings)]);
}

Deno.test("readServeOptions() reads the settings of the response cache", () => {
  assert.deepEqual(cacheConfig(), []);
  assert.deepEqual(cacheConfig("--cache-config=local,size=10", "--cache-config=local,size=20"), [
    ["local", { size: "20" }],
  ]);
  assert.deepEqual(cacheConfig("--cache-config=redis,url=a=b,c"), [["redis", { url: "a=b,c" }]]);
  assert.deepEqual(cacheConfig("--response-cache-byte-size=1048576"), [
    ["local", { size: "1048576" }],
  ]);
});

Deno.test("readServeOptions() refuses settings of the response cache in another form", () => {
  for (const text of ["local", "size=5", ",size=5"]) {
    assert.throws(() => cacheConfig(`--cache-config=${text}`), {
      message: 'Bad option: "--cache-config".\nNo cache specified. --cache-config option format ' +
        `is <cache name>,<setting>=<value>. Got ${text}`,
    });
  }
  for (const text of ["local,size", "local,size=", "local,=5", "local,"]) {
    assert.throws(() => cacheConfig(`--cache-config=${text}`), {
      message: 'Bad option: "--cache-config".\n--cache-config option format is ' +
        `'<cache name>,<setting>=<value>'. Got ${text}`,
    });
  }
  assert.throws(() => cacheConfig("--response-cache-byte-size=5", "--cache-config=local,size=5"), {
    message: "Error: Incompatible flags --response-cache-byte-size and --cache-config both " +
      "provided. Please provide one or the other.",
  });
});

Deno.test("readServeOptions() reads how repositories are followed", () => {
  const { server } = read();
  assert.equal(server.repositoryPollSecs, 15);
  assert.equal(server.modelNamespacing, false);
  const other = read(
    "--model-control-mode=POLL",
    "--repository-poll-secs=0",
    "--model-namespacing=true",
  ).server;
  assert.equal(other.modelControlMode, "poll");
  assert.equal(other.repositoryPollSecs, 1);
  assert.equal(other.modelNamespacing, true);
});
