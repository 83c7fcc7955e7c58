/** Runs at most this long may hold up the event loop: less than handing them to another thread costs. */
const BLOCKING_LIMIT_MS = 0.05;
/** A run on the blocking pool this short is worth a try; it includes the way there and back. */
const CANDIDATE_LIMIT_MS = 0.5;
/** A run this long counts threefold; it may be that the thread lost its core, so one does not decide. */
const VERY_LONG_MS = 1;
/** Share of long runs, of the last ones, at which a model stops to block. */
const LONG_SHARE_LIMIT = 0.5;
/** Larger inputs always go to the blocking pool. */
const MAX_BYTE_SIZE = 1024 * 1024;
const CANDIDATE_COUNT = 8;
const FIRST_PENALTY = 256;
const MAX_PENALTY = 1 << 20;
const WEIGHT = 1 / 16;
/** So many blocking runs in a row make up for penalties of the past. */
const FORGIVING_COUNT = 4096;

/**
 * Decides which runs of a model are so short that calling the runtime directly beats handing the call to another
 * thread. Only sizes seen to be short before are called directly, and one that is not puts an end to it for long.
 */
export class RunPace {
  readonly #isSteady: boolean;
  #learnedByteSize = -1;
  #candidates = 0;
  #longShare = 0;
  #penalty = FIRST_PENALTY;
  #waitCount = 0;
  #goodCount = 0;

  /** @param isSteady whether sizes alone decide how long a run takes, not the values in the inputs. */
  constructor(isSteady: boolean) {
    this.#isSteady = isSteady;
  }

  /** Whether a run with so many input bytes may block. */
  mayBlock(byteSize: number): boolean {
    return this.#isSteady && this.#waitCount === 0 && byteSize <= this.#learnedByteSize;
  }

  /** Takes the time of a run on the blocking pool. */
  recordPooled(byteSize: number, elapsedMs: number): void {
    if (!this.#isSteady || byteSize > MAX_BYTE_SIZE) return;
    if (this.#waitCount > 0) {
      this.#waitCount--;
      return;
    }
    if (elapsedMs > CANDIDATE_LIMIT_MS) return;
    if (byteSize <= this.#learnedByteSize || ++this.#candidates < CANDIDATE_COUNT) return;
    this.#candidates = 0;
    this.#learnedByteSize = byteSize;
    this.#longShare = 0;
  }

  /** Takes the time of a run that blocked. */
  recordBlocking(elapsedMs: number): void {
    const isLong = elapsedMs > BLOCKING_LIMIT_MS;
    const weight = elapsedMs > VERY_LONG_MS ? 3 * WEIGHT : WEIGHT;
    this.#longShare += ((isLong ? 1 : 0) - this.#longShare) * weight;
    if (++this.#goodCount === FORGIVING_COUNT) this.#penalty = FIRST_PENALTY;
    if (this.#longShare <= LONG_SHARE_LIMIT) return;
    this.#waitCount = this.#penalty;
    this.#penalty = Math.min(this.#penalty * 2, MAX_PENALTY);
    this.#learnedByteSize = -1;
    this.#goodCount = 0;
    this.#longShare = 0;
  }
}
