/**
 * A task of twenty steps, done the way an agent does it: it looks for what to act on in what it was told last, and
 * takes a snapshot only when that is not there, or when it does not see what came of its step. What counts is how much
 * it was told in all.
 */
import type { Contestant } from "./contestants.ts";
import type { McpClient, ToolReply } from "./mcp-client.ts";

export interface Step {
  /** Part of the line of the snapshot that names the element. */
  on: string;
  type?: string;
  /** What has to be seen afterwards; empty for what is typed into a form, which shows at its end. */
  see: string;
}

/** Where a step needs a look at the page: all of it, or only what holds the wanted text, as far as the tool can. */
export type Looks = "whole" | "find";

export const taskSteps: Step[] = [
  { on: '"User"', type: "ann", see: "ann" },
  { on: '"Password"', type: "secret", see: "secret" },
  { on: 'button "Sign in"', see: "Signed in as ann" },
  { on: 'button "New order"', see: 'dialog "New order"' },
  { on: '"Customer"', type: "Miller", see: "Miller" },
  { on: '"Amount"', type: "12", see: "12" },
  { on: 'checkbox "Express"', see: '"Express" [checked]' },
  { on: 'button "Create"', see: "Order 61 was created" },
  { on: '"Search"', type: "Miller", see: "1 order found" },
  { on: 'button "Edit order 61"', see: 'dialog "Edit order 61"' },
  { on: '"Amount"', type: "", see: "Amount is missing" },
  { on: '"Amount"', type: "15", see: "15" },
  { on: 'button "Save"', see: "Order 61 was saved" },
  { on: '"Search"', type: "", see: "61 orders found" },
  { on: 'button "Sort by amount"', see: "sorted by amount" },
  { on: 'button "Archive order 7"', see: "Order 7 was archived" },
  { on: 'button "Archive order 8"', see: "Order 8 was archived" },
  { on: 'tab "Archive"', see: "2 archived orders" },
  { on: 'button "Restore order 7"', see: "Order 7 was restored" },
  { on: 'button "Sign out"', see: "Signed out" },
];

export interface TaskOutcome {
  /** Of all results together, the first page included. */
  chars: number;
  calls: number;
  ms: number;
}

const looksMax = 5;

/** Tools write states and roles in different ways: `"Express" [checked]`, `"Express" checked`, `checkbox "Express" [checked, ref=e5]`. */
const isIn = (text: string, wanted: string) =>
  text.includes(wanted) ||
  (wanted.replace(/\[checked\]/, "") !== wanted &&
    new RegExp(`${wanted.replace(/ \[checked\]/, "")}.*\\bchecked`).test(text));

export async function doTask(
  contestant: Contestant,
  client: McpClient,
  { url, looks, steps }: { url: string; looks: Looks; steps: Step[] },
): Promise<TaskOutcome> {
  const from = performance.now();
  let chars = 0;
  let calls = 0;
  let told = "";
  const hear = (reply: ToolReply, what: string) => {
    if (reply.isError) throw new Error(`${what}: ${reply.text.slice(0, 300)}`);
    chars += reply.text.length;
    calls++;
    return reply.text;
  };
  const look = async (wanted: string) => {
    // The words of a line, without its role and states.
    const words = wanted.match(/"([^"]*)"/)?.[1] ?? wanted;
    if (looks === "find" && contestant.find)
      told += `\n${hear(await contestant.find(client, words), "find")}`;
    else told = hear(await contestant.snapshot(client), "snapshot");
  };
  /** The newest mention of an element is the one that holds. */
  const refOf = (text: string) => {
    const line = told.split("\n").findLast((each) => each.includes(text) && contestant.refPattern.test(each));
    const match = contestant.refPattern.exec(line ?? "");
    return match?.[1] ?? match?.[2];
  };
  told = hear(await contestant.navigate(client, url), "navigate");
  for (const { on, type, see } of steps) {
    if (!refOf(on)) await look(on);
    const ref = refOf(on);
    if (!ref) throw new Error(`nothing like ${on} in ${told.slice(0, 500)}`);
    const reply =
      type === undefined ? await contestant.click(client, ref) : await contestant.type(client, ref, type);
    const text = hear(reply, on);
    told += `\n${text}`;
    if (isIn(text, see)) continue;
    // What was told before may hold the words too, but it is what came of this step that counts.
    told = "";
    for (let count = 0; !isIn(told, see); count++) {
      if (count >= looksMax) throw new Error(`${see} is not to be seen after ${on}`);
      await look(see);
    }
  }
  return { chars, calls, ms: performance.now() - from };
}
