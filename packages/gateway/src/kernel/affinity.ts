/** Calls that a session's own choice may have more than the least busy one before the session yields. */
const SESSION_MARGIN = 16;
const HASH_BITS = 53;

/** The session that a request belongs to; null: none is known. Asked only where there is a choice. */
export type SessionOf = () => string | null;

/** Rendezvous hashing: every instance chooses the same name, and a name that goes moves only its own sessions. */
export function nearness(session: string, name: string, weight = 1): number {
  const hash = BigInt.asUintN(HASH_BITS, BigInt(Bun.hash(JSON.stringify([session, name]))));
  return weight / -Math.log((Number(hash) + 1) / 2 ** HASH_BITS);
}

/** The choice that has the session's prompt in its cache, unless it is too busy. */
export function nearestTo<T>(
  session: string,
  choices: readonly T[],
  about: (choice: T) => { name: string; inFlight: number },
): T {
  const most = Math.min(...choices.map((choice) => about(choice).inFlight)) + SESSION_MARGIN;
  const near = (choice: T) => {
    const { name, inFlight } = about(choice);
    return inFlight > most ? -1 : nearness(session, name);
  };
  return choices.toSorted((a, b) => near(b) - near(a))[0]!;
}
