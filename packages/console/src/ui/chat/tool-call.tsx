import type { ToolCall } from "@model-gateway/client";
import { Code } from "../code.tsx";
import { Icon } from "../icons.tsx";

function prettyJson(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** What the model wants to have done, folded. */
export function ToolCallView({ call }: { call: ToolCall }) {
  return (
    <details className="folded">
      <summary>
        <Icon name="tool" /> Calls <code>{call.function?.name ?? "a tool"}</code>
      </summary>
      <Code label="Arguments" language="json" text={prettyJson(call.function?.arguments ?? "")} />
    </details>
  );
}

/** What a tool answered, folded. */
export function ToolResultView({ name, text }: { name?: string; text: string }) {
  return (
    <details className="folded">
      <summary>
        <Icon name="check" /> Result{name && " of "}
        {name && <code>{name}</code>}
      </summary>
      <Code label="Result" language="json" text={prettyJson(text)} />
    </details>
  );
}
