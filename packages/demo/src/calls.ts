/** Calls of the demonstration's user: by session, and by key. */
export interface Caller {
  rpc<T>(method: string, params: object): Promise<T>;
  /** One streamed chat, read to its end, whatever that is. */
  chat(model: string, content: string): Promise<void>;
}

export async function post(url: string, body: unknown, bearer?: string): Promise<Record<string, unknown>> {
  const response = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json", ...(bearer && { authorization: `Bearer ${bearer}` }) },
    body: JSON.stringify(body),
  });
  const answer = (await response.json()) as Record<string, unknown>;
  if (!response.ok || answer.error)
    throw new Error(`the demonstration could not be set up: ${JSON.stringify(answer.error ?? answer)}`);
  return answer;
}

export async function rpc<T>(
  gatewayUrl: string,
  method: string,
  params: object,
  bearer?: string,
): Promise<T> {
  const call = { jsonrpc: "2.0", id: 1, method, params };
  return (await post(`${gatewayUrl}/api/rpc`, call, bearer)).result as T;
}

export const callerOf = (gatewayUrl: string, { token, key }: { token: string; key: string }): Caller => ({
  rpc: (method, params) => rpc(gatewayUrl, method, params, token),
  async chat(model, content) {
    const answer = await fetch(`${gatewayUrl}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${key}` },
      body: JSON.stringify({ model, stream: true, messages: [{ role: "user", content }] }),
    });
    // Failures are part of the picture.
    await answer.text().catch(() => "");
  },
});
