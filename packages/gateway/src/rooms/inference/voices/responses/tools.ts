import { isObject } from "../../../../kernel/json.ts";
import { arrayAt, type ChatTool, invalid, objectAt, stringAt } from "../chat-body.ts";

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

const NO_TOOLS: ToolNaming = { tools: [], clientTools: new Map(), dropped: [] };

/** The tools of a request, including those in its items: Codex puts them there for newer models. */
export function readTools(given: unknown, inputs: readonly unknown[]): ToolNaming {
  const more = inputs.flatMap((input) =>
    (Array.isArray(input) ? input : []).flatMap((item) =>
      isObject(item) && item.type === "additional_tools" ? arrayAt(item.tools, "additional_tools.tools") : [],
    ),
  );
  if (given == null && more.length === 0) return NO_TOOLS;
  const naming: ToolNaming = { tools: [], clientTools: new Map(), dropped: [] };
  for (const [i, one] of [...arrayAt(given ?? [], "tools"), ...more].entries())
    addTool(naming, one, `tools.${i}`);
  return naming;
}

function addTool(naming: ToolNaming, value: unknown, path: string, namespace?: string): void {
  const tool = objectAt(value, path);
  if (tool.type === "namespace") {
    const name = stringAt(tool.name, `${path}.name`);
    for (const [i, one] of arrayAt(tool.tools, `${path}.tools`).entries()) {
      addTool(naming, one, `${path}.tools.${i}`, name);
    }
    return;
  }
  if (tool.type !== "function" && tool.type !== "custom") {
    naming.dropped.push(stringAt(tool.type, `${path}.type`));
    return;
  }
  // Some clients use the nesting of chat completions here.
  const flat = isObject(tool.function) ? tool.function : tool;
  const name = stringAt(flat.name, `${path}.name`);
  const custom = tool.type === "custom";
  const chatName = chatToolName(name, namespace);
  naming.clientTools.set(chatName, { name, custom, ...(namespace !== undefined && { namespace }) });
  naming.tools.push({
    type: "function",
    function: {
      name: chatName,
      ...(typeof flat.description === "string" && { description: flat.description }),
      parameters: custom ? freeText(tool.format) : (flat.parameters ?? { type: "object", properties: {} }),
      ...(typeof flat.strict === "boolean" && !custom && { strict: flat.strict }),
    },
  });
}

/** `tools` and `tool_choice` of the chat body; null when there are none. */
export function chatToolFields({ tools }: ToolNaming, choice: unknown): Record<string, unknown> | null {
  if (isObject(choice) && choice.type === "allowed_tools") {
    const names = new Set(arrayAt(choice.tools, "tool_choice.tools").map((one) => nameIn(one)));
    const allowed = tools.filter((tool) => names.has(tool.function.name));
    return allowed.length > 0 ? { tools: allowed, tool_choice: choice.mode ?? "auto" } : null;
  }
  const chosen = chatChoice(choice);
  if (tools.length === 0) return null;
  return { tools, ...(chosen !== undefined && { tool_choice: chosen }) };
}

const nameIn = (value: unknown): string =>
  isObject(value) ? chatToolName(String(value.name), value.namespace) : "";

function chatChoice(choice: unknown): unknown {
  if (choice == null || typeof choice === "string") return choice ?? undefined;
  const { type } = objectAt(choice, "tool_choice");
  if (type !== "function" && type !== "custom") {
    invalid("tool_choice.type", `${JSON.stringify(type)} is run by OpenAI's servers and does not exist here`);
  }
  const inner = (choice as { function?: unknown }).function ?? choice;
  return { type: "function", function: { name: nameIn(inner) } };
}
