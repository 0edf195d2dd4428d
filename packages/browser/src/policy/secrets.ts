/** Secrets that an agent types by their names, on hosts that they are for, and never gets to read. */
import { readFileSync } from "node:fs";
import { z } from "zod";
import { ToolError } from "../errors.ts";
import { isListed } from "./url-policy.ts";

/** A shorter value would be found, and blotted out, in ordinary words. */
const valueCharsMin = 4;
const Secret = z.object({ value: z.string().min(valueCharsMin), hosts: z.array(z.string()).min(1) });
type Secret = z.output<typeof Secret>;

const mention = /\{\{secret:([^{}]+)\}\}/g;

/** The middle of a value's base64, which is the same wherever the value stands in what was encoded. */
const inBase64 = (value: string) =>
  [0, 1, 2].map((before) => {
    const encoded = Buffer.from(" ".repeat(before) + value).toString("base64");
    const whole = Math.floor((before + Buffer.byteLength(value)) / 3) * 4;
    return encoded.slice(before === 0 ? 0 : 4, whole);
  });

const inJson = (text: string) => JSON.stringify(text).slice(1, -1);

/** A value as it may stand in a page, an address, a form, JSON, HTML or a header. */
function spellings(value: string): string[] {
  const inAddress = encodeURIComponent(value);
  const address = URL.parse(`http://x/${value.replace(/[?#]/g, "")}?${value.replace("#", "")}#${value}`);
  const inAttribute = value.replaceAll("&", "&amp;").replaceAll('"', "&quot;");
  const inHtml = value.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  // Styles change the case of what a page shows, and snapshots make one space of several.
  const shown = [value, value.toUpperCase(), value.toLowerCase()].flatMap((each) => [
    each,
    each.replace(/\s+/g, " ").trim(),
  ]);
  const all = [
    ...shown.flatMap((each) => [
      each,
      inJson(each),
      inJson(each).replaceAll("'", "''"),
      inJson(inJson(each)),
    ]),
    inAddress,
    inAddress.replaceAll("%20", "+"),
    new URLSearchParams({ v: value }).toString().slice(2),
    ...[address?.pathname, address?.search, address?.hash].map((part) => part?.slice(1) ?? ""),
    inHtml,
    inHtml.replaceAll('"', "&quot;"),
    inAttribute,
    ...inBase64(value).flatMap((each) => [each, each.replaceAll("+", "-").replaceAll("/", "_")]),
  ];
  return [...new Set(all)].filter((each) => each.length >= valueCharsMin);
}

export class Secrets {
  readonly #byName: Map<string, Secret>;
  /** Longest first, so that a secret in another one leaves nothing of it. */
  readonly #spelled: [spelling: string, name: string][];

  constructor(secrets: Record<string, Secret>) {
    this.#byName = new Map(Object.entries(secrets));
    this.#spelled = Object.entries(secrets)
      .flatMap(([name, { value }]) => spellings(value).map((each): [string, string] => [each, name]))
      .toSorted(([a], [b]) => b.length - a.length);
  }

  static read(path: string): Secrets {
    const parsed = z.record(z.string(), Secret).safeParse(JSON.parse(readFileSync(path, "utf8")));
    if (parsed.success) return new Secrets(parsed.data);
    throw new ToolError(
      "invalid_request",
      `${path} must look like {"name": {"value": "at least ${valueCharsMin} characters", "hosts": ["example.com"]}}.`,
    );
  }

  areIn(text: string): boolean {
    return this.#byName.size > 0 && text.search(mention) !== -1;
  }

  /** The text with its secrets, for a document at this address. */
  fill(text: string, address: string): string {
    if (this.#byName.size === 0) return text;
    return text.replace(mention, (_, name: string) => {
      const secret = this.#byName.get(name);
      if (!secret)
        throw new ToolError(
          "invalid_request",
          `There is no secret "${name}"; there are: ${[...this.#byName.keys()].join(", ")}.`,
        );
      if (!isFor(secret, address))
        throw new ToolError("forbidden", `The secret "${name}" is not for ${address.slice(0, 200)}.`);
      return secret.value;
    });
  }

  /** Those that a document at this address may show. */
  valuesAt(address: string): string[] {
    return [...this.#byName.values()].filter((secret) => isFor(secret, address)).map(({ value }) => value);
  }

  redact(text: string): string {
    let clean = text;
    for (const [spelling, name] of this.#spelled) clean = clean.replaceAll(spelling, `{{secret:${name}}}`);
    return clean;
  }

  /** In the title, the links and the other plain strings of a PDF; its places are known by their offset, so it keeps its length. */
  blotOut(pdf: Buffer): Buffer {
    for (const [spelling] of this.#spelled) {
      const wide = Buffer.from(spelling, "utf16le").swap16();
      const hex = wide.toString("hex");
      const escaped = spelling.replace(/[\\()]/g, "\\$&");
      // As hexadecimal digits too this is text.
      for (const form of [spelling, escaped, hex, hex.toUpperCase(), wide].map((each) => Buffer.from(each)))
        for (let at = pdf.indexOf(form); at !== -1; at = pdf.indexOf(form, at))
          pdf.fill("2", at, at + form.length);
    }
    return pdf;
  }

  /** All texts in a result but pictures and files. */
  redactIn<T>(value: T): T {
    if (this.#byName.size === 0) return value;
    if (typeof value === "string") return this.redact(value) as T;
    if (Array.isArray(value)) return value.map((each) => this.redactIn(each)) as T;
    if (typeof value !== "object" || value === null) return value;
    const isFile = "mime_type" in value || "mimeType" in value;
    return Object.fromEntries(
      Object.entries(value).map(([key, each]) => [
        this.redact(key),
        isFile && key === "data" ? each : this.redactIn(each),
      ]),
    ) as T;
  }
}

function isFor({ hosts }: Secret, address: string): boolean {
  const url = URL.parse(address);
  return url !== null && /^https?:$/.test(url.protocol) && isListed(url.hostname, hosts);
}

export const noSecrets = new Secrets({});
