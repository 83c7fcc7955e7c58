import { ServerError } from "../../proto/status.ts";
import type { Clock } from "./clock.ts";
import type { ServerOptions } from "./options.ts";
import { ResponseCache } from "./response_cache.ts";

/** The one cache this server has. */
const LOCAL = "local";

/**
 * The cache that `--cache-config` asks for; undefined when none is asked for.
 * @throws ServerError INVALID_ARG, with the reference's texts, when it cannot be made.
 */
export function createResponseCache(
  options: Pick<ServerOptions, "cacheConfig" | "cacheDirectory">,
  clock: Clock,
): ResponseCache | undefined {
  const names = [...options.cacheConfig.keys()];
  const [name] = names;
  if (name === undefined) return undefined;
  if (names.length > 1) {
    throw new ServerError(
      "INVALID_ARG",
      `found multiple cache configurations, but only a single cache is currently supported; got ` +
        names.join(", "),
    );
  }
  if (name !== LOCAL) {
    throw new ServerError(
      "INVALID_ARG",
      `unable to find 'libtritoncache_${name}.so' for cache. Searched: ` +
        `${options.cacheDirectory}; this server has the cache '${LOCAL}'`,
    );
  }
  const size = options.cacheConfig.get(name)!.get("size");
  return new ResponseCache({ byteSize: parseByteSize(size), clock });
}

function parseByteSize(text: string | undefined): number {
  const byteSize = text !== undefined && /^[0-9]+$/.test(text) ? Number(text) : 0;
  if (byteSize > 0 && Number.isSafeInteger(byteSize)) return byteSize;
  throw new ServerError(
    "INVALID_ARG",
    "Failed to initialize LocalCache: config didn't contain a valid 'size' field. Got " +
      `${text === undefined ? "none" : `size=${text}`}; expected a number of bytes from 1 to ` +
      `${Number.MAX_SAFE_INTEGER}, as in --cache-config=local,size=104857600`,
  );
}
