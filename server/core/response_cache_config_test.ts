import assert from "node:assert/strict";
import { FakeClock } from "./fake_clock.ts";
import { createResponseCache } from "./response_cache_config.ts";

type Configs = Record<string, Record<string, string>>;

function create(configs: Configs) {
  const cacheConfig = new Map(
    Object.entries(configs).map(([name, settings]) => [name, new Map(Object.entries(settings))]),
  );
  return createResponseCache({ cacheConfig, cacheDirectory: "/caches" }, new FakeClock());
}

Deno.test("createResponseCache() makes the local cache, or none", () => {
  assert.equal(create({}), undefined);
  assert.equal(create({ local: { size: "4096" } })?.snapshot().utilization, 0);
  assert.ok(create({ local: { size: "4096", other: "ignored" } }));
});

Deno.test("createResponseCache() refuses what it cannot make", () => {
  const size =
    /^Failed to initialize LocalCache: config didn't contain a valid 'size' field\. Got /;
  for (const text of ["", "0", "-1", "1.5", "1e6", "big", "100x", "9".repeat(30)]) {
    assert.throws(() => create({ local: { size: text } }), { code: "INVALID_ARG", message: size });
  }
  assert.throws(() => create({ local: { sze: "5" } }), { message: size });
  assert.throws(() => create({ local: { size: "5" }, redis: { host: "h" } }), {
    code: "INVALID_ARG",
    message:
      /^found multiple cache configurations, but only a single cache is currently supported; got local, redis$/,
  });
  assert.throws(() => create({ redis: { host: "h" } }), {
    code: "INVALID_ARG",
    message:
      /^unable to find 'libtritoncache_redis\.so' for cache\. Searched: \/caches; .*'local'$/,
  });
});
