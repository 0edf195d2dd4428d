import { nearness, type SessionOf } from "../../kernel/affinity.ts";
import { isObject, objectIn } from "../../kernel/json.ts";
import { keepSecret } from "../../kernel/secrets.ts";
import { type BackendConfig, type BackendDeps, BackendError, type RefusedKey } from "../contract.ts";
import { fetchUpstream, readJson } from "./upstream-http.ts";

/** A refused key is not used for this time if there are others. */
const SET_ASIDE_MS = 10 * 60_000;
const SHOWN_CHARS = 4;

const SCOPE = "https://www.googleapis.com/auth/cloud-platform";
const TOKEN_URL = "https://oauth2.googleapis.com/token";
const GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const ASSERTION_SECONDS = 3_600;
/** Tokens are renewed this long before they expire. */
const RENEW_BEFORE_MS = 5 * 60_000;
const EXCHANGE_MS_MAX = 10_000;
/** Hidden in logs: the assertion and the token of this exchange and of the one before, which calls may still use. */
const KEPT_SECRETS = 4;

interface Key {
  text: string;
  account: ServiceAccount | null;
  asideUntilMs: number;
}

const isKeyFile = (text: string): boolean => text.trimStart().startsWith("{");

/** The operator's keys, separated by spaces or commas; or the key file of one service account. */
export function keysIn(apiKey: string | null): string[] {
  if (apiKey === null) return [];
  return isKeyFile(apiKey) ? [apiKey] : apiKey.split(/[\s,]+/).filter((key) => key !== "");
}

const endOf = ({ account, text }: Key): string => account?.email ?? text.slice(-SHOWN_CHARS);

/** A backend's keys, used in turn. A session keeps its key, because the key's account has its prompt cached. */
export class Keys {
  readonly #keys: Key[];
  #turn = 0;
  onRefused: (() => void) | null = null;

  constructor(
    { apiKey }: BackendConfig,
    readonly deps: Pick<BackendDeps, "fetch" | "clock">,
  ) {
    this.#keys = keysIn(apiKey).map((text) => ({
      text,
      account: isKeyFile(text) ? new ServiceAccount(text, deps) : null,
      asideUntilMs: 0,
    }));
  }

  get isFixed(): boolean {
    return this.#keys.length === 0 || (this.#keys.length === 1 && this.#keys[0]!.account === null);
  }
  get fixed(): string | null {
    return this.#keys[0]?.text ?? null;
  }

  /** Tries one key after the other. Keys count as refused only if another was accepted for the same request. */
  async use<T>(
    session: SessionOf | undefined,
    send: (key: string | null) => Promise<T>,
    { isListing = false } = {},
  ): Promise<T> {
    if (this.isFixed) return send(this.fixed);
    const refused: Key[] = [];
    for (;;) {
      const key = this.#next(session, refused);
      try {
        const answer = await send(key.account ? await key.account.token() : key.text);
        // A key that may not list models may chat.
        if (isListing || refused.length === 0) return answer;
        for (const each of refused) each.asideUntilMs = this.deps.clock.now() + SET_ASIDE_MS;
        this.onRefused?.();
        return answer;
      } catch (error) {
        const status = error instanceof BackendError ? error.status : 0;
        if (status === 401) key.account?.forget();
        if (refused.push(key) === this.#keys.length || (status !== 401 && status !== 403)) throw error;
      }
    }
  }

  /** If all are set aside, the one that was refused first. */
  #next(sessionOf: SessionOf | undefined, refused: readonly Key[]): Key {
    const nowMs = this.deps.clock.now();
    const left = this.#keys.filter((key) => !refused.includes(key));
    const usable = left.filter(({ asideUntilMs }) => asideUntilMs <= nowMs);
    if (usable.length === 0) return left.reduce((a, b) => (b.asideUntilMs < a.asideUntilMs ? b : a));
    const session = usable.length > 1 ? sessionOf?.() : null;
    if (!session) return usable[this.#turn++ % usable.length]!;
    const near = ({ text }: Key) => nearness(session, text);
    return usable.reduce((a, b) => (near(b) > near(a) ? b : a));
  }

  refused(): RefusedKey[] {
    const nowMs = this.deps.clock.now();
    return this.#keys.flatMap((key) =>
      key.asideUntilMs > nowMs ? { endsWith: endOf(key), untilMs: key.asideUntilMs } : [],
    );
  }

  setAside(refused: readonly RefusedKey[]): void {
    for (const { endsWith, untilMs } of refused)
      for (const key of this.#keys) if (endOf(key) === endsWith) key.asideUntilMs = untilMs;
  }

  close(): void {
    for (const { account } of this.#keys) account?.close();
  }
}

function serviceAccountIn(json: string) {
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

/** A Google service account signs an assertion with its key; Google exchanges it for a token of an hour. */
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

  #keep(secret: string): void {
    if (this.#forgetSecrets.push(keepSecret(secret)) > KEPT_SECRETS) this.#forgetSecrets.shift()!();
  }

  token(): Promise<string> {
    if (this.deps.clock.now() >= this.#renewAtMs) {
      // Calls that come meanwhile wait for the same exchange.
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
