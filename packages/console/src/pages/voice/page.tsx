import { useState } from "react";
import { seconds } from "../../lib/format.ts";
import { useCallableModels } from "../../lib/models.ts";
import { Button, TextField } from "../../ui/controls.tsx";
import { NoModels } from "../../ui/no-models.tsx";
import { PageHead, Section } from "../../ui/page.tsx";
import { Empty, Failure, Meter, Status } from "../../ui/states.tsx";
import { useVoice } from "./session.ts";

/** Loudness as people hear it: the lowest 60 dB are shown. */
const loudness = (level: number) => (level <= 0 ? 0 : Math.max(0, 1 + Math.log10(level) / 3));

export function Page() {
  const models = useCallableModels("realtime");
  const [chosen, setModel] = useState<string | null>(null);
  const model = chosen ?? models.data?.[0] ?? "";
  const voice = useVoice();
  const running = voice.state !== "idle";
  return (
    <>
      <PageHead title="Voice">
        Talk to a realtime model: your microphone is streamed to it, and its voice is streamed back.
      </PageHead>
      {models.data?.length === 0 && <NoModels capability="realtime" />}
      <form
        className="form narrow"
        onSubmit={(event) => {
          event.preventDefault();
          void voice.start(model.trim());
        }}
      >
        <TextField
          label="Model"
          value={model}
          onChange={setModel}
          // The first model is not put under the hands of someone who has begun to write.
          onFocus={() => setModel(model)}
          required
          list="voice-models"
        />
        <datalist id="voice-models">
          {models.data?.map((id) => (
            <option key={id} value={id} />
          ))}
        </datalist>
        <div className="row">
          {running ? (
            // A button of its own: made into the other one within its click, it would submit the form.
            <Button key="stop" icon="stop" onClick={voice.stop}>
              Hang up
            </Button>
          ) : (
            <Button key="start" type="submit" look="primary" icon="voice" disabled={model.trim() === ""}>
              Start talking
            </Button>
          )}
          {voice.state === "starting" && (
            <Status tone="plain" icon="waiting">
              Connecting
            </Status>
          )}
          {voice.state === "live" && <Status tone="good">Live</Status>}
          {voice.voiceSeconds > 0 && (
            <span className="muted small">{seconds(voice.voiceSeconds * 1000)} of its voice played</span>
          )}
        </div>
      </form>
      {Boolean(voice.error) && <Failure error={voice.error} />}
      <Section title="Microphone level">
        <div className="narrow">
          <Meter
            share={loudness(voice.level)}
            label="Microphone level"
            tone={voice.level > 0.7 ? "warn" : "good"}
            tall
          />
        </div>
      </Section>
      <Section title="Words">
        {voice.lines.length === 0 ? (
          <Empty icon="voice" title="Nothing said yet">
            If the model transcribes the conversation, the text appears here.
          </Empty>
        ) : (
          <ol className="stack narrow">
            {voice.lines.map(({ id, who, text }) => (
              <li key={id} className={who === "you" ? "user-words" : undefined}>
                {text}
              </li>
            ))}
          </ol>
        )}
      </Section>
      {voice.events.length > 0 && (
        <details className="folded">
          <summary>Events</summary>
          <p className="mono small">{voice.events.join(", ")}</p>
        </details>
      )}
    </>
  );
}
