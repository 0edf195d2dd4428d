import { post, rpc } from "./calls.ts";
import { startDemoModelServer } from "./model-server.ts";

/** Fewer than a key of the tier may send in a minute. */
const REQUESTS_PER_KEY = 100;
/** Well known, so that they have a price. */
const CHAT_MODEL = "gpt-4o-mini";
const EMBEDDING_MODEL = "text-embedding-3-small";
const EMAIL = "warm-up@example.com";
const QUESTION = "How do you do?";

const chat = { model: CHAT_MODEL, messages: [{ role: "user", content: QUESTION }] };
const SHAPES: readonly (readonly [path: string, body: object])[] = [
  ["/v1/chat/completions", chat],
  ["/v1/chat/completions", { ...chat, stream: true }],
  ["/v1/messages", { ...chat, max_tokens: 100 }],
  ["/v1/responses", { model: CHAT_MODEL, input: QUESTION, store: false }],
  ["/v1/embeddings", { model: EMBEDDING_MODEL, input: QUESTION }],
];

interface WarmUpOptions {
  gatewayUrl: string;
  adminToken: string;
  rounds: number;
}

/** Sends requests of each common shape, one after the other, to a service that nobody else uses. */
export async function warmUp({ gatewayUrl, adminToken, rounds }: WarmUpOptions): Promise<void> {
  const models = startDemoModelServer({ models: [CHAT_MODEL, EMBEDDING_MODEL] });
  try {
    const account = { email: EMAIL, password: crypto.randomUUID() };
    const { access_token: token } = await rpc<{ access_token: string }>(gatewayUrl, "auth.register", account);
    await rpc(gatewayUrl, "billing.plan.set", { user_email: EMAIL, tier: "pro" }, adminToken);
    await post(`${gatewayUrl}/api/admin/backends`, { type: "external", url: models.url }, adminToken);
    let key = "";
    for (let sent = 0; sent < rounds * SHAPES.length; sent++) {
      if (sent % REQUESTS_PER_KEY === 0)
        ({ key } = await rpc<{ key: string }>(gatewayUrl, "keys.create", { name: "warm-up" }, token));
      const [path, body] = SHAPES[sent % SHAPES.length]!;
      const headers = { "content-type": "application/json", authorization: `Bearer ${key}` };
      const answer = await fetch(gatewayUrl + path, { method: "POST", headers, body: JSON.stringify(body) });
      const text = await answer.text();
      if (!answer.ok) throw new Error(`${path} was answered with ${answer.status}: ${text}`);
    }
  } finally {
    await models.stop();
  }
}
