import { useEffect, useRef, useState } from "react";
import { useStickToEnd } from "../../lib/live.ts";
import { useCallableModels, withChosen } from "../../lib/models.ts";
import { useSearch } from "../../lib/router.ts";
import { useStore } from "../../lib/store.ts";
import { AnswerView } from "../../ui/chat/answer.tsx";
import { Composer } from "../../ui/chat/composer.tsx";
import { Spoken } from "../../ui/chat/spoken.tsx";
import { ToolResultView } from "../../ui/chat/tool-call.tsx";
import { UserWords } from "../../ui/chat/user-words.tsx";
import { asChoices, Combobox } from "../../ui/combobox.tsx";
import { Button } from "../../ui/controls.tsx";
import { NoModels } from "../../ui/no-models.tsx";
import { QueryFailure } from "../../ui/states.tsx";
import { CodeDialog } from "./code-dialog.tsx";
import { problemOf } from "./parameters.ts";
import { ParametersPanel } from "./parameters-panel.tsx";
import {
  answerTools,
  goOn,
  isBusy,
  PANES_MAX,
  PLAYGROUND_DRAFT,
  playground,
  rememberModels,
  type Step,
  send,
  sendAgain,
  setParameters,
  startOver,
  stop,
  type Turn,
} from "./state.ts";
import { ToolResults } from "./tool-results.tsx";

/** One name in the address for each pane, so that a comparison can be pasted as a link. */
const PANE_NAMES = ["model", "compare", "compare-2", "compare-3"] as const;
const WIDE = "(min-width: 1100px)";

/** The panes' models: the address's, those of the last time, or the first that can be called; "" while there is none. */
function useModels(callable: readonly string[] | undefined) {
  const [search, setSearch] = useSearch();
  const { models: remembered } = useStore(playground);
  const given = PANE_NAMES.flatMap((name) => search.get(name) || []);
  const isCallable = (id: string) => callable?.includes(id) ?? false;
  const lastTime = remembered.map((id) => (callable && !isCallable(id) ? (callable[0] ?? "") : id));
  const models = given.length > 0 ? given : lastTime.length > 0 ? lastTime : [callable?.[0] ?? ""];
  const key = models.every(isCallable) ? models.join("\n") : "";
  useEffect(() => {
    if (key !== "") rememberModels(key.split("\n"));
  }, [key]);
  const choose = (next: readonly string[]) =>
    setSearch(Object.fromEntries(PANE_NAMES.map((name, i) => [name, next[i] ?? null])));
  return { models, choose };
}

