import { useEffect, useRef, useState } from "react";
import {
  type Answer,
  type ChatTurnMessage,
  NEW_ANSWER,
  type Picture,
  runChat,
  userMessage,
} from "../../lib/chat.ts";
import { useFollowEnd } from "../../lib/live.ts";
import { useCallableModels, withChosen } from "../../lib/models.ts";
import { useSearch } from "../../lib/router.ts";
import { Button } from "../../ui/controls.tsx";
import { NoModels } from "../../ui/no-models.tsx";
import { PageHead } from "../../ui/page.tsx";
import { Empty, QueryFailure } from "../../ui/states.tsx";
import { AnswerView } from "./answer.tsx";
import { CodeDialog } from "./code-dialog.tsx";
import { Composer } from "./composer.tsx";
import { EMPTY_PARAMETERS, fieldsOf, type Parameters, ParametersPanel } from "./parameters.tsx";
import { UserWords } from "./user-words.tsx";

interface Turn {
  id: number;
  text: string;
  pictures: readonly Picture[];
  /** One for each pane. */
  answers: readonly Answer[];
}

/** What a pane's model is told: the system prompt and the turns so far, with that pane's own answers. */
function messagesFor(pane: number, turns: readonly Turn[], system: string): ChatTurnMessage[] {
  const messages: ChatTurnMessage[] = system ? [{ role: "system", content: system }] : [];
  for (const { text, pictures, answers } of turns) {
    messages.push(userMessage(text, pictures));
    const answer = answers[pane];
    if (answer?.text && (answer.state === "done" || answer.state === "stopped"))
      messages.push({ role: "assistant", content: answer.text });
  }
  return messages;
}

export function Page() {
  const [search, setSearch] = useSearch();
  const models = useCallableModels();
  const [turns, setTurns] = useState<readonly Turn[]>([]);
  const [parameters, setParameters] = useState<Parameters>(EMPTY_PARAMETERS);
  const [tuning, setTuning] = useState(false);
  const [showCode, setShowCode] = useState(false);
  const running = useRef<AbortController | null>(null);
  useEffect(() => () => running.current?.abort(), []);
  useFollowEnd(turns);

  const first = search.get("model") ?? models.data?.[0] ?? "";
  const second = search.get("compare");
  const panes = second === null ? [first] : [first, second];
  const busy =
    turns.at(-1)?.answers.some(({ state }) => state === "waiting" || state === "streaming") ?? false;

  const update = (id: number, pane: number, answer: Answer) =>
    setTurns((all) =>
      all.map((turn) =>
        turn.id === id
          ? { ...turn, answers: turn.answers.map((old, i) => (i === pane ? answer : old)) }
          : turn,
      ),
    );

  const send = (text: string, pictures: readonly Picture[], before = turns) => {
    const turn: Turn = {
      id: (turns.at(-1)?.id ?? 0) + 1,
      text,
      pictures,
      answers: panes.map(() => NEW_ANSWER),
    };
    const all = [...before, turn];
    const aborter = new AbortController();
    running.current = aborter;
    setTurns(all);
    for (const [pane, model] of panes.entries()) {
      const request = { model, messages: messagesFor(pane, all, parameters.system), ...fieldsOf(parameters) };
      void runChat({ request, signal: aborter.signal, onChange: (answer) => update(turn.id, pane, answer) });
    }
  };

  const sendAgain = ({ text, pictures }: Turn) => send(text, pictures, turns.slice(0, -1));

  return (
    <>
      <PageHead
        title="Playground"
        actions={
          <>
            <Button
              icon="columns"
              aria-pressed={second !== null}
              onClick={() =>
                setSearch({
                  compare: second === null ? (models.data?.find((id) => id !== first) ?? first) : null,
                })
              }
            >
              {second === null ? "Compare" : "One model"}
            </Button>
            <Button icon="settings" aria-expanded={tuning} onClick={() => setTuning(!tuning)}>
              Parameters
            </Button>
            <Button icon="code" onClick={() => setShowCode(true)}>
              View as code
            </Button>
            <Button
              icon="plus"
              disabled={turns.length === 0}
              onClick={() => {
                running.current?.abort();
                setTurns([]);
              }}
            >
              New
            </Button>
          </>
        }
      >
        Talk to any model that the gateway serves. What you send is metered like any other request.
      </PageHead>
      <QueryFailure query={models} />
      {models.data?.length === 0 && <NoModels />}
      {tuning && <ParametersPanel value={parameters} onChange={setParameters} />}
      <div className={`panes panes-${panes.length}`}>
        {panes.map((model, pane) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: a pane is its place
          <section key={pane} className="pane" aria-label={`Answers of ${model || "no model"}`}>
            <ModelSelect
              label={panes.length > 1 ? `Model ${pane + 1}` : "Model"}
              value={model}
              models={models.data ?? []}
              onChange={(id) => setSearch(pane === 0 ? { model: id } : { compare: id })}
            />
            {turns.length === 0 && (
              <Empty icon="playground" title="Say something">
                The answer streams in here, with its time to the first token, its speed and what it cost.
              </Empty>
            )}
            {turns.map((turn) => (
              <article key={turn.id} className="turn">
                <UserWords text={turn.text} pictures={turn.pictures} />
                {turn.answers[pane] && (
                  <AnswerView
                    answer={turn.answers[pane]}
                    onRetry={!busy && turn === turns.at(-1) ? () => sendAgain(turn) : undefined}
                  />
                )}
              </article>
            ))}
          </section>
        ))}
      </div>
      <Composer busy={busy} disabled={!first} onSend={send} onStop={() => running.current?.abort()} />
      {showCode && (
        <CodeDialog
          request={{
            model: first,
            messages: messagesFor(0, turns, parameters.system),
            ...fieldsOf(parameters),
          }}
          onClose={() => setShowCode(false)}
        />
      )}
    </>
  );
}

function ModelSelect({
  label,
  value,
  models,
  onChange,
}: {
  label: string;
  value: string;
  models: readonly string[];
  onChange(id: string): void;
}) {
  const choices = withChosen(models, value);
  return (
    <select
      className="select mono"
      aria-label={label}
      value={value}
      onChange={(event) => onChange(event.target.value)}
    >
      {choices.length === 0 && <option value="">No model can be called yet</option>}
      {choices.map((id) => (
        <option key={id}>{id}</option>
      ))}
    </select>
  );
}
