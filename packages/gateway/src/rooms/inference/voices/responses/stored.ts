import type { StoredTurn } from "./request.ts";

interface AskedTurn {
  previousResponseId: string | null;
  input: unknown;
}

/** Stored responses as one request of a user may use them. */
export interface CallerResponses {
  /** All turns that lead to a response, oldest first. Another user's looks like none at all. */
  history(responseId: string): Promise<StoredTurn[]>;
  /** What stores the turn with the JSON of its response, and says whether it could; null when it is too large already. */
  turn(asked: AskedTurn): ((responseJson: string) => boolean) | null;
}
