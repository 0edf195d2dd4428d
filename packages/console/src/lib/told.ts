/** A failure that the console explains itself; the message says why and what to do. */
export class Told extends Error {
  constructor(
    readonly title: string,
    message: string,
    /** Trying again without changing anything can help. */
    readonly retry = false,
  ) {
    super(message);
    this.name = "Told";
  }
}
