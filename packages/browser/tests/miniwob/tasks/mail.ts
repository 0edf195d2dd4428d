/** A mailbox: answering, forwarding, deleting and marking messages, asked for in many words. */
import type { Player, Solve } from "../player.ts";
import type { Part } from "../screen.ts";

interface Wish {
  action: "reply" | "forward" | "delete" | "important";
  sender: string;
  /** The text of an answer, or whom a message goes to. */
  content: string;
}

const hasWord = (text: string, word: string) => new RegExp(`(^|\\W)${word}('s)?(\\W|$)`).test(text);

/** Words with a capital that are no names. */
const ordinary = new Set(
  "A All Ask Automatically Can Copy Could Email Emails FOrward Find Forward Foward From Give Go I In It Let Locate Look Mail Make Message My NAME Now Open Please Pls Primary Send The Then This To Will With Would You Your".split(
    " ",
  ),
);

function understand(query: string, senders: string[]): Wish {
  const named = senders.filter((name) => hasWord(query, name));
  // Whom a message is from stands behind "from" or "by", or before "sent" or "'s".
  const isAuthor = (name: string) =>
    new RegExp(`\\b(?:from|by) ${name}\\b|\\b${name}(?:'s| sent| wrote)`).test(query);
  const sender = named.find(isAuthor) ?? named[0] ?? "";
  const quoted = /"([^"]+)"/.exec(query)?.[1];
  if (/trash|delete|remove|erase|get rid|throw|discard|rid of|don't want/i.test(query) && !quoted)
    return { action: "delete", sender, content: "" };
  if (/\bstar\b|star icon|important|importance|mark|flag|favorite/i.test(query) && !quoted)
    return { action: "important", sender, content: "" };
  const words = query.replace(/'s\b/g, "").match(/[A-Z][\w-]*/g) ?? [];
  const others = words.filter((word) => word !== sender && !ordinary.has(word));
  const isReply = /repl|respon|answer|writ|tell|text/i.test(query) && !/forward/i.test(query);
  if (quoted || isReply) {
    const told =
      quoted ??
      /(?:with|saying|say|message|text|reply|:)\s+(?:the (?:text|message|words?)\s+)?([A-Z].*?)\.?$/.exec(
        query,
      )?.[1] ??
      "";
    return { action: "reply", sender, content: told };
  }
  return { action: "forward", sender, content: others.at(-1) ?? "" };
}

export async function handleMail(player: Player): Promise<void> {
  // Bins are pictures, which come a moment later.
  const screen = await player.until((each) => each.area.hinted(/^span\.trash/).length > 0 && each);
  // A message is what holds a bin; whom it is from comes first in it.
  const threads = screen.area
    .hinted(/^span\.trash/)
    .map((bin) => bin.around.find(({ flags }) => /pointer/.test(flags))!);
  const senders = threads.map((thread) => thread.all("text")[0]!.name);
  const { action, sender, content } = understand(screen.query.text, senders);
  const thread = threads[senders.indexOf(sender)]!;
  if (action === "delete" || action === "important") {
    await player.click(thread.hinted(action === "delete" ? /^span\.trash/ : /^span\.star/)[0]!);
    return;
  }
  await player.click(thread);
  const does = (part: Part) => part.ref !== "" && new RegExp(`^${action}$`, "i").test(part.text);
  await player.click(await player.until(({ area }) => area.inside.findLast(does)));
  await player.type(await player.until((each) => each.all("textbox")[0]), content);
  await player.click(await player.until(({ area }) => area.hinted(/send/)[0]));
}

const names = [
  "",
  "-delete",
  "-forward",
  "-forward-nl",
  "-forward-nl-turk",
  "-important",
  "-nl-turk",
  "-noscroll",
  "-reply",
  "-star-reply",
];
export const mail: Record<string, Solve> = Object.fromEntries(
  names.map((name) => [`email-inbox${name}`, handleMail]),
);
