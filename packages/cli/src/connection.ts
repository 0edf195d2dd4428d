import { chmodSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import {
  type Client,
  createClient,
  type Fetch,
  RpcError,
  type Session,
  type TokenStore,
} from "@model-gateway/client";
import manifest from "../package.json" with { type: "json" };
import { CliError, UsageError } from "./command.ts";
import { type Env, readSecret } from "./secrets.ts";

export interface ConnectionOptions {
  url: string | null;
  key: string | null;
  adminToken: string | null;
  env: Env;
}

interface Saved {
  url: string;
  session: Session | null;
}

const DEFAULT_URL = "http://127.0.0.1:8080";

/** Under this name people see the session in the console, and administrators in the audit log. */
const USER_AGENT = `model-gateway-cli/${manifest.version}`;
const namedFetch: Fetch = (url, init) =>
  fetch(url, {
    ...init,
    headers: { "user-agent": USER_AGENT, ...(init?.headers as Record<string, string>) },
  });

/** Which service to talk to and as whom. For the address: the option, then the environment, then the last login. */
export class Connection {
  readonly url: string;
  /** The address was given, not taken from the last login or assumed. */
  readonly isGiven: boolean;
  readonly key: string | null;
  readonly adminToken: string | null;
  readonly #file: string;
  readonly #env: Env;
  #client: Client | null = null;

  constructor({ url, key, adminToken, env }: ConnectionOptions) {
    this.#file = join(env.XDG_CONFIG_HOME || join(homedir(), ".config"), "model-gateway", "session.json");
    this.isGiven = Boolean(url ?? env.MODEL_GATEWAY_URL);
    this.url = (url ?? env.MODEL_GATEWAY_URL ?? this.#read()?.url ?? DEFAULT_URL).replace(/\/+$/, "");
    if (!/^https?:$/.test(URL.parse(this.url)?.protocol ?? ""))
      throw new UsageError(`${this.url} is not an address; it begins with http:// or https://`);
    this.key = key;
    this.adminToken = adminToken;
    this.#env = env;
  }

  get client(): Client {
    this.#client ??= createClient({
      baseUrl: this.url,
      tokens: this.#tokens(),
      fetch: namedFetch,
      apiKey: () => this.key,
      adminToken: () => this.adminToken,
    });
    return this.#client;
  }

  /** The client, once it is clear that somebody is signed in; where nobody can type, by the environment. */
  async signedIn(): Promise<Client> {
    const email = this.#env.MODEL_GATEWAY_EMAIL;
    const password = readSecret("password", {}, this.#env);
    const canSignIn = email && password !== null;
    // A login that was left over from other data is noticed only when it is used.
    const isIn = (await this.client.ready()) && (!canSignIn || (await this.#isKnown()));
    if (!isIn && !canSignIn) throw new CliError(`not signed in at ${this.url}; run: model-gateway login`);
    if (!isIn) await this.client.signIn({ email: email!, password: password! });
    return this.client;
  }

  #isKnown(): Promise<boolean> {
    return this.client.call("auth.me").then(
      () => true,
      (error: unknown) => {
        if (error instanceof RpcError) return false;
        throw error;
      },
    );
  }

  /** Whether somebody has signed in at this address. */
  get isSignedIn(): boolean {
    const saved = this.#read();
    return saved?.url === this.url && saved.session !== null;
  }

  /** The client, once there is an admin token. */
  asOperator(): Client {
    if (this.adminToken === null)
      throw new CliError("this needs the admin token: set SERVICE_ADMIN_TOKEN, or give --admin-token-file");
    return this.client;
  }

  #read(): Saved | null {
    try {
      return JSON.parse(readFileSync(this.#file, "utf8")) as Saved;
    } catch {
      return null;
    }
  }

  /** A file that only its owner can read. */
  #tokens(): TokenStore {
    return {
      load: () => {
        const saved = this.#read();
        return saved?.url === this.url ? saved.session : null;
      },
      save: (session) => {
        if (!session) {
          rmSync(this.#file, { force: true });
          return;
        }
        mkdirSync(dirname(this.#file), { recursive: true, mode: 0o700 });
        writeFileSync(this.#file, JSON.stringify({ url: this.url, session } satisfies Saved), {
          mode: 0o600,
        });
        chmodSync(this.#file, 0o600);
      },
    };
  }
}
