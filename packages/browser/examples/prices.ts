/**
 * The browser tool as a library: `bun packages/browser/examples/prices.ts <url>` signs in to a shop in two sessions at
 * once and prints what each of them is shown.
 */
import { callTool, run, Session } from "@model-gateway/browser";

const [url = "http://127.0.0.1:8080/"] = process.argv.slice(2);
const browser = new Session({ viewport: { width: 1024, height: 768 } });

/** A named session has its own cookies and tabs; all share one browser. */
async function pricesFor(user: string): Promise<string> {
  const session = browser.named(user);
  await run(session, "navigate", { url });
  await run(session, "type", { target: "role=textbox[name=User]", text: user, submit: true });
  // What a model would be given: text with refs, within its budget.
  const { content } = await callTool(session, "browser_snapshot", { find: "Price" });
  return content.map((part) => (part.type === "text" ? part.text : part.mimeType)).join("\n");
}

try {
  const [ann, bob] = await Promise.all([pricesFor("ann"), pricesFor("bob")]);
  const { value } = await run(browser.named("ann"), "evaluate", { expression: "document.cookie" });
  console.log(`${ann}\n---\n${bob}\n---\n${value}`);
} finally {
  await browser.close();
}
