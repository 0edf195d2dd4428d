/** Well-known models that are always advertised; each is routable once a backend serves it. */
export const QUICK_START_MODELS: readonly { id: string; owned_by: string }[] = [
  { id: "gpt-6.1-sol", owned_by: "openai" },
  { id: "claude-opus-5-5", owned_by: "anthropic" },
  { id: "gemini-3.8-flash", owned_by: "google" },
  { id: "deepseek-v4-pro", owned_by: "deepseek" },
  { id: "qwen3.7-max", owned_by: "alibaba" },
  { id: "kimi-k3", owned_by: "moonshot" },
];
