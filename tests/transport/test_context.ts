import { BufferPool } from "../../server/transport/buffer_pool.ts";
import type { TransportContext } from "../../server/transport/connection.ts";
import { DEFAULT_LIMITS, type TransportLimits } from "../../server/transport/limits.ts";
import type { HttpHandler, RpcHandler } from "../../server/transport/transport.ts";

/** A context with virtual time: set `now`, then call `tick()` of the connection. */
export interface TestContext extends TransportContext {
  now: number;
  readonly faults: unknown[];
}

/** What a test context is made of. */
export interface TestContextOptions {
  readonly http?: HttpHandler;
  readonly rpc?: RpcHandler;
  readonly limits?: Partial<TransportLimits>;
  readonly pool?: BufferPool;
}

export function createTestContext(options: TestContextOptions = {}): TestContext {
  const faults: unknown[] = [];
  return {
    limits: { ...DEFAULT_LIMITS, lingerMs: 1, ...options.limits },
    http: options.http ?? { handle: () => ({ status: 200 }) },
    rpc: options.rpc,
    pool: options.pool ?? new BufferPool({ poison: true }),
    now: 1,
    faults,
    reportError: (error) => faults.push(error),
  };
}
