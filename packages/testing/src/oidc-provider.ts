import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Config } from "@model-gateway/gateway/config.ts";
import { exportJWK, generateKeyPair, type JWTPayload, SignJWT } from "jose";
// @ts-expect-error the package brings no types
import { Provider } from "oidc-provider";

const CLIENT = { client_id: "gateway", client_secret: "a-secret-of-the-gateway" };

/** What the provider says about a person, by their login there. */
export type People = Map<string, Record<string, unknown>>;

export interface TestProvider {
  issuer: string;
  people: People;
  /** Changes the ID token on its way to the gateway; it gets the claims and a function that signs as the provider does. */
  tamper: ((claims: JWTPayload, sign: (claims: JWTPayload) => Promise<string>) => Promise<string>) | null;
  /** Settings of a gateway that is open to browsers at `publicUrl`. */
  settings(publicUrl: string): Partial<Config>;
  /** Signs in at the provider's page, without a browser; returns the query that it sends the browser back with. */
  visit(url: string, login: string): Promise<string>;
  stop(): void;
}

/** The certified provider from npm on a free port, where any password is right. */
export async function startProvider(gatewayUrl: string): Promise<TestProvider> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const { privateKey } = await generateKeyPair("RS256", { extractable: true });
  const kid = "test";
  const key = { ...(await exportJWK(privateKey)), kid, alg: "RS256", use: "sig" };
  const people: People = new Map();
  const provider = new Provider(issuer, {
    clients: [{ ...CLIENT, redirect_uris: [`${gatewayUrl}/signed-in`] }],
    jwks: { keys: [key] },
    cookies: { keys: ["a key for cookies"] },
    claims: {
      openid: ["sub"],
      email: ["email", "email_verified"],
      profile: ["name"],
      groups: ["groups", "realm_access"],
    },
    pkce: { required: () => true },
    findAccount: (_: unknown, id: string) => ({
      accountId: id,
      claims: () => ({ sub: id, ...people.get(id) }),
    }),
    // Everyone has agreed to everything.
    async loadExistingGrant(context: {
      oidc: { client: { clientId: string }; session: { accountId: string }; params: { scope: string } };
    }) {
      const { client, session, params } = context.oidc;
      const grant = new provider.Grant({ clientId: client.clientId, accountId: session.accountId });
      grant.addOIDCScope(params.scope);
      await grant.save();
      return grant;
    },
  });
  provider.use(
    async (context: { oidc?: { route: string }; body: { id_token?: string } }, next: () => unknown) => {
      await next();
      const token = context.oidc?.route === "token" ? context.body.id_token : undefined;
      if (!made.tamper || token === undefined) return;
      const claims = JSON.parse(Buffer.from(token.split(".")[1]!, "base64url").toString()) as JWTPayload;
      const sign = (changed: JWTPayload) =>
        new SignJWT(changed).setProtectedHeader({ alg: "RS256", kid }).sign(privateKey);
      context.body.id_token = await made.tamper(claims, sign);
    },
  );
  server.on("request", provider.callback());

  const made: TestProvider = {
    issuer,
    people,
    tamper: null,
    settings: (publicUrl) => ({
      port: Number(new URL(publicUrl).port),
      publicUrl,
      oidcIssuer: issuer,
      oidcClientId: CLIENT.client_id,
      oidcClientSecret: CLIENT.client_secret,
      oidcScopes: "openid email profile groups",
    }),
    visit: (url, login) => walk(url, login),
    stop: () => {
      server.closeAllConnections();
      server.close();
    },
  };
  return made;
}

const STEPS_MAX = 12;

/** What a browser does at the provider: follows redirects, keeps cookies, sends the one form. */
async function walk(start: string, login: string): Promise<string> {
  const cookies = new Map<string, string>();
  let url = new URL(start);
  let form: string | null = null;
  for (let step = 0; step < STEPS_MAX; step++) {
    const response: Response = await fetch(url, {
      method: form === null ? "GET" : "POST",
      redirect: "manual",
      headers: {
        cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join("; "),
        ...(form !== null && { "content-type": "application/x-www-form-urlencoded" }),
      },
      ...(form !== null && { body: form }),
    });
    for (const line of response.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(line)!;
      cookies.set(name!, value!);
    }
    const next = response.headers.get("location");
    if (next !== null) {
      url = new URL(next, url);
      form = null;
      if (url.pathname === "/signed-in") return url.search.slice(1);
      continue;
    }
    const text = await response.text();
    if (form !== null || !text.includes("<form"))
      throw new Error(`the provider says ${response.status}: ${text}`);
    const action = /action="([^"]+)"/.exec(text)?.[1] ?? url.href;
    url = new URL(action, url);
    form = new URLSearchParams({ prompt: "login", login, password: "any" }).toString();
  }
  throw new Error("the provider did not send the browser back");
}
