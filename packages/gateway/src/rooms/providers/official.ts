import type { Provider } from "./service.ts";

const official = (id: string, name: string, website_domain: string, description: string): Provider => ({
  id,
  name,
  description,
  website_domain,
  is_official: true,
  is_operator: false,
});

/** Display metadata of well-known providers; always listed, never changed or removed. */
export const OFFICIAL_PROVIDERS: readonly Provider[] = [
  official("openai", "OpenAI", "openai.com", "GPT models, embeddings and realtime voice"),
  official("anthropic", "Anthropic", "anthropic.com", "Claude models"),
  official("google", "Google", "ai.google.dev", "Gemini models"),
  official("deepseek", "DeepSeek", "deepseek.com", "DeepSeek chat and reasoning models"),
  official("alibaba", "Alibaba Cloud", "alibabacloud.com", "Qwen and Wan models through DashScope"),
  official("moonshot", "Moonshot AI", "moonshot.ai", "Kimi models"),
  official("zhipu", "Z.ai", "z.ai", "GLM models"),
  official("minimax", "MiniMax", "minimax.io", "MiniMax text and Hailuo video models"),
  official("kling", "Kling AI", "klingai.com", "Kling video models"),
  official("volcengine", "Volcengine", "volcengine.com", "Seedance video models"),
  official("mistral", "Mistral AI", "mistral.ai", "Mistral models"),
  official("xai", "xAI", "x.ai", "Grok models"),
  official("openrouter", "OpenRouter", "openrouter.ai", "Models of many providers behind one key"),
  official("groq", "Groq", "groq.com", "Open models on fast hardware"),
  official("ollama", "Ollama", "ollama.com", "Open models served on your own machines"),
  official("vllm", "vLLM", "vllm.ai", "Open models on your own GPUs, many requests at once"),
  official("llama-cpp", "llama.cpp", "github.com/ggml-org/llama.cpp", "GGUF models on CPUs and GPUs"),
  official("lm-studio", "LM Studio", "lmstudio.ai", "Models on a desktop"),
];
