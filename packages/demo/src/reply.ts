/** What the demo model says: a function of the request alone, so that every run gives the same answer. */
export interface DemoReply {
  text: string;
  toolCall: { id: string; name: string; arguments: string } | null;
}

const ECHO_CHARS_MAX = 2_000;
const FACT_LINE = /^- (.+)$/gm;
/** What the gateway recalls ends the newest message. */
const RECALLED = /\n+(?=Facts recalled from )/;

export const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** The text of a message whose content is a string or a list of parts. */
export function textOf(content: unknown): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content
    .filter(isObject)
    .flatMap(({ text }) => (typeof text === "string" ? [text] : []))
    .join("\n");
}

/** A value that fits a property's schema; texts repeat what the user said. */
function sample(schema: unknown, said: string): unknown {
  if (!isObject(schema)) return said;
  if (Array.isArray(schema.enum) && schema.enum.length > 0) return schema.enum[0];
  switch (schema.type) {
    case "number":
    case "integer":
      return 1;
    case "boolean":
      return true;
    case "array":
      return [];
    case "object":
      return argumentsFor(schema, said);
    default:
      return said;
  }
}

function argumentsFor(schema: unknown, said: string): Record<string, unknown> {
  const properties = isObject(schema) && isObject(schema.properties) ? schema.properties : {};
  return Object.fromEntries(Object.entries(properties).map(([name, one]) => [name, sample(one, said)]));
}

function firstTool(body: Record<string, unknown>): { name: string; parameters: unknown } | null {
  const tool = Array.isArray(body.tools) && body.tool_choice !== "none" ? body.tools[0] : null;
  const fn = isObject(tool) ? tool.function : null;
  return isObject(fn) && typeof fn.name === "string" ? { name: fn.name, parameters: fn.parameters } : null;
}

/** The answer to a chat: a call of the first tool, the tool's result repeated, or an echo with what is remembered. */
export function replyTo(body: Record<string, unknown>): DemoReply {
  const messages = (Array.isArray(body.messages) ? body.messages : []).filter(isObject);
  const last = messages.at(-1);
  if (last?.role === "tool") return { text: `The tool answered: ${textOf(last.content)}`, toolCall: null };
  const newest = textOf(messages.findLast(({ role }) => role === "user")?.content);
  const [words = "", recalled = ""] = newest.split(RECALLED);
  const said = words.slice(0, ECHO_CHARS_MAX);
  const tool = firstTool(body);
  if (tool) {
    const args = JSON.stringify(argumentsFor(tool.parameters, said));
    return { text: "", toolCall: { id: "call_demo_1", name: tool.name, arguments: args } };
  }
  const remembered = [...recalled.matchAll(FACT_LINE)].map(([, fact]) => fact);
  const memory = remembered.length > 0 ? ` I remember: ${remembered.join(" ")}` : "";
  return { text: `This is the demo model. You said: "${said}".${memory}`, toolCall: null };
}

/** About four bytes a token, like the gateway's own estimate. */
export const tokensOf = (text: string): number => Math.ceil(Buffer.byteLength(text) / 4);

const DIMENSIONS_DEFAULT = 256;
const DIMENSIONS_MAX = 4_096;

export const dimensionsOf = (wanted: unknown): number =>
  typeof wanted === "number" && wanted >= 1
    ? Math.min(Math.floor(wanted), DIMENSIONS_MAX)
    : DIMENSIONS_DEFAULT;

/** A unit vector in which texts with common words lie close together. */
export function embed(text: string, dimensions: number): number[] {
  const vector = new Array<number>(dimensions).fill(0);
  for (const word of text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [text]) {
    const hash = Number(Bun.hash.xxHash32(word));
    vector[hash % dimensions]! += hash & 1 ? 1 : -1;
  }
  const length = Math.hypot(...vector);
  return length === 0 ? vector.fill(1 / Math.sqrt(dimensions)) : vector.map((value) => value / length);
}
