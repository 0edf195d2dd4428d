/** Who may talk to the server: only this machine, only by its own name, and never a web page. */
import { timingSafeEqual } from "node:crypto";
import { ToolError } from "../errors.ts";

export interface SafetyOptions {
  port: number;
  token: string | null;
}

function isSameToken(given: string, wanted: string): boolean {
  const hash = (text: string) => new Bun.CryptoHasher("sha256").update(text).digest();
  return timingSafeEqual(hash(given), hash(wanted));
}

/** Throws when a request must not be served. */
export function checkRequest(request: Request, { port, token }: SafetyOptions): void {
  // A page that rebinds its name to this address still sends its own name.
  const allowedHosts = [`127.0.0.1:${port}`, `localhost:${port}`, `[::1]:${port}`];
  const host = request.headers.get("host") ?? "";
  if (!allowedHosts.includes(host.toLowerCase()))
    throw new ToolError("forbidden", `Host "${host}" is not served. Use http://127.0.0.1:${port}.`);
  const origin = request.headers.get("origin");
  if (origin !== null && !allowedHosts.some((allowed) => origin.toLowerCase() === `http://${allowed}`))
    throw new ToolError("forbidden", "Requests from web pages are refused.");
  const site = request.headers.get("sec-fetch-site");
  if (site !== null && site !== "same-origin" && site !== "none")
    throw new ToolError("forbidden", "Requests from web pages are refused.");
  if (token !== null) {
    const given = /^Bearer (.+)$/i.exec(request.headers.get("authorization") ?? "")?.[1] ?? "";
    if (!isSameToken(given, token))
      throw new ToolError(
        "unauthorized",
        "Send the token given with --token as Authorization: Bearer <token>.",
      );
  }
  const type = request.headers.get("content-type")?.split(";")[0]?.trim().toLowerCase();
  if (request.method === "POST" && type !== "application/json")
    throw new ToolError(
      "unsupported_media_type",
      "Send the body as JSON with Content-Type: application/json.",
    );
}
