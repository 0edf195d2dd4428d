/** A failure that the console itself has words for; the message says why and what to do. */
export class Told extends Error {
  constructor(
    readonly title: string,
    message: string,
  ) {
    super(message);
    this.name = "Told";
  }
}
