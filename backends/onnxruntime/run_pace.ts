/** Runs at most this long may hold up the event loop: less than handing them to another thread costs. */
const BLOCKING_LIMIT_MS = 0.05;
/**
 * And so much longer for each byte of input, about as long as taking it from a socket held up the event loop: a
 * network that does little more than move its input runs at once.
 */
const LIMIT_MS_PER_BYTE = 0.25 / (1024 * 1024);
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

/** What the work of a run depends on. */
export interface RunShape {
  /** The same object stands for the same names. */
  readonly inputNames: object;
  readonly outputNames: object;
  /** Shapes of the inputs, in the order of their names. */
  readonly shapes: readonly (readonly number[])[];
  /** Bytes of all inputs. */
  readonly byteSize: number;
}

/**
 * Decides which runs of a model are so short that calling the runtime directly beats handing the call to another
 * thread. Only shapes seen to be short before, and those inside of them, are called directly; one that is not short
 * puts an end to it for long. Bytes alone would not do: [1,1000] and [1000,1] make a thousand times more together
 * than [1000] and [1000].
 */
export class RunPace {
  readonly #isSteady: boolean;
  readonly #limitMs: number;
  #learned: RunShape | undefined;
  #candidates = 0;
  #longShare = 0;
  #penalty = FIRST_PENALTY;
  #waitCount = 0;
  #goodCount = 0;

  /**
   * @param isSteady whether sizes alone decide how long a run takes, not the values in the inputs.
   * @param limitMs of runs that may hold up the event loop.
   */
  constructor(isSteady: boolean, limitMs: number | undefined = BLOCKING_LIMIT_MS) {
    this.#isSteady = isSteady;
    this.#limitMs = limitMs;
  }

  /** Whether such a run may block. */
  mayBlock(run: RunShape): boolean {
    return this.#learned !== undefined && this.#waitCount === 0 && isWithin(run, this.#learned);
  }

  /** Takes the time of a run on the blocking pool. */
  recordPooled(run: RunShape, elapsedMs: number): void {
    if (!this.#isSteady || run.byteSize > MAX_BYTE_SIZE) return;
    if (this.#waitCount > 0) {
      this.#waitCount--;
      return;
    }
    const limitMs = Math.max(CANDIDATE_LIMIT_MS, this.#limitMs);
    if (elapsedMs > limitMs + run.byteSize * LIMIT_MS_PER_BYTE) return;
    if (this.#learned !== undefined && isWithin(run, this.#learned)) return;
    if (++this.#candidates < CANDIDATE_COUNT) return;
    this.#candidates = 0;
    const { inputNames, outputNames, shapes, byteSize } = run;
    this.#learned = { inputNames, outputNames, byteSize, shapes: shapes.map((dims) => [...dims]) };
    this.#longShare = 0;
  }

  /** Takes the time of a run that blocked. */
  recordBlocking(run: RunShape, elapsedMs: number): void {
    const isLong = elapsedMs > this.#limitMs + run.byteSize * LIMIT_MS_PER_BYTE;
    const weight = elapsedMs > VERY_LONG_MS ? 3 * WEIGHT : WEIGHT;
    this.#longShare += ((isLong ? 1 : 0) - this.#longShare) * weight;
    if (++this.#goodCount === FORGIVING_COUNT) this.#penalty = FIRST_PENALTY;
    if (this.#longShare <= LONG_SHARE_LIMIT) return;
    this.#waitCount = this.#penalty;
    this.#penalty = Math.min(this.#penalty * 2, MAX_PENALTY);
    this.#learned = undefined;
    this.#goodCount = 0;
    this.#longShare = 0;
  }
}

/** No dimension of any input is larger, so no tensor that follows from them is. */
function isWithin(run: RunShape, other: RunShape): boolean {
  if (run.inputNames !== other.inputNames || run.outputNames !== other.outputNames) return false;
  if (run.byteSize > other.byteSize) return false;
  for (let index = 0; index < run.shapes.length; index++) {
    const dims = run.shapes[index]!;
    const limits = other.shapes[index]!;
    if (dims.length !== limits.length) return false;
    for (let axis = 0; axis < dims.length; axis++) {
      if (dims[axis]! > limits[axis]!) return false;
    }
  }
  return true;
}
