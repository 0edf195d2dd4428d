import { isObject } from "../../../kernel/json.ts";
import { TokenCounter } from "../../metering/index.ts";
import { endIn, type ServerEvent } from "../server-events.ts";
import type { AudioFormats } from "./audio.ts";

const NAMES = new Set(
  (
    "type event_id response_id item_id previous_item_id conversation_id call_id id object status role " +
    "obfuscation logprobs"
  ).split(" "),
);
/** Events that announce an item, or echo the settings. */
const ANNOUNCES = /\.(created|added|in_progress)$/;
const DEPTH_MAX = 8;

class SpeechTally {
  audioSeconds = 0;
  readonly text = new TokenCounter();
}

type Level = "delta" | "part" | "item" | "whole";

/** Vendors send the same output several times: as deltas, then per part, per item and for the whole response. */
function levelOf(type: string): Level | null {
  if (ANNOUNCES.test(type)) return null;
  if (!/\.(done|completed)$/.test(type)) return "delta";
  return type === "response.output_item.done" || type === "response.content_part.done" ? "item" : "part";
}

/** Counts the output of one response: every string, in any member. */
export class Heard {
  readonly #tallies = new Map<Level, SpeechTally>();
  constructor(readonly formats: AudioFormats) {}

  add(event: ServerEvent): void {
    const type = String(event.type);
    const level = endIn(event) === null ? levelOf(type) : "whole";
    if (level === null) return;
    const tally = this.#tallies.get(level) ?? new SpeechTally();
    this.#tallies.set(level, tally);
    const saysAudio = type.includes("audio") && !type.includes("transcript");
    const said = level === "whole" ? (event.response as { output?: unknown } | undefined)?.output : event;
    const hearText = (text: string) => tally.text.addText(text);
    const hearAudio = (base64: string) => {
      tally.audioSeconds += this.formats.secondsOf(base64, "output");
    };
    collect(said, { hearText, hearAudio, saysAudio, depth: 0 });
  }

  get tokens(): number {
    const tallies = [...this.#tallies.values()];
    const audioSeconds = Math.max(0, ...tallies.map((tally) => tally.audioSeconds));
    const textTokens = Math.max(0, ...tallies.map(({ text }) => text.tokens));
    return textTokens + this.formats.tokensOf(audioSeconds, "output");
  }
}

interface HeardListener {
  hearText(text: string): void;
  hearAudio(base64: string): void;
  saysAudio: boolean;
  depth: number;
}

function collect(value: unknown, listener: HeardListener): void {
  const { hearText, hearAudio, saysAudio, depth } = listener;
  if (depth > DEPTH_MAX) return;
  if (typeof value === "string") {
    if (saysAudio) hearAudio(value);
    else hearText(value);
  } else if (Array.isArray(value)) {
    for (const entry of value) collect(entry, { ...listener, depth: depth + 1 });
  } else if (isObject(value)) {
    for (const [name, content] of Object.entries(value))
      if (!NAMES.has(name))
        collect(content, { ...listener, saysAudio: saysAudio || name === "audio", depth: depth + 1 });
  }
}