export function Page() {
  const callable = useCallableModels("chat");
  const { models, choose } = useModels(callable.data);
  const { turns, parameters } = useStore(playground);
  const [tuning, setTuning] = useState(() => matchMedia(WIDE).matches);
  const [showCode, setShowCode] = useState(false);
  const scroll = useRef<HTMLDivElement>(null);
  useStickToEnd(scroll, turns);
  const last = turns.at(-1);
  const busy = last !== undefined && isBusy(last);
  const known = callable.data ?? [];
  return (
    <div className={tuning ? "bench tuning" : "bench"}>
      <header className="chat-head">
        <h1 className="chat-heading grow">Playground</h1>
        <Button small icon="plus" disabled={turns.length === 0} onClick={startOver}>
          New
        </Button>
        <div className="row wrap">
          <Button
            small
            icon="columns"
            disabled={models.length >= PANES_MAX || known.length === 0}
            onClick={() => choose([...models, known.find((id) => !models.includes(id)) ?? models[0] ?? ""])}
          >
            Compare
          </Button>
          <Button small icon="settings" aria-expanded={tuning} onClick={() => setTuning(!tuning)}>
            Parameters
          </Button>
          <Button small icon="code" disabled={!models[0]} onClick={() => setShowCode(true)}>
            View as code
          </Button>
        </div>
      </header>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard */}
      <section className="chat-scroll" ref={scroll} tabIndex={0} aria-label="Answers">
        <QueryFailure query={callable} />
        {callable.data?.length === 0 && <NoModels />}
        <div className={`panes panes-${models.length}`}>
          {models.map((model, pane) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: a pane is its place
            <section key={pane} className="pane" aria-label={`Answers of ${model || "no model"}`}>
              <PaneHead
                label={models.length > 1 ? `Model ${pane + 1}` : "Model"}
                value={model}
                models={callable.data}
                onChange={(id) => choose(models.map((old, i) => (i === pane ? id : old)))}
                onClose={models.length > 1 ? () => choose(models.filter((_, i) => i !== pane)) : undefined}
              />
              {turns.length === 0 && (
                <p className="muted">
                  The answer streams in here, with its time to the first token, its speed and its cost.
                </p>
              )}
              {turns.map((turn) => (
                <article key={turn.id} className="turn">
                  <UserWords text={turn.text} pictures={turn.pictures} />
                  <Answers
                    turn={turn}
                    pane={pane}
                    onRetry={!busy && turn === last ? () => sendAgain(turn, models) : undefined}
                  />
                </article>
              ))}
            </section>
          ))}
        </div>
      </section>
      {models.map((model, pane) => (
        <Spoken
          // biome-ignore lint/suspicious/noArrayIndexKey: a pane is its place
          key={pane}
          answer={last?.panes[pane]?.at(-1)?.answer}
          label={`Answer of ${model}`}
        />
      ))}
      <Composer
        draftKey={PLAYGROUND_DRAFT}
        busy={busy}
        disabled={!models[0] || problemOf(parameters) !== undefined}
        onSend={(text, pictures) => send({ text, pictures }, models)}
        onStop={stop}
      />
      {tuning && <ParametersPanel value={parameters} onChange={setParameters} />}
      {showCode && (
        <CodeDialog models={models} isSent={turns.length > 0} onClose={() => setShowCode(false)} />
      )}
    </div>
  );
}

/** A pane's answers to one turn: more than one when the model called tools and got their results. */
function Answers({ turn, pane, onRetry }: { turn: Turn; pane: number; onRetry?: () => void }) {
  const steps = turn.panes[pane] ?? [];
  return steps.map((step, i) => {
    const isLast = i === steps.length - 1;
    const mayReturn = isLast && onRetry && step.answer.state === "done" && step.answer.toolCalls.length > 0;
    return (
      <AnswerView
        // biome-ignore lint/suspicious/noArrayIndexKey: steps are only ever added
        key={i}
        answer={step.answer}
        onRetry={isLast ? onRetry : undefined}
        onGoOn={() => goOn(turn, pane, i)}
      >
        <Results step={step} />
        {mayReturn && (
          <ToolResults calls={step.answer.toolCalls} onSend={(results) => answerTools(turn, pane, results)} />
        )}
      </AnswerView>
    );
  });
}

const Results = ({ step: { answer, results } }: { step: Step }) =>
  results?.map((text, i) => (
    // biome-ignore lint/suspicious/noArrayIndexKey: a result is its call's place
    <ToolResultView key={i} name={answer.toolCalls[i]?.function?.name} text={text} />
  ));

function PaneHead({
  label,
  value,
  models,
  onChange,
  onClose,
}: {
  label: string;
  value: string;
  /** Undefined while they are loaded. */
  models: readonly string[] | undefined;
  onChange(id: string): void;
  onClose?: () => void;
}) {
  const choices = asChoices(withChosen(models ?? [], value));
  return (
    <div className="row pane-head">
      <Combobox
        className="grow"
        label={label}
        value={value}
        onChange={onChange}
        choices={choices}
        placeholder={models ? "No model can be called yet" : "Loading models…"}
      />
      {onClose && (
        <Button look="quiet" small icon="close" aria-label={`Close the pane of ${value}`} onClick={onClose} />
      )}
    </div>
  );
}
