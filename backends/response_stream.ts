import { ServerError } from "../proto/status.ts";
import type { ExecuteRequest, ExecuteResponse } from "./backend.ts";
import { pause, type Timers } from "./pause.ts";

/** What a stream sends, and when. */
export interface ResponseStream {
  readonly count: number;
  /** Milliseconds before response `index` is made. */
  delayMs(index: number): number;
  /** Milliseconds between making it and sending it; absent = none. */
  readonly sendDelayMs?: number;
  /** Milliseconds between seeing that the client has gone and the end; absent = none. */
  readonly cancelDelayMs?: number;
  /** Response `index`; undefined = nothing is sent for it. */
  respond(index: number): ExecuteResponse | undefined;
}

/** So many responses in a row are sent before others get a turn, when nobody asks to wait. */
const RESPONSES_PER_TURN = 64;

/**
 * Sends all responses of a request, one after the other and no faster than they are taken, then the final flag alone.
 * Ends early when the client has gone. Never rejects.
 */
export async function sendResponses(
  request: ExecuteRequest,
  stream: ResponseStream,
  timers: Timers,
): Promise<void> {
  try {
    for (let index = 0; index < stream.count; index++) {
      if (request.signal?.aborted) {
        await wait(stream.cancelDelayMs ?? 0, { timers });
        break;
      }
      await wait(stream.delayMs(index), { timers, request });
      if (request.signal?.aborted) continue;
      const response = stream.respond(index);
      await wait(stream.sendDelayMs ?? 0, { timers, request });
      const isHeld = response === undefined ? undefined : request.send(response, false);
      if (isHeld !== undefined) await isHeld;
      else if (index % RESPONSES_PER_TURN === RESPONSES_PER_TURN - 1) {
        await pause(0, { timers, signals: [request.signal] });
      }
    }
  } catch (reason) {
    await request.send({ error: ServerError.from(reason) }, false);
  }
  request.send(undefined, true);
}

function wait(
  delayMs: number,
  { timers, request }: { readonly timers: Timers; readonly request?: ExecuteRequest },
): Promise<void> | undefined {
  if (delayMs <= 0) return undefined;
  return pause(delayMs, { timers, signals: request === undefined ? [] : [request.signal] });
}
