/** Anthropic's clients send this header with every request; they get models in Anthropic's form. */
export const VERSION_HEADER = "anthropic-version";

export const messagesModelOf = ({ id, created }: { id: string; created: number }) => ({
  type: "model" as const,
  id,
  display_name: id,
  created_at: new Date(created * 1000).toISOString(),
});

export const messagesModelsOf = (models: readonly { id: string; created: number }[]) => ({
  data: models.map(messagesModelOf),
  has_more: false,
  first_id: models[0]?.id ?? null,
  last_id: models.at(-1)?.id ?? null,
});
