/**
 * Goes on with a value: at once where it is there, later where it is on its way. On the hot path most values are
 * there, and a promise for each would cost more than the work.
 */
export const whenKnown = <T, R>(value: T | Promise<T>, use: (value: T) => R | Promise<R>): R | Promise<R> =>
  value instanceof Promise ? value.then(use) : use(value);

/** Does `work`; whatever it throws or rejects with becomes what `failed` makes of it. */
export function attempt<T>(work: () => T | Promise<T>, failed: (error: unknown) => T): T | Promise<T> {
  try {
    const done = work();
    return done instanceof Promise ? done.catch(failed) : done;
  } catch (error) {
    return failed(error);
  }
}
