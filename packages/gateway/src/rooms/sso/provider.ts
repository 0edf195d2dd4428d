import * as oauth from "oauth4webapi";
import type { Clock } from "../../kernel/clock.ts";
import { fail } from "../../kernel/errors.ts";
import type { Log } from "../../kernel/log.ts";
import type { Claims } from "./claims.ts";
import type { Attempt } from "./service.ts";

const DISCOVERY_KEPT_MS = 3600_000;
const REQUEST_TIMEOUT_MS = 10_000;
const ANSWER_BYTES_MAX = 1024 * 1024;
const CLOCK_TOLERANCE_SECONDS = 30;
const ERROR_LENGTH_MAX = 300;

export interface ProviderOptions {
  issuer: string;
  clientId: string;
  clientSecret: string | null;
  scopes: string;
  redirectUri: string;
  clock: Clock;
  log: Log;
  fetch(url: string, init: RequestInit): Promise<Response>;
}

export interface Person {
  issuer: string;
  subject: string;
  claims: Claims;
}

/** The ID token's claims take precedence. Neither source can verify an email that only the other has. */
function merged(more: Claims, idToken: Claims): Claims {
  const naming = [idToken, more].filter(
    ({ email }) => email !== undefined && email === (idToken.email ?? more.email),
  );
  const email_verified = naming.map((claims) => claims.email_verified).find((said) => said !== undefined);
  return { ...more, ...idToken, email_verified };
}

/** OpenID Connect with the one configured provider: authorization code with PKCE, state, nonce and a signed ID token. */
export class OidcProvider {
  readonly #client: oauth.Client;
  readonly #issuer: URL;
  readonly #http;
  #found: { server: Promise<oauth.AuthorizationServer>; atMs: number } | null = null;

  constructor(readonly options: ProviderOptions) {
    this.#issuer = new URL(options.issuer);
    this.#client = { client_id: options.clientId, [oauth.clockTolerance]: CLOCK_TOLERANCE_SECONDS };
    this.#http = {
      [oauth.customFetch]: (url: string, init: unknown) => this.#fetch(url, init as RequestInit),
      // The settings allow http for a provider on this machine only.
      [oauth.allowInsecureRequests]: this.#issuer.protocol === "http:",
    };
  }

  /** Bounds the time and the size of an answer. */
  async #fetch(url: string, init: RequestInit): Promise<Response> {
    const signal = AbortSignal.timeout(REQUEST_TIMEOUT_MS);
    const response = await this.options.fetch(url, { ...init, redirect: "manual", signal });
    const parts: Uint8Array[] = [];
    let bytes = 0;
    for await (const part of response.body ?? []) {
      bytes += part.length;
      if (bytes > ANSWER_BYTES_MAX)
        throw new Error(`the provider's answer is larger than ${ANSWER_BYTES_MAX} bytes`);
      parts.push(part);
    }
    const { status, headers } = response;
    const hasBody = status !== 204 && status !== 304;
    const answer = new Response(hasBody ? Buffer.concat(parts) : null, { status, headers });
    // The library reads the response's URL, which a copy does not have.
    Object.defineProperty(answer, "url", { value: response.url });
    return answer;
  }

  #server(): Promise<oauth.AuthorizationServer> {
    const nowMs = this.options.clock.now();
    if (this.#found && nowMs - this.#found.atMs < DISCOVERY_KEPT_MS) return this.#found.server;
    const server = oauth
      .discoveryRequest(this.#issuer, { algorithm: "oidc", ...this.#http })
      .then((response) => oauth.processDiscoveryResponse(this.#issuer, response))
      .catch((error: unknown) => {
        this.#found = null;
        this.options.log.warn("the sign-in provider does not answer", { issuer: this.options.issuer, error });
        return fail("unavailable", "The sign-in provider cannot be reached right now; try again shortly", {
          retryAfterSeconds: 5,
          cause: error,
        });
      });
    this.#found = { server, atMs: nowMs };
    return server;
  }

  async authorizationUrl({ state, nonce, verifier }: Attempt): Promise<string> {
    const { clientId, scopes, redirectUri } = this.options;
    const server = await this.#server();
    const url = new URL(
      server.authorization_endpoint ??
        fail("unavailable", "The sign-in provider names no authorization endpoint"),
    );
    const parameters = {
      client_id: clientId,
      redirect_uri: redirectUri,
      response_type: "code",
      scope: scopes,
      state,
      nonce,
      code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
      code_challenge_method: "S256",
    };
    for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
    return url.href;
  }

  async accepted(query: URLSearchParams, { state }: Attempt): Promise<URLSearchParams> {
    const server = await this.#server();
    try {
      return oauth.validateAuthResponse(server, this.#client, query, state);
    } catch (error) {
      if (error instanceof oauth.AuthorizationResponseError) {
        const why = (error.error_description ?? error.error).slice(0, ERROR_LENGTH_MAX);
        fail("forbidden", `The sign-in provider refused: ${why}`);
      }
      return this.#refuse(error);
    }
  }

  async redeem(accepted: URLSearchParams, { nonce, verifier }: Attempt): Promise<Person> {
    const server = await this.#server();
    try {
      const response = await oauth.authorizationCodeGrantRequest(
        server,
        this.#client,
        this.#authentication(server),
        accepted,
        this.options.redirectUri,
        verifier,
        this.#http,
      );
      const tokens = await oauth.processAuthorizationCodeResponse(server, this.#client, response, {
        expectedNonce: nonce,
        requireIdToken: true,
      });
      // Checked although the token came over TLS from the provider.
      await oauth.validateApplicationLevelSignature(server, response, this.#http);
      const idToken = oauth.getValidatedIdTokenClaims(tokens)!;
      const more = server.userinfo_endpoint
        ? await oauth
            .userInfoRequest(server, this.#client, tokens.access_token, this.#http)
            .then((answer) => oauth.processUserInfoResponse(server, this.#client, idToken.sub, answer))
        : {};
      return { issuer: idToken.iss, subject: idToken.sub, claims: merged(more, idToken) };
    } catch (error) {
      return this.#refuse(error);
    }
  }

  #authentication({ token_endpoint_auth_methods_supported: methods }: oauth.AuthorizationServer) {
    const { clientSecret } = this.options;
    if (clientSecret === null) return oauth.None();
    const isBasic = methods === undefined || methods.includes("client_secret_basic");
    return isBasic ? oauth.ClientSecretBasic(clientSecret) : oauth.ClientSecretPost(clientSecret);
  }

  #refuse(error: unknown): never {
    const reason = error instanceof Error ? error.message : String(error);
    this.options.log.warn("a sign-in by the provider failed", { issuer: this.options.issuer, reason, error });
    fail(
      "forbidden",
      "Sign-in failed: the provider's answer could not be verified. Try again; the server's log has the reason",
      { cause: error },
    );
  }
}
