import { editDistance } from "../../proto/edit_distance.ts";

/** Flags longer than this are not compared: nobody misspells that much. */
const COMPARED_LENGTH_MAX = 100;

/** The word of `words` that is closest to `word`, or undefined when none is near. */
export function nearestWord(word: string, words: readonly string[]): string | undefined {
  if (word.length > COMPARED_LENGTH_MAX) return undefined;
  let best: string | undefined;
  let bestDistance = Math.max(2, Math.floor(word.length / 3)) + 1;
  for (const candidate of words) {
    const distance = editDistance(word, candidate);
    if (distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}
