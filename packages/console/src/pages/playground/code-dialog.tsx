import { useState } from "react";
import { SERVICE_URL } from "../../lib/base.ts";
import { LANGUAGES, type Language, snippet } from "../../lib/snippets.ts";
import { Code } from "../../ui/code.tsx";
import { Segments } from "../../ui/controls.tsx";
import { Dialog } from "../../ui/dialogs.tsx";
import { requestOf } from "./state.ts";

const KEY_PLACEHOLDER = "$KEY";

/** The latest request of a pane as a program that sends the same. */
export function CodeDialog({
  models,
  isSent,
  onClose,
}: {
  models: readonly string[];
  isSent: boolean;
  onClose(): void;
}) {
  const [language, setLanguage] = useState<Language>("curl");
  const [pane, setPane] = useState("0");
  const text = snippet(language, {
    origin: SERVICE_URL,
    key: language === "curl" ? KEY_PLACEHOLDER : "service-…",
    request: requestOf(Number(pane), models[Number(pane)] ?? ""),
  });
  return (
    <Dialog
      title={isSent ? "What was sent, as code" : "What will be sent, as code"}
      kind="modal wide"
      onClose={onClose}
    >
      <div className="stack">
        <div className="row wrap">
          <Segments label="Language" value={language} onChange={setLanguage} choices={LANGUAGES} />
          {models.length > 1 && (
            <Segments
              label="Model"
              value={pane}
              onChange={setPane}
              choices={models.map((model, i) => ({ value: String(i), label: `${i + 1}: ${model}` }))}
            />
          )}
        </div>
        <Code label={`${language} code`} language={language} text={text} />
        <p className="muted small">Put one of your keys in its place; the Keys page makes new ones.</p>
      </div>
    </Dialog>
  );
}
