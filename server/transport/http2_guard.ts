import type { TransportContext } from "./connection.ts";
import { ErrorCode, Http2Error } from "./http2_frames.ts";

/** Shortest time between pings of a peer that has no streams and no permission to ping without. */
const PING_WITHOUT_CALLS_MS = 7_200_000;

/** Lets a burst through, then a rate. */
export class TokenBucket {
  readonly #burst: number;
  readonly #perMs: number;
  #tokens: number;
  #filledAt: number;

  constructor(rate: { burst: number; perSecond: number }, now: number) {
    this.#burst = this.#tokens = rate.burst;
    this.#perMs = rate.perSecond / 1000;
    this.#filledAt = now;
  }

  /** Takes a token; false when there is none. */
  take(now: number): boolean {
    if (this.#tokens < 1) {
      this.#tokens = Math.min(this.#burst, this.#tokens + (now - this.#filledAt) * this.#perMs);
      this.#filledAt = now;
      if (this.#tokens < 1) return false;
    }
    this.#tokens--;
    return true;
  }
}

/** Ends connections whose peer makes work without doing any: resets, empty frames, pings. */
export class AbuseGuard {
  readonly #context: TransportContext;
  readonly #resets: TokenBucket;
  readonly #emptyFrames: TokenBucket;
  #pingStrikes = 0;
  #lastPingAt = -Infinity;
  /** Pings of ours since something else was sent. */
  #ownPings = 0;

  constructor(context: TransportContext) {
    const { limits, now } = context;
    this.#context = context;
    this.#resets = new TokenBucket(
      { burst: limits.resetBurst, perSecond: limits.resetsPerSecond },
      now,
    );
    this.#emptyFrames = new TokenBucket(
      { burst: limits.emptyFrameBurst, perSecond: limits.emptyFramesPerSecond },
      now,
    );
  }

  /** A stream ended before its answer, by the peer's reset or by its fault. */
  noteReset(): void {
    if (!this.#resets.take(this.#context.now)) throw calm("Too many streams are reset");
  }

  /** A frame that carries nothing. */
  noteEmptyFrame(): void {
    if (!this.#emptyFrames.take(this.#context.now)) throw calm("Too many frames without content");
  }

  /** Something was sent to the peer, which may answer it with pings. */
  noteSent(): void {
    this.#pingStrikes = 0;
    this.#lastPingAt = -Infinity;
    this.#ownPings = 0;
  }

  /** Counts a ping of ours; false when the peer has been sent enough of them and nothing else. */
  tryPing(): boolean {
    const { maxPingsWithoutData } = this.#context.limits;
    if (maxPingsWithoutData > 0 && this.#ownPings >= maxPingsWithoutData) return false;
    this.#ownPings++;
    return true;
  }

  /** A ping of the peer; pings that come too often are struck. */
  notePing(streamCount: number): void {
    this.noteEmptyFrame();
    const { limits } = this.#context;
    const now = performance.now();
    const intervalMs = streamCount === 0 && !limits.permitWithoutCalls
      ? PING_WITHOUT_CALLS_MS
      : limits.minRecvPingIntervalMs;
    const isStrike = now - this.#lastPingAt < intervalMs;
    this.#lastPingAt = now;
    if (!isStrike || limits.maxPingStrikes === 0) return;
    if (++this.#pingStrikes > limits.maxPingStrikes) throw calm("too_many_pings");
  }
}

function calm(message: string): Http2Error {
  return new Http2Error(ErrorCode.ENHANCE_YOUR_CALM, message);
}

/** Identifiers of streams that ended a short time ago; frames for them may still be under way. */
export class RecentStreams {
  readonly #ids: Int32Array;
  #next = 0;

  constructor(capacity: number) {
    this.#ids = new Int32Array(capacity);
  }

  add(streamId: number): void {
    this.#ids[this.#next] = streamId;
    this.#next = (this.#next + 1) % this.#ids.length;
  }

  has(streamId: number): boolean {
    return this.#ids.includes(streamId);
  }
}
