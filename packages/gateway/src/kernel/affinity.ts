/** How many calls more than the least busy choice a session's own may have before the session goes elsewhere. */
const SESSION_MARGIN = 16;
const HASH_BITS = 53;

/** Null: the request belongs to no known session. Called only where there is a choice. */
export type SessionOf = () => string | null;

/** Rendezvous hashing: every instance chooses the same name, and removing a name moves only its own sessions. */
export function nearness(session: string, name: string, weight = 1): number {
  const hash = BigInt.asUintN(HASH_BITS, BigInt(Bun.hash(JSON.stringify([session, name]))));
  return weight / -Math.log((Number(hash) + 1) / 2 ** HASH_BITS);
}

/** The choice that should have the session's prompt in its cache, unless it is too busy. */
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
