/** A line that was read. `score`: mean probability of its characters, 0 for an empty one. */
export interface TextLine {
  readonly text: string;
  readonly score: number;
}

/**
 * Reads one line out of the recognizer's answer (CTC): `steps` distributions over `classes`. Class 0 is nothing, the
 * others are `characters` in their order, then blanks. The same class twice without nothing in between is one character.
 */
export function readLine(
  probabilities: Float32Array,
  characters: readonly string[],
  classes: number,
): TextLine {
  let [text, sum, count, before] = ["", 0, 0, 0];
  for (let start = 0; start < probabilities.length; start += classes) {
    const best = findBest(probabilities, start, classes);
    if (best !== 0 && best !== before) {
      text += characters[best - 1] ?? " ";
      sum += probabilities[start + best]!;
      count++;
    }
    before = best;
  }
  return { text, score: count === 0 ? 0 : sum / count };
}

function findBest(values: Float32Array, start: number, count: number): number {
  let best = start;
  for (let index = start + 1; index < start + count; index++) {
    if (values[index]! > values[best]!) best = index;
  }
  return best - start;
}
