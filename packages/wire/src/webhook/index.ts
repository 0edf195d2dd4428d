/** A message to someone else's server. */
export interface Webhook {
  url: string;
  secret: string;
  /** The same for every attempt, so that the receiver can tell a repetition. */
  id: string;
  body: string;
  nowMs: number;
}

export type Post = (url: string, init: RequestInit) => Promise<Response>;

const ANSWER_MS = 10_000;

const keyOf = (secret: string): string | Uint8Array =>
  secret.startsWith("whsec_") ? Buffer.from(secret.slice(6), "base64") : secret;

/** Signed as https://www.standardwebhooks.com has it. Throws when it was not taken. */
export async function postWebhook({ url, secret, id, body, nowMs }: Webhook, post: Post): Promise<void> {
  const seconds = String(Math.floor(nowMs / 1000));
  const signature = new Bun.CryptoHasher("sha256", keyOf(secret))
    .update(`${id}.${seconds}.${body}`)
    .digest("base64");
  const answer = await post(url, {
    method: "POST",
    redirect: "error",
    signal: AbortSignal.timeout(ANSWER_MS),
    headers: {
      "content-type": "application/json",
      "webhook-id": id,
      "webhook-timestamp": seconds,
      "webhook-signature": `v1,${signature}`,
    },
    body,
  });
  await answer.body?.cancel();
  if (!answer.ok) throw new Error(`the webhook answered ${answer.status}`);
}
