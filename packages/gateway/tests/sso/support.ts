import { type BootOptions, bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { startProvider, type TestProvider } from "@model-gateway/testing/oidc-provider.ts";
import { freePort } from "@model-gateway/testing/services.ts";

export interface Tokens {
  access_token: string;
  refresh_token: string;
  user: { id: string; email: string; name: string; is_admin: boolean };
}

export interface Answer {
  status: number;
  /** Of a success. */
  session: Tokens | null;
  return_to: string;
  /** Of a refusal. */
  message: string;
}

/** A gateway with a sign-in provider, and a browser without a window in front of both. */
export interface Sso {
  gateway: TestGateway;
  provider: TestProvider;
  begin(body?: Record<string, unknown>, bearer?: string): Promise<{ url: string; cookie: string }>;
  finish(query: string, cookie: string, bearer?: string): Promise<Answer>;
  /** The whole way. */
  signIn(login: string, body?: Record<string, unknown>, bearer?: string): Promise<Answer>;
  stop(): Promise<void>;
}

export async function openSso({ config, ...boot }: BootOptions = {}): Promise<Sso> {
  const url = `http://127.0.0.1:${await freePort()}`;
  const provider = await startProvider(url);
  const gateway = await bootGateway({ ...boot, config: { ...provider.settings(url), ...config } });
  const post = (path: string, body: unknown, headers: Record<string, string> = {}) =>
    fetch(`${gateway.url}/api/auth/oidc/${path}`, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body: JSON.stringify(body),
    });
  const sso: Sso = {
    gateway,
    provider,
    async begin(body = {}, bearer) {
      const answer = await post(
        bearer ? "link" : "start",
        body,
        bearer ? { authorization: `Bearer ${bearer}` } : {},
      );
      if (!answer.ok) throw new Error(await answer.text());
      const set = answer.headers.get("set-cookie") ?? "";
      return { url: ((await answer.json()) as { url: string }).url, cookie: set.split(";")[0]! };
    },
    async finish(query, cookie, bearer) {
      const answer = await post(
        "finish",
        { query },
        { cookie, ...(bearer && { authorization: `Bearer ${bearer}` }) },
      );
      const body = (await answer.json()) as Answer & { error?: { message: string } };
      return { ...body, status: answer.status, message: body.error?.message ?? "" };
    },
    async signIn(login, body, bearer) {
      const { url: page, cookie } = await sso.begin(body, bearer);
      return sso.finish(await provider.visit(page, login), cookie, bearer);
    },
    async stop() {
      await gateway.stop();
      provider.stop();
    },
  };
  return sso;
}

/** Someone whose address the provider has verified. */
export const verified = (email: string, more: Record<string, unknown> = {}) => ({
  email,
  email_verified: true,
  ...more,
});
