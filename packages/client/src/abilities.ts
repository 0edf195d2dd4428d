/** What a model's name says that it does, where its server does more than one thing and does not tell which. */
const BY_NAME: readonly (readonly [RegExp, string])[] = [
  [/embed|\b(bge|gte|e5)-/i, "embeddings"],
  [/rerank/i, "rerank"],
  [/whisper|transcri/i, "transcription"],
  [/\btts\b|speech/i, "speech"],
  [/realtime/i, "realtime"],
  [/moderation/i, "moderation"],
  [/dall-e|\bimage|flux|diffusion/i, "images"],
  [/video|[ti]2v\b|\bwan\d/i, "video"],
];

const TOLD: ReadonlySet<string> = new Set(["chat", "video"]);

/** What a model does, as far as its backend and its name tell. */
export function abilitiesOf({ id, capabilities }: { id: string; capabilities: string[] }): string[] {
  const [, named] =
    BY_NAME.find(([words, ability]) => capabilities.includes(ability) && words.test(id)) ?? [];
  if (named) return [named];
  // Of engines on nodes it is known whether they make videos; of servers with chats the rest is not.
  return capabilities.includes("chat") ? capabilities.filter((each) => TOLD.has(each)) : capabilities;
}
