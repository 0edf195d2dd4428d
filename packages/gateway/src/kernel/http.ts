import { fail } from "./errors.ts";

const BEARER = /^bearer /i;

/** The value of `Authorization: Bearer <value>`; the scheme is case-insensitive. */
export function bearerOf(request: Request): string | null {
  const header = request.headers.get("authorization");
  if (!header || !BEARER.test(header)) return null;
  return header.slice(7).trim() || null;
}

const refuseLarge = (bytesMax: number): never =>
  fail("body_too_large", `The request body is larger than ${bytesMax} bytes; send a smaller one`);

/** The whole body, refused as soon as it is known to be larger than `bytesMax`. */
export function readBody(request: Request, bytesMax: number): Promise<Uint8Array<ArrayBuffer>> {
  const declared = request.headers.get("content-length");
  if (declared === null) return readUndeclared(request, bytesMax);
  if (Number(declared) > bytesMax) refuseLarge(bytesMax);
  // The server holds a sender to its declared length, so this read is bounded.
  return request.bytes();
}

async function readUndeclared(request: Request, bytesMax: number): Promise<Uint8Array<ArrayBuffer>> {
  if (!request.body) return new Uint8Array();
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of request.body as unknown as AsyncIterable<Uint8Array>) {
    size += chunk.length;
    if (size > bytesMax) refuseLarge(bytesMax);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks) as Uint8Array<ArrayBuffer>;
}

export interface UrlParts {
  path: string;
  /** Without the question mark; empty when there is none. */
  search: string;
}

/** Path and query of a request without building a URL object: this runs for every request. */
export function urlParts(url: string): UrlParts {
  const pathStart = url.indexOf("/", url.indexOf("://") + 3);
  if (pathStart === -1) return { path: "/", search: "" };
  const queryStart = url.indexOf("?", pathStart);
  if (queryStart === -1) return { path: url.slice(pathStart), search: "" };
  return { path: url.slice(pathStart, queryStart), search: url.slice(queryStart + 1) };
}
