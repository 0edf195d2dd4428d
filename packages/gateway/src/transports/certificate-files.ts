import { readFileSync } from "node:fs";
import type { Certificate } from "@model-gateway/wire/server";
import { type Clock, isoTime } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";

/** The files are read again and again: renewals replace them, or links to them, in ways that file watches miss. */
const READ_EVERY_MS = 5_000;

interface Loaded extends Certificate {
  expiresAtMs: number;
}

export class CertificateFiles {
  #loaded: Loaded;
  #problem = "";
  readonly #endReading: () => void;

  constructor(readonly options: { certFile: string; keyFile: string; clock: Clock; log: Log }) {
    const { clock } = options;
    this.#loaded = this.#load();
    this.#warnIfExpired();
    this.#endReading = clock.every(READ_EVERY_MS, () => this.#reload());
  }

  get current(): Certificate {
    return this.#loaded;
  }
  get expiresAtMs(): number {
    return this.#loaded.expiresAtMs;
  }

  close(): void {
    this.#endReading();
  }

  #load(): Loaded {
    const { certFile, keyFile } = this.options;
    const cert = read(certFile, "SERVICE_TLS_CERT");
    const key = read(keyFile, "SERVICE_TLS_KEY");
    const { createPrivateKey, X509Certificate } = process.getBuiltinModule("node:crypto");
    const parsed = attempt(
      `SERVICE_TLS_CERT: ${certFile} is not a certificate in PEM`,
      () => new X509Certificate(cert),
    );
    const isItsKey = attempt(
      `SERVICE_TLS_KEY: ${keyFile} is not a private key in PEM without a passphrase`,
      () => parsed.checkPrivateKey(createPrivateKey(key)),
    );
    if (!isItsKey)
      throw new Error(`SERVICE_TLS_KEY: ${keyFile} is not the key of the certificate in ${certFile}`);
    return { cert, key, expiresAtMs: Date.parse(parsed.validTo) };
  }

  /** The files are rarely replaced at the same moment: until they match, the old ones stay in use. */
  #reload(): void {
    const { log } = this.options;
    try {
      const loaded = this.#load();
      this.#problem = "";
      if (loaded.cert === this.#loaded.cert && loaded.key === this.#loaded.key) return;
      this.#loaded = loaded;
      log.info("the TLS certificate was renewed", { expires_at: isoTime(loaded.expiresAtMs) });
      this.#warnIfExpired();
    } catch (error) {
      const problem = String(error);
      if (problem === this.#problem) return;
      this.#problem = problem;
      log.warn("the TLS files cannot be used; the certificate before stays in use", { error });
    }
  }

  #warnIfExpired(): void {
    const { clock, log } = this.options;
    if (this.#loaded.expiresAtMs <= clock.now())
      log.warn("the TLS certificate has expired; clients will refuse it", {
        expired_at: isoTime(this.#loaded.expiresAtMs),
      });
  }
}

function read(path: string, setting: string): string {
  return attempt(`${setting}: ${path} cannot be read`, () => readFileSync(path, "utf8"));
}

function attempt<T>(problem: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw new Error(problem, { cause: error });
  }
}
