import { fail } from "../../kernel/errors.ts";
import type { Billing } from "../billing/index.ts";
import type { RoutableModel, Routing } from "../routing/index.ts";
import { type OllamaModel, ollamaModelOf, withTag } from "./voices/ollama/models.ts";

/** Well-known models that are always listed, and routable once a backend serves them. */
const QUICK_START_MODELS: readonly { id: string; owned_by: string }[] = [
  { id: "gpt-6.1-sol", owned_by: "openai" },
  { id: "claude-opus-5-5", owned_by: "anthropic" },
  { id: "gemini-3.8-flash", owned_by: "google" },
  { id: "deepseek-v4-pro", owned_by: "deepseek" },
  { id: "qwen3.7-max", owned_by: "alibaba" },
  { id: "kimi-k3", owned_by: "moonshot" },
];

const notFound = (id: string): never =>
  fail("model_not_found", `No backend available for model: ${id.slice(0, 256)}`);

export class ModelList {
  constructor(
    readonly routing: Pick<Routing, "aliases" | "callableModels">,
    readonly billing: Pick<Billing, "pricing">,
  ) {}

  /** Model routes and models of healthy backends, then the quick-start models that none of them serves. */
  all() {
    const callable = this.routing.callableModels();
    const known = new Set(callable.map(({ id }) => id));
    const head = { object: "model" as const, created: 0 };
    return {
      object: "list" as const,
      data: [
        ...callable.map(({ id, owned_by, available, meta }) => ({
          ...{ id, ...head, owned_by, available },
          ...(meta && { meta }),
        })),
        ...QUICK_START_MODELS.filter(({ id }) => !known.has(id)).map(({ id, owned_by }) => ({
          ...{ id, ...head, owned_by, available: false, quick_start: true as const },
        })),
      ],
    };
  }

  /** Models that can be called now; other vendors' listing formats have no flag for the rest. */
  available() {
    return this.all().data.filter(({ available }) => available);
  }

  one(id: string) {
    return this.all().data.find((each) => each.id === id) ?? notFound(id);
  }

  /** Models that can be called now, in the form of Ollama's API. */
  ollama(): OllamaModel[] {
    return this.routing
      .callableModels()
      .filter(({ available }) => available)
      .map((model) => this.#ollamaOf(model));
  }

  ollamaOne(name: string): OllamaModel {
    const id = this.routing.aliases.resolve(name);
    const found = this.routing.callableModels().find((each) => withTag(each.id) === withTag(id));
    return found ? this.#ollamaOf(found) : notFound(id);
  }

  #ollamaOf(model: RoutableModel): OllamaModel {
    return ollamaModelOf(model, this.billing.pricing.limitsOf(model.id).contextTokens);
  }
}
