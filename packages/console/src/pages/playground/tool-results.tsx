import type { ToolCall } from "@model-gateway/client";
import { type FormEvent, useState } from "react";
import { Button, Field } from "../../ui/controls.tsx";

/** The person stands in for the tools: what they would return is typed, and the model goes on with it. */
export function ToolResults({
  calls,
  onSend,
}: {
  calls: readonly ToolCall[];
  onSend(results: readonly string[]): void;
}) {
  const [results, setResults] = useState<readonly string[]>(() => calls.map(() => ""));
  const submit = (event: FormEvent) => {
    event.preventDefault();
    onSend(results);
  };
  return (
    <form className="stack tight panel" onSubmit={submit}>
      {calls.map((call, i) => (
        <Field key={call.id ?? i} label={`Result of ${call.function?.name ?? "the tool"}`}>
          {(id) => (
            <textarea
              id={id}
              className="textarea mono"
              rows={2}
              placeholder='{"temperature": 21}'
              value={results[i]}
              onChange={(event) =>
                setResults(results.map((old, place) => (place === i ? event.target.value : old)))
              }
            />
          )}
        </Field>
      ))}
      <div>
        <Button type="submit" small icon="send">
          Return {calls.length === 1 ? "the result" : "the results"}
        </Button>
      </div>
    </form>
  );
}
