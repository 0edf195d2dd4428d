import { useState } from "react";
import { LANGUAGES, type Language, type SnippetRequest, snippet } from "../../lib/snippets.ts";
import { Code } from "../../ui/code.tsx";
import { Segments } from "../../ui/controls.tsx";
import { Dialog } from "../../ui/dialogs.tsx";

const KEY_PLACEHOLDER = "$KEY";

export function CodeDialog({ request, onClose }: { request: SnippetRequest; onClose(): void }) {
  const [language, setLanguage] = useState<Language>("curl");
  const messages = request.messages.length > 0 ? request.messages : [{ role: "user", content: "Hello" }];
  const text = snippet(language, {
    origin: location.origin,
    key: language === "curl" ? KEY_PLACEHOLDER : "service-…",
    request: { ...request, messages, stream: true },
  });
  return (
    <Dialog title="The same as a program" kind="modal wide" onClose={onClose}>
      <div className="stack">
        <Segments label="Language" value={language} onChange={setLanguage} choices={LANGUAGES} />
        <Code label={`${language} code`} text={text} />
        <p className="muted small">Put one of your keys in its place; the Keys page makes new ones.</p>
      </div>
    </Dialog>
  );
}
