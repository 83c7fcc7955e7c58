/** The place of one request among those that came before and after it. */
export interface AnswerPlace {
  next: AnswerPlace | undefined;
  /** Its answer has left, or never will. */
  isOver: boolean;
  /** Lets its answer go; absent while somebody else makes it. */
  readonly release: (() => void) | undefined;
}

/**
 * Holds answers that are ready at once behind those of requests that came before and still run. The running ones
 * among themselves are somebody else's business.
 */
export class AnswerOrder {
  #first: AnswerPlace | undefined;
  #last: AnswerPlace | undefined;
  #heldCount = 0;

  /** Answers that are ready and wait for their turn. */
  get heldCount(): number {
    return this.#heldCount;
  }

  /** A request begins to run. */
  addRunning(): AnswerPlace {
    return this.#append(undefined);
  }

  /** An answer is ready; it leaves at once when it is its turn. */
  addReady(release: () => void): void {
    if (this.#first === undefined) {
      release();
      return;
    }
    this.#heldCount++;
    this.#append(release);
  }

  /** The answer of a running request leaves in this step of the event loop, after what came before it. */
  end(place: AnswerPlace): void {
    this.releaseReady();
    place.isOver = true;
    queueMicrotask(() => this.releaseReady());
  }

  /** Lets go of what need not wait any more. */
  releaseReady(): void {
    for (let place = this.#first; place !== undefined; place = this.#first) {
      if (place.release === undefined && !place.isOver) return;
      this.#first = place.next;
      if (this.#first === undefined) this.#last = undefined;
      if (place.release === undefined) continue;
      this.#heldCount--;
      place.release();
    }
  }

  #append(release: AnswerPlace["release"]): AnswerPlace {
    const place: AnswerPlace = { next: undefined, isOver: false, release };
    if (this.#last === undefined) this.#first = place;
    else this.#last.next = place;
    this.#last = place;
    return place;
  }
}
