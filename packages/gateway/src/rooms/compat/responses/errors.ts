import type { ChatFailure } from "../failure.ts";

/** A failure as OpenAI's clients read it. */
export const errorBody = ({ message, type, code }: ChatFailure) => ({
  error: { message, type, param: null, code },
});
