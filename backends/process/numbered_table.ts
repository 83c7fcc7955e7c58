const NUMBER_MAX = 0xffff_ffff;
const INITIAL_LENGTH = 64;

/**
 * Values that come and go under numbers, which count upwards from 1 and begin again behind 2^32 - 1.
 *
 * No `Map`: one whose entries change all the time is copied again and again, and a copy that has grown old in the heap
 * keeps the next one, with what was in it, from being collected. A fifth of all that requests were made of stayed so.
 */
export class NumberedTable<T> {
  /** Each number has its place, which is that of one value at a time; 0 = none. The length is a power of two. */
  #numbers = new Uint32Array(INITIAL_LENGTH);
  #values: (T | undefined)[] = new Array(INITIAL_LENGTH).fill(undefined);
  #size = 0;
  #lastNumber: number;

  /** `lastNumber`: the number before the first one. */
  constructor(lastNumber = 0) {
    this.#lastNumber = lastNumber;
  }

  get size(): number {
    return this.#size;
  }

  /** A number for the next value; `set` it before another one is asked for. */
  nextNumber(): number {
    if (this.#size * 2 >= this.#numbers.length) this.#grow();
    const numbers = this.#numbers;
    let number = this.#lastNumber;
    do {
      number = number === NUMBER_MAX ? 1 : number + 1;
    } while (numbers[number & (numbers.length - 1)] !== 0);
    this.#lastNumber = number;
    return number;
  }

  /** Takes in a value under a number from `nextNumber`. */
  set(number: number, value: T): void {
    const place = number & (this.#numbers.length - 1);
    if (this.#numbers[place] !== 0) throw new TypeError(`Number ${number} is not the next one`);
    this.#numbers[place] = number;
    this.#values[place] = value;
    this.#size++;
  }

  get(number: number): T | undefined {
    const place = number & (this.#numbers.length - 1);
    return number !== 0 && this.#numbers[place] === number ? this.#values[place] : undefined;
  }

  /** False when there is no such value. */
  delete(number: number): boolean {
    const place = number & (this.#numbers.length - 1);
    if (number === 0 || this.#numbers[place] !== number) return false;
    this.#numbers[place] = 0;
    this.#values[place] = undefined;
    this.#size--;
    return true;
  }

  /** All values, the oldest first. */
  values(): T[] {
    const age = (number: number) => (this.#lastNumber - number) >>> 0;
    return [...this.#numbers].filter((number) => number !== 0)
      .sort((left, right) => age(right) - age(left))
      .map((number) => this.get(number)!);
  }

  clear(): void {
    this.#numbers.fill(0);
    this.#values.fill(undefined);
    this.#size = 0;
  }

  #grow(): void {
    const length = this.#numbers.length * 2;
    const numbers = new Uint32Array(length);
    const values: (T | undefined)[] = new Array(length).fill(undefined);
    // Numbers that have places of their own among fewer have so among more.
    this.#numbers.forEach((number, place) => {
      if (number === 0) return;
      numbers[number & (length - 1)] = number;
      values[number & (length - 1)] = this.#values[place];
    });
    this.#numbers = numbers;
    this.#values = values;
  }
}
