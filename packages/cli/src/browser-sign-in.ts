import { CLI_SIGN_IN_PATH, type Client, cliConfirmation, cliSignInQuery } from "@model-gateway/client";
import { CliError } from "./command.ts";

/** How long the browser may take. */
const WAIT_MS = 10 * 60_000;
const LAST_PAGE_MS = 1_000;

/** What opens an address on this system; null where nothing does. */
function opener(): string[] | null {
  if (process.platform === "darwin") return ["open"];
  if (process.platform === "win32") return ["rundll32", "url.dll,FileProtocolHandler"];
  const found = Bun.which("xdg-open");
  return found === null ? null : [found];
}

function openBrowser(url: string): void {
  const command = opener();
  if (command) Bun.spawn([...command, url], { stdio: ["ignore", "ignore", "ignore"] }).unref();
}

const secret = (): string =>
  crypto.getRandomValues(new Uint8Array(32)).toBase64({ alphabet: "base64url", omitPadding: true });

function page(title: string, text: string, status = 200): Response {
  const html = `<!doctype html><html lang="en"><meta charset="utf-8"><title>${title}</title><h1>${title}</h1><p>${text}`;
  return new Response(html, {
    status,
    headers: {
      "content-type": "text/html; charset=utf-8",
      "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
      "cache-control": "no-store",
      "referrer-policy": "no-referrer",
    },
  });
}

interface BrowserSignIn {
  client: Client;
  url: string;
  /** The listener's port; 0 takes a free one. */
  port: number;
  say(text: string): void;
}

/**
 * Signs in by way of the console: the browser brings a code back to a listener on this machine. The code works once
 * and only with the verifier, which stays in this process, so reading the address in passing gains nothing.
 */
export async function signInWithBrowser({ client, url, port, say }: BrowserSignIn): Promise<void> {
  const verifier = secret();
  const state = secret();
  const challenge = new Bun.CryptoHasher("sha256").update(verifier).digest("base64url");
  const signedIn = Promise.withResolvers<void>();
  let isTaken = false;

  const server = Bun.serve({
    hostname: "127.0.0.1",
    port,
    async fetch(request, { port: own }) {
      const { pathname, searchParams } = new URL(request.url);
      const isOurs =
        request.method === "GET" &&
        pathname === "/" &&
        // A name that resolves to this machine is another site's.
        request.headers.get("host") === `127.0.0.1:${own}` &&
        searchParams.get("state") === state;
      if (!isOurs || isTaken) return page("Not found", "Nothing is waiting for this.", 404);
      isTaken = true;
      const code = searchParams.get("code");
      if (code === null) {
        signedIn.reject(new CliError("the sign-in was cancelled in the browser"));
        return page("Cancelled", "Nobody was signed in. You can close this tab.");
      }
      try {
        await client.accept(await client.call("auth.cli.redeem", { code, verifier }));
      } catch (error) {
        signedIn.reject(error);
        return page("Sign-in failed", "The terminal says why. You can close this tab.", 400);
      }
      signedIn.resolve();
      return page("Signed in", "Go on in the terminal. You can close this tab.");
    },
  });
  const late = setTimeout(
    () => signedIn.reject(new CliError("nobody signed in within ten minutes; run it again")),
    WAIT_MS,
  );
  try {
    const at = `${url}${CLI_SIGN_IN_PATH}?${cliSignInQuery({ port: server.port!, challenge, state })}`;
    say(`Open this address in a browser on this computer:\n\n  ${at}\n`);
    say(`Sign in there if the page shows the code ${cliConfirmation(challenge)}`);
    if (process.stderr.isTTY) openBrowser(at);
    await signedIn.promise;
  } finally {
    clearTimeout(late);
    // The last page is still on its way to the browser, which may keep its connection open.
    await Promise.race([server.stop(), Bun.sleep(LAST_PAGE_MS)]);
    await server.stop(true);
  }
}
