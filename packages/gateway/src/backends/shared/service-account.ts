import { isObject, objectIn } from "../../kernel/json.ts";
import { keepSecret } from "../../kernel/secrets.ts";
import { type BackendDeps, BackendError } from "../contract.ts";
import { fetchUpstream, readJson } from "./upstream-http.ts";

const SCOPE = "https://www.googleapis.com/auth/cloud-platform";
const TOKEN_URL = "https://oauth2.googleapis.com/token";
const GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const ASSERTION_SECONDS = 3_600;
/** A token is renewed this long before it ends. */
const RENEW_BEFORE_MS = 5 * 60_000;
const EXCHANGE_MS_MAX = 10_000;
/** The assertion and the token of this exchange and of the last. */
const KEPT_SECRETS = 4;

/** The members of a key file that are needed; null when it is not one. */
export function serviceAccountIn(json: string) {
  const {
    client_email: email,
    private_key: privateKey,
    token_uri: tokenUrl = TOKEN_URL,
  } = objectIn(json) ?? {};
  if (typeof email !== "string" || typeof privateKey !== "string" || typeof tokenUrl !== "string")
    return null;
  return { email, privateKey, tokenUrl };
}

const encoded = (value: object): string => Buffer.from(JSON.stringify(value)).toString("base64url");

/** A Google service account: signs an assertion with its key, which Google exchanges for a token of an hour. */
export class ServiceAccount {
  readonly #account: ReturnType<typeof serviceAccountIn>;
  #token: Promise<string> = Promise.resolve("");
  #renewAtMs = 0;
  readonly #forgetSecrets: (() => void)[] = [];

  constructor(
    json: string,
    readonly deps: Pick<BackendDeps, "fetch" | "clock">,
  ) {
    this.#account = serviceAccountIn(json);
  }

  get email(): string {
    return this.#account?.email ?? "";
  }

  forget(): void {
    this.#renewAtMs = 0;
  }

  close(): void {
    for (const forget of this.#forgetSecrets.splice(0)) forget();
  }

  /** Old ones are in use until the calls that have them end. */
  #keep(secret: string): void {
    if (this.#forgetSecrets.push(keepSecret(secret)) > KEPT_SECRETS) this.#forgetSecrets.shift()!();
  }

  token(): Promise<string> {
    if (this.deps.clock.now() >= this.#renewAtMs) {
      // Those who ask meanwhile wait for the same exchange.
      this.#renewAtMs = Number.POSITIVE_INFINITY;
      this.#token = this.#exchange().catch((error) => {
        this.forget();
        throw new BackendError(
          "upstream",
          `no token for the service account: ${(error as Error).message}`,
          401,
        );
      });
    }
    return this.#token;
  }

  async #exchange(): Promise<string> {
    if (!this.#account) throw new Error("`api_key` is not the JSON of a key file");
    const { email, privateKey, tokenUrl } = this.#account;
    const nowSeconds = Math.floor(this.deps.clock.now() / 1000);
    const claims = {
      iss: email,
      scope: SCOPE,
      aud: tokenUrl,
      iat: nowSeconds,
      exp: nowSeconds + ASSERTION_SECONDS,
    };
    const signed = `${encoded({ alg: "RS256", typ: "JWT" })}.${encoded(claims)}`;
    const { sign } = process.getBuiltinModule("node:crypto");
    const signature = sign("RSA-SHA256", Buffer.from(signed), privateKey).toString("base64url");
    const assertion = `${signed}.${signature}`;
    this.#keep(assertion);
    const signal = AbortSignal.timeout(EXCHANGE_MS_MAX);
    const answer = await fetchUpstream(this.deps.fetch, {
      url: tokenUrl,
      headers: { "content-type": "application/x-www-form-urlencoded", accept: "application/json" },
      signal,
      body: new URLSearchParams({ grant_type: GRANT, assertion }).toString(),
    });
    const body = await readJson(answer, signal);
    const { access_token: text, expires_in: seconds } = isObject(body) ? body : {};
    if (typeof text !== "string") throw new Error("the token endpoint answered without one");
    this.#keep(text);
    const lifeMs = (Number(seconds) > 0 ? Number(seconds) : ASSERTION_SECONDS) * 1000;
    this.#renewAtMs = this.deps.clock.now() + Math.max(lifeMs / 2, lifeMs - RENEW_BEFORE_MS);
    return text;
  }
}
