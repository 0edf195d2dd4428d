/** A question whose answer is remembered by name, for as long as the returned function is kept. */
export function askedOnce<T>(
  nameOf: (subject: T) => string,
  ask: (subject: T) => Promise<boolean>,
): (subject: T) => Promise<boolean> {
  const answers = new Map<string, boolean>();
  return async (subject) => {
    const name = nameOf(subject);
    const known = answers.get(name);
    if (known !== undefined) return known;
    const answer = await ask(subject);
    answers.set(name, answer);
    return answer;
  };
}
