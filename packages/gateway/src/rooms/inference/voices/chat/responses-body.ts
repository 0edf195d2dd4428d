import { decodeUtf8, parseJson } from "../../../../kernel/json.ts";
import { chatBodyOfResponses } from "../../../compat/index.ts";
import { Payload } from "../../request/payload.ts";

/** Chat fields that such clients mix in. The usage chunk must stay what they asked for: it has no choices. */
const CHAT_FIELDS = ["stream_options", "max_tokens", "max_completion_tokens"] as const;

/** Some editors send the body of the Responses API to the chat path and want a chat answer back. */
export function fromResponses(sent: Payload): Payload {
  const { stream_options: _, ...chat } = chatBodyOfResponses(parseJson(decodeUtf8(sent.bytes))).chat;
  const own = CHAT_FIELDS.filter((name) => sent.has(name)).map((name) => [name, sent.value(name)]);
  return new Payload(Buffer.from(JSON.stringify({ ...chat, ...Object.fromEntries(own) })));
}
