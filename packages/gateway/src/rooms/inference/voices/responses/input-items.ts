import type { WholeTurn } from "./request.ts";
import { textPart } from "./response.ts";

type InputItem = Record<string, unknown>;

const partsOf = ({ role, content }: InputItem): unknown => {
  if (typeof content !== "string") return content;
  return [role === "assistant" ? textPart(content) : { type: "input_text", text: content }];
};

/** What was sent for a response, oldest first: as it was, but each item with an id, and texts as parts. */
export function inputItemsOf({ input, response }: WholeTurn): (InputItem & { id: string; type: string })[] {
  const sent = typeof input === "string" ? [{ role: "user", content: input }] : (input as InputItem[]);
  return sent.map((item, i) => {
    const type = item.type ?? "message";
    const id = item.id ?? `item_${response.id.slice("resp_".length)}_${i}`;
    const own = { ...item, id: String(id), type: String(type) };
    return type === "message" ? { status: "completed", ...own, content: partsOf(item) } : own;
  });
}
