/**
 * A task of twenty steps, done the way an agent does it: it looks for what to act on in what it was told last, and
 * takes a snapshot only when that is not there, or when it does not see what came of its step. What counts is how much
 * it was told in all.
 */
import type { Contestant } from "./contestants.ts";
import type { McpClient, ToolReply } from "./mcp-client.ts";

export interface Step {
  /** Part of the line of the snapshot that names the element. */
  on?: string | RegExp;
  /** What is done with it; it is clicked where nothing of this is said. */
  type?: string;
  hover?: true;
  select?: string;
  /** The name of a file that the bench has made. */
  upload?: string;
  /** Part of the line of what it is dragged to. */
  dragTo?: string;
  /** It is clicked, and opens a dialog that is accepted, with this text where it asks for one. */
  answer?: string;
  /** Fields of a form, by parts of their lines. */
  fill?: [on: string, text: string][];
  press?: string;
  /** All of the failed request whose address holds this. */
  failedRequest?: string;
  console?: true;
  isInNewWindow?: true;
  /** What has to be seen afterwards; empty for what is typed into a form, which shows at its end. */
  see: string;
}

export const click = (on: Step["on"], see: string): Step => ({ on, see });
export const enter = (on: Step["on"], type: string, see = ""): Step => ({ on, type, see });
export const press = (key: string, see: string): Step => ({ press: key, see });

/** Where a step needs a look at the page: all of it, or only what holds the wanted text, as far as the tool can. */
export type Looks = "whole" | "find";

export const taskSteps: Step[] = [
  enter('"User"', "ann", "ann"),
  enter('"Password"', "secret", "secret"),
  click('button "Sign in"', "Signed in as ann"),
  click('button "New order"', 'dialog "New order"'),
  enter('"Customer"', "Miller", "Miller"),
  enter('"Amount"', "12", "12"),
  click('checkbox "Express"', '"Express" [checked]'),
  click('button "Create"', "Order 61 was created"),
  enter('"Search"', "Miller", "1 order found"),
  click('button "Edit order 61"', 'dialog "Edit order 61"'),
  enter('"Amount"', "", "Amount is missing"),
  enter('"Amount"', "15", "15"),
  click('button "Save"', "Order 61 was saved"),
  enter('"Search"', "", "61 orders found"),
  click('button "Sort by amount"', "sorted by amount"),
  click('button "Archive order 7"', "Order 7 was archived"),
  click('button "Archive order 8"', "Order 8 was archived"),
  click('tab "Archive"', "2 archived orders"),
  click('button "Restore order 7"', "Order 7 was restored"),
  click('button "Sign out"', "Signed out"),
];

export interface TaskOutcome {
  /** Of all results together, the first page included. */
  chars: number;
  calls: number;
  ms: number;
}

const looksMax = 3;

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
  const look = async (wanted: string | RegExp) => {
    if (looks === "find" && contestant.find && typeof wanted === "string") {
      // The words of a line, without its role and states.
      const words = wanted.match(/"([^"]*)"/)?.[1] ?? wanted;
      const found = hear(await contestant.find(client, words), "find");
      // What says that there is nothing holds the words too.
      if (!/^### Result\s+(Nothing on the page|No match)/i.test(found)) told += `\n${found}`;
    } else told = hear(await contestant.snapshot(client), "snapshot");
  };
  const names = (line: string, wanted: string | RegExp) =>
    typeof wanted === "string" ? line.includes(wanted) : wanted.test(line);
  /** The newest mention of an element is the one that holds. */
  const refOf = (wanted: string | RegExp) => {
    const line = told.split("\n").findLast((each) => names(each, wanted) && contestant.refPattern.test(each));
    const match = contestant.refPattern.exec(line ?? "");
    return match?.[1] ?? match?.[2];
  };
  const need = async (wanted: string | RegExp) => {
    if (!refOf(wanted)) await look(wanted);
    const ref = refOf(wanted);
    if (!ref) throw new Error(`nothing like ${wanted} in ${told.slice(-500)}`);
    return ref;
  };
  const deeds = contestant.deeds!;
  const act = async (step: Step): Promise<ToolReply[]> => {
    const { on, type, fill, dragTo, press, failedRequest } = step;
    if (step.isInNewWindow) for (const reply of await deeds.toNewWindow(client)) hear(reply, "new window");
    if (press !== undefined) return [await deeds.press(client, press)];
    if (failedRequest !== undefined) return deeds.failedRequest(client, failedRequest);
    if (step.console) return [await deeds.console(client)];
    if (fill) {
      const fields = [];
      for (const [field, text] of fill) fields.push({ name: field, ref: await need(field), text });
      return [await deeds.fill(client, fields)];
    }
    if (on === undefined) return [];
    const ref = await need(on);
    if (step.hover) return [await deeds.hover(client, ref)];
    if (step.select !== undefined) return [await deeds.select(client, ref, step.select)];
    if (step.upload !== undefined) return deeds.upload(client, ref, step.upload);
    if (step.answer !== undefined) return deeds.answer(client, ref, step.answer);
    if (dragTo !== undefined) {
      const to = await need(dragTo);
      // The search for the second may have been a new look, in which the first has another name.
      return [await deeds.drag(client, await need(on), to)];
    }
    return [
      type === undefined ? await contestant.click(client, ref) : await contestant.type(client, ref, type),
    ];
  };
  told = hear(await contestant.navigate(client, url), "navigate");
  for (const step of steps) {
    const { see } = step;
    const isShown = step.on === undefined && isIn(told, see) && step === steps[0];
    const named = step.on && refOf(step.on);
    let replies = await act(step);
    // The page has drawn it anew since it was named, so it is looked for, as an agent would.
    if (
      named &&
      replies.some(({ isError, text }) => isError && /\b(ref|uid)\b.*not found|no such/i.test(text))
    ) {
      chars += replies.reduce((sum, { text }) => sum + text.length, 0);
      calls += replies.length;
      told = told
        .split("\n")
        .filter((line) => !line.includes(`=${named}`))
        .join("\n");
      replies = await act(step);
    }
    const text = replies.map((reply) => hear(reply, String(step.on ?? see))).join("\n");
    told += `\n${text}`;
    if (isShown || isIn(text, see)) continue;
    // What was told before may hold the words too, but it is what came of this step that counts.
    told = "";
    // What waits for a text may not see it as a name, or in a frame; then it is looked for.
    if (contestant.deeds && !see.includes('"')) {
      const { text: waited, isError } = await deeds.waitFor(client, see);
      chars += waited.length;
      calls++;
      if (!isError) told = waited;
    }
    for (let count = 0; !isIn(told, see); count++) {
      if (count >= looksMax) throw new Error(`${see} is not to be seen after ${step.on ?? step.press}`);
      await look(see);
    }
  }
  return { chars, calls, ms: performance.now() - from };
}
