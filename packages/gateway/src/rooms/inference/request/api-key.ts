import { Reply } from "@model-gateway/wire/http";
import type { RateLimiter } from "../../../bus/contract.ts";
import type { Keys, Principal } from "../../keys/index.ts";

const WINDOW_MS = 60_000;
const UNAUTHORIZED = "Missing or invalid API key; send it as Authorization: Bearer service-<uuid>\n";
const TOO_MANY = "Rate limit exceeded. Try again later.";

export interface ApiKeyGate {
  keys: Keys;
  limiter: RateLimiter;
  /** Requests a minute that each key may make. */
  rpm: number;
}

const plain = (status: number, text: string, requestId: string, headers = {}): Reply =>
  new Reply({ status, contentType: "text/plain; charset=utf-8", requestId, headers }, text);

/**
 * Who the key stands for, or the refusal, which is plain text here and not the JSON shape. Synchronous
 * when the key is cached.
 */
export function requireApiKey(
  gate: ApiKeyGate,
  secret: string | null,
  requestId: string,
): Principal | Reply | Promise<Principal | Reply> {
  const found = secret === null ? null : gate.keys.authenticate(secret);
  return found instanceof Promise
    ? found.then((principal) => limit(gate, principal, requestId))
    : limit(gate, found, requestId);
}

function limit(
  { limiter, rpm }: ApiKeyGate,
  principal: Principal | null,
  requestId: string,
): Principal | Reply | Promise<Principal | Reply> {
  if (!principal) return plain(401, UNAUTHORIZED, requestId, { "www-authenticate": "Bearer" });
  const decide = (waitMs: number) => (waitMs > 0 ? plain(429, TOO_MANY, requestId) : principal);
  const hit = limiter.hit(`api:${principal.keyId}`, rpm, WINDOW_MS);
  return typeof hit === "number" ? decide(hit) : hit.then(decide);
}
