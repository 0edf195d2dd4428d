import { isObject } from "../../../../kernel/json.ts";
import { arrayAt, type ChatTool, invalid, objectAt, stringAt } from "../chat-body.ts";

/** Tools that the client runs itself; those that Anthropic's servers or models bring along do not exist here. */
export function chatTools(given: unknown): ChatTool[] {
  if (given == null) return [];
  return arrayAt(given, "tools").map((one, i) => {
    const tool = objectAt(one, `tools.${i}`);
    const name = stringAt(tool.name, `tools.${i}.name`);
    if (tool.type != null && tool.type !== "custom") {
      invalid(
        `tools.${i}.type`,
        `${JSON.stringify(tool.type)} is built into Anthropic's service; describe the tool with name, description and input_schema instead`,
      );
    }
    return {
      type: "function",
      function: {
        name,
        ...(typeof tool.description === "string" && { description: tool.description }),
        parameters: tool.input_schema ?? { type: "object", properties: {} },
        ...(typeof tool.strict === "boolean" && { strict: tool.strict }),
      },
    };
  });
}

const CHOICES: Record<string, string> = { auto: "auto", any: "required", none: "none" };

export function chatToolChoice(choice: unknown): Record<string, unknown> {
  if (!isObject(choice)) return {};
  const parallel = choice.disable_parallel_tool_use === true ? { parallel_tool_calls: false } : {};
  if (choice.type === "tool") {
    const name = stringAt(choice.name, "tool_choice.name");
    return { tool_choice: { type: "function", function: { name } }, ...parallel };
  }
  const mapped =
    CHOICES[String(choice.type)] ?? invalid("tool_choice.type", "must be auto, any, tool or none");
  return { tool_choice: mapped, ...parallel };
}
