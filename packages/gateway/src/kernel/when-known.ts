/**
 * Continues with a value: at once if it is known, later if it is a promise. On the hot path most values are
 * known, and a promise for each would cost more than the work.
 */
export function whenKnown<T, R>(value: T | Promise<T>, use: (value: T) => Promise<R>): Promise<R>;
export function whenKnown<T, R>(value: T | Promise<T>, use: (value: T) => R | Promise<R>): R | Promise<R>;
export function whenKnown<T, R>(value: T | Promise<T>, use: (value: T) => R | Promise<R>): R | Promise<R> {
  return value instanceof Promise ? value.then(use) : use(value);
}
