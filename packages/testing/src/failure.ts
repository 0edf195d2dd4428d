/**
 * What a promise rejects with. Unlike `expect().rejects`, it does not spin the event loop inside a socket's handler,
 * which would disturb the connection under test.
 */
export function failure(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    (value) => new Error(`expected a failure, got ${String(value)}`),
    (error: unknown) => error,
  );
}
