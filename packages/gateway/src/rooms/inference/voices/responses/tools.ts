import { isObject } from "../../../../kernel/json.ts";
import { type ChatTool, chatTool, functionChoice } from "../chat-body.ts";
import { Given } from "../given.ts";

/** The client's view of a tool that the model sees as a function. */
export interface ClientTool {
  name: string;
  namespace?: string;
  /** Takes free text instead of JSON. */
  custom: boolean;
}

const NAMESPACE_MARK = "__";

interface ToolNaming {
  tools: ChatTool[];
  clientTools: Map<string, ClientTool>;
  /** Types that only OpenAI's servers can run; the model does not see them. */
  dropped: string[];
}

export const chatToolName = (name: string, namespace: unknown): string =>
  typeof namespace === "string" && namespace !== "" ? `${namespace}${NAMESPACE_MARK}${name}` : name;

/** A custom tool as a function with one text parameter. */
const freeText = (format: unknown) => ({
  type: "object",
  properties: {
    input: {
      type: "string",
      description: ["The tool's whole input as plain text.", grammarHint(format)].filter(Boolean).join("\n"),
    },
  },
  required: ["input"],
});

function grammarHint(format: unknown): string {
  if (!isObject(format) || typeof format.definition !== "string") return "";
  return `It must follow this ${format.syntax ?? ""} grammar:\n${format.definition}`;
}

/** The tools of a request, including those in its items: Codex puts them there for newer models. */
export function readTools(body: Given, inputs: readonly unknown[]): ToolNaming {
  const naming: ToolNaming = { tools: [], clientTools: new Map(), dropped: [] };
  const more = inputs.flatMap((input) =>
    (Array.isArray(input) ? input : []).flatMap((item) =>
      isObject(item) && item.type === "additional_tools"
        ? new Given(item, "additional_tools").list("tools")
        : [],
    ),
  );
  const own = body.fields.tools == null ? [] : body.list("tools");
  for (const tool of new Given({ tools: [...own, ...more] }).objects("tools")) addTool(naming, tool);
  return naming;
}

function addTool(naming: ToolNaming, tool: Given, namespace?: string): void {
  const { type, format } = tool.fields;
  if (type === "namespace") {
    const name = tool.string("name");
    for (const inner of tool.objects("tools")) addTool(naming, inner, name);
    return;
  }
  if (type !== "function" && type !== "custom") {
    naming.dropped.push(tool.string("type"));
    return;
  }
  // Some clients use the nesting of chat completions here.
  const flat = isObject(tool.fields.function) ? new Given(tool.fields.function, tool.place) : tool;
  const { description, parameters, strict } = flat.fields;
  const name = flat.string("name");
  const custom = type === "custom";
  const chatName = chatToolName(name, namespace);
  naming.clientTools.set(chatName, { name, custom, ...(namespace !== undefined && { namespace }) });
  const taking = custom ? { parameters: freeText(format) } : { parameters, strict };
  naming.tools.push(chatTool(chatName, { description, ...taking }));
}

/** `tools` and `tool_choice` of the chat body; null when there are none. */
export function chatToolFields({ tools }: ToolNaming, body: Given): Record<string, unknown> | null {
  const { tool_choice: choice } = body.fields;
  if (isObject(choice) && choice.type === "allowed_tools") {
    const names = new Set(body.object("tool_choice").list("tools").map(nameIn));
    const allowed = tools.filter((tool) => names.has(tool.function.name));
    return allowed.length > 0 ? { tools: allowed, tool_choice: choice.mode ?? "auto" } : null;
  }
  const chosen =
    choice == null || typeof choice === "string" ? choice : chosenTool(body.object("tool_choice"));
  if (tools.length === 0) return null;
  return { tools, ...(chosen != null && { tool_choice: chosen }) };
}

const nameIn = (value: unknown): string =>
  isObject(value) ? chatToolName(String(value.name), value.namespace) : "";

function chosenTool(choice: Given) {
  const { type, function: inner } = choice.fields;
  if (type !== "function" && type !== "custom")
    choice.refuse("type", `${JSON.stringify(type)} is run by OpenAI's servers and does not exist here`);
  return functionChoice(nameIn(inner ?? choice.fields));
}
