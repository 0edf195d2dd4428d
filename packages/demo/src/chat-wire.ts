/** Chat completions as a model server writes them. */
export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
}

export interface ChatIdentity {
  id: string;
  model: string;
  createdSeconds: number;
}

const event = (identity: ChatIdentity, choices: readonly object[], usage?: Usage) => {
  const { id, model, createdSeconds: created } = identity;
  const chunk = { id, object: "chat.completion.chunk", created, model, choices, ...(usage && { usage }) };
  return `data: ${JSON.stringify(chunk)}\n\n`;
};

export const pieceEvent = (identity: ChatIdentity, delta: object): string =>
  event(identity, [{ index: 0, delta, finish_reason: null }]);

/** The finish, the usage and `[DONE]`. */
export const endEvents = (identity: ChatIdentity, finish_reason: string, usage: Usage): string =>
  `${event(identity, [{ index: 0, delta: {}, finish_reason }])}${event(identity, [], usage)}data: [DONE]\n\n`;

/** A whole answer. */
export const completion = (
  { id, model, createdSeconds }: ChatIdentity,
  { message, finishReason, usage }: { message: object; finishReason: string; usage: Usage },
) => ({
  id,
  object: "chat.completion",
  created: createdSeconds,
  model,
  choices: [{ index: 0, message, finish_reason: finishReason }],
  usage,
});
