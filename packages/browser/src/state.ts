/** Cookies and local storage in a file, so that the next start is signed in; encrypted where a key is given. */
import { createCipheriv, createDecipheriv, randomBytes, scryptSync } from "node:crypto";
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { z } from "zod";
import type { Params } from "./cdp/connection.ts";
import { ToolError } from "./errors.ts";
import type { Browser } from "./page/browser.ts";
import { Deadline } from "./page/deadline.ts";

const visitMsMax = 3_000;

const State = z.object({
  cookies: z.array(z.looseObject({ name: z.string(), value: z.string() })),
  /** Local storage by origin. */
  storage: z.record(z.string(), z.record(z.string(), z.string())),
});
type State = z.output<typeof State>;
const Encrypted = z.object({ salt: z.string(), iv: z.string(), tag: z.string(), encrypted: z.string() });

export interface StateFile {
  path: string;
  key: string | null;
}

const bytes = (text: string) => Buffer.from(text, "base64");

function decrypt(text: string, { path, key }: StateFile): string {
  const sealed = Encrypted.safeParse(JSON.parse(text)).data;
  if (!sealed) return text;
  if (key === null) throw new Error(`${path} is encrypted: give its key in BROWSER_STATE_KEY`);
  const opened = createDecipheriv("aes-256-gcm", scryptSync(key, bytes(sealed.salt), 32), bytes(sealed.iv));
  opened.setAuthTag(bytes(sealed.tag));
  return opened.update(bytes(sealed.encrypted), undefined, "utf8") + opened.final("utf8");
}

function encrypt(text: string, key: string): string {
  const [salt, iv] = [randomBytes(16), randomBytes(12)];
  const cipher = createCipheriv("aes-256-gcm", scryptSync(key, salt, 32), iv);
  const encrypted = Buffer.concat([cipher.update(text, "utf8"), cipher.final()]);
  const parts = { salt, iv, tag: cipher.getAuthTag(), encrypted };
  return JSON.stringify(
    Object.fromEntries(Object.entries(parts).map(([name, part]) => [name, part.toString("base64")])),
  );
}

/** What the last run left; nothing where there is no file yet. */
export function readState(file: StateFile): State {
  if (!existsSync(file.path)) return { cookies: [], storage: {} };
  try {
    return State.parse(JSON.parse(decrypt(readFileSync(file.path, "utf8"), file)));
  } catch (error) {
    const why = /authenticate/.test((error as Error).message)
      ? "the key in BROWSER_STATE_KEY is not the one that it was written with"
      : (error as Error).message;
    throw new ToolError("browser_unavailable", `The state ${file.path} cannot be read: ${why}.`);
  }
}

/** A document of each origin, empty and made up here: nothing is asked of its server. */
async function visit(
  browser: Browser,
  origins: string[],
  look: (origin: string, set: (local: Record<string, string>) => Promise<Record<string, string>>) => unknown,
): Promise<void> {
  if (origins.length === 0) return;
  await browser.page();
  const page = await browser.newPage();
  const { mocks } = browser.gate;
  browser.gate.mocks = [
    { url: "", status: 200, body: "<!doctype html>", headers: { "content-type": "text/html" } },
  ];
  try {
    for (const origin of origins) {
      const deadline = new Deadline(visitMsMax);
      const { errorText } = await page.session.send("Page.navigate", { url: `${origin}/` }, deadline.leftMs);
      // A host that may not be reached has stored nothing.
      if (errorText) continue;
      await page.until(() => page.mainFrame.url.startsWith(origin), deadline.restMs);
      await look(origin, async (local) => {
        const change = { local, session: {}, isCleared: false };
        return (await page.mainFrame.call("storage", [change], deadline.leftMs)).local;
      });
    }
  } finally {
    browser.gate.mocks = mocks;
    await browser.closePages([page]);
  }
}

export async function restoreState(browser: Browser, { cookies, storage }: State): Promise<void> {
  const { connection, context } = browser;
  if (cookies.length > 0) {
    const params = { cookies, ...context } as unknown as Params<"Storage.setCookies">;
    await connection.root.send("Storage.setCookies", params);
  }
  await visit(browser, Object.keys(storage), (origin, set) => set(storage[origin]!));
}

/** Origins that were not opened this time keep what they had. */
export async function saveState(browser: Browser, file: StateFile, before: State): Promise<void> {
  const { connection, context, network } = browser;
  const { cookies } = await connection.root.send("Storage.getCookies", context);
  const storage = { ...before.storage };
  const write = () => {
    const state: State = {
      // A cookie of the session has no end, which is said by leaving it out.
      cookies: cookies.map(({ size: _, session, expires, ...cookie }) =>
        session ? cookie : { ...cookie, expires },
      ),
      storage,
    };
    const text = JSON.stringify(state);
    const written = `${file.path}.${process.pid}`;
    writeFileSync(written, file.key === null ? text : encrypt(text, file.key), { mode: 0o600 });
    renameSync(written, file.path);
  };
  // Cookies first: what comes after may take longer than the end does.
  write();
  await visit(browser, [...network.origins], async (origin, set) => {
    const local = await set({});
    if (Object.keys(local).length > 0) storage[origin] = local;
    else delete storage[origin];
  });
  write();
}
