export function explain(_args: readonly string[]): Promise<number> { return Promise.resolve(2); }
