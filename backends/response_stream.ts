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
  /**
   * Milliseconds between seeing that the client has gone, before the next response, and the end. 0 or absent: the
   * stream ends at once, in the middle of a response.
   */
  readonly cancelDelayMs?: number;
  /** Response `index`; undefined = an empty one, which is not seen but in the statistics. */
  respond(index: number): ExecuteResponse | undefined;
}

/** So many responses in a row are sent before others get a turn, when nobody asks to wait. */
const RESPONSES_PER_TURN = 64;

/**
 * Sends all responses of a request, one after the other and no faster than they are taken. The final flag comes alone,
 * or with the last response when that is empty. Ends early when the client has gone. Never rejects.
 */
export async function sendResponses(
  request: ExecuteRequest,
  stream: ResponseStream,
  parts: { readonly timers: Timers; readonly now: () => number },
): Promise<void> {
  try {
    if (await sendAll(request, stream, parts)) return;
  } catch (reason) {
    await request.send({ error: ServerError.from(reason) }, false);
  }
  request.send(undefined, true);
}

/** True when the final flag was sent. */
async function sendAll(
  request: ExecuteRequest,
  stream: ResponseStream,
  { timers, now }: { readonly timers: Timers; readonly now: () => number },
): Promise<boolean> {
  const { count, sendDelayMs = 0, cancelDelayMs = 0 } = stream;
  const interrupt = cancelDelayMs > 0 ? { timers } : { timers, request };
  for (let index = 0; index < count; index++) {
    if (request.signal?.aborted) {
      await wait(cancelDelayMs, { timers });
      return false;
    }
    await wait(stream.delayMs(index), interrupt);
    if (interrupt.request?.signal?.aborted) continue;
    const outputStartMs = now();
    const response = stream.respond(index);
    if (response !== undefined) await wait(sendDelayMs, interrupt);
    const isFinal = response === undefined && index === count - 1;
    const isHeld = request.send(
      response === undefined ? undefined : { ...response, outputStartMs },
      isFinal,
    );
    if (isFinal) return true;
    if (isHeld !== undefined) await isHeld;
    else if (index % RESPONSES_PER_TURN === RESPONSES_PER_TURN - 1) {
      await pause(0, { timers, signals: [request.signal] });
    }
  }
  return false;
}

function wait(
  delayMs: number,
  { timers, request }: { readonly timers: Timers; readonly request?: ExecuteRequest },
): Promise<void> | undefined {
  if (delayMs <= 0) return undefined;
  return pause(delayMs, { timers, signals: request === undefined ? [] : [request.signal] });
}
