/** One API of a provider, as the form that registers a backend fills it in. */
export interface ProviderAddress {
  provider_id: string;
  /** What it is for, in words. */
  serves: string;
  /** A type of `backends.add`. */
  type: string;
  url: string;
  needs_key: boolean;
}

const CHAT = "Chat and embeddings";
const VIDEO = "Video";
const VOICE = "Realtime voice";

const cloud = (provider_id: string, url: string, serves = CHAT, type = "external"): ProviderAddress => ({
  provider_id,
  serves,
  type,
  url,
  needs_key: true,
});

/** On the gateway's own machine, at the port that it has unless told otherwise. */
const own = (provider_id: string, type: string, port: number): ProviderAddress => ({
  provider_id,
  serves: CHAT,
  type,
  url: `http://localhost:${port}`,
  needs_key: false,
});

/** Where the built-in providers are, as their own documentation says; of several APIs, the first is offered first. */
export const PROVIDER_ADDRESSES: readonly ProviderAddress[] = [
  cloud("openai", "https://api.openai.com/v1"),
  cloud("openai", "wss://api.openai.com", VOICE, "cloud-realtime"),
  cloud("anthropic", "https://api.anthropic.com/v1"),
  cloud("google", "https://generativelanguage.googleapis.com/v1beta/openai"),
  cloud("deepseek", "https://api.deepseek.com/v1"),
  cloud("alibaba", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1"),
  cloud("alibaba", "https://dashscope-intl.aliyuncs.com", VIDEO, "dashscope"),
  cloud("alibaba", "wss://dashscope-intl.aliyuncs.com", VOICE, "cloud-realtime"),
  cloud("moonshot", "https://api.moonshot.ai/v1"),
  cloud("zhipu", "https://api.z.ai/api/paas/v4"),
  cloud("minimax", "https://api.minimax.io/v1"),
  cloud("minimax", "https://api.minimax.io", VIDEO, "minimax"),
  cloud("kling", "https://api.klingai.com", VIDEO, "kling"),
  cloud("volcengine", "https://ark.cn-beijing.volces.com/api/v3"),
  cloud("volcengine", "https://ark.cn-beijing.volces.com", VIDEO, "seedance"),
  cloud("mistral", "https://api.mistral.ai/v1"),
  cloud("xai", "https://api.x.ai/v1"),
  cloud("openrouter", "https://openrouter.ai/api/v1"),
  cloud("groq", "https://api.groq.com/openai/v1"),
  own("ollama", "local-server", 11434),
  own("vllm", "vllm", 8000),
  own("llama-cpp", "llama_cpp", 8080),
  own("lm-studio", "lmstudio", 1234),
];
