/** The fewest insertions, removals and replacements of characters that turn one text into the other. */
export function editDistance(left: string, right: string): number {
  let previous = Array.from({ length: right.length + 1 }, (_, index) => index);
  for (let row = 1; row <= left.length; row++) {
    const current = [row];
    for (let column = 1; column <= right.length; column++) {
      const replace = previous[column - 1]! + (left[row - 1] === right[column - 1] ? 0 : 1);
      current.push(Math.min(replace, current[column - 1]! + 1, previous[column]! + 1));
    }
    previous = current;
  }
  return previous[right.length]!;
}
