import { RestError } from "@model-gateway/client";
import { useEffect, useRef, useState } from "react";
import { useAction } from "../../lib/action.ts";
import { api } from "../../lib/api.ts";
import { SERVICE_URL } from "../../lib/base.ts";
import { client } from "../../lib/client.ts";
import { compact, money, withoutCost } from "../../lib/format.ts";
import { secretOf } from "../../lib/fresh-keys.ts";
import { useCallableModels, withChosen } from "../../lib/models.ts";
import { useQuery } from "../../lib/query.ts";
import type { UsageRecord } from "../../lib/records.ts";
import { useSearch } from "../../lib/router.ts";
import { LANGUAGES, type Language, snippet } from "../../lib/snippets.ts";
import { Code } from "../../ui/code.tsx";
import { asChoices, Combobox } from "../../ui/combobox.tsx";
import { Button, LinkButton, Segments } from "../../ui/controls.tsx";
import { NoModels } from "../../ui/no-models.tsx";
import { PageHead, Section } from "../../ui/page.tsx";
import { Empty, Loaded, Note, Status, When } from "../../ui/states.tsx";
import type { PageProps } from "../index.ts";

const WATCH_EVERY_MS = 2_000;
const WATCHED_ROWS = 50;
const REQUEST = { messages: [{ role: "user", content: "Say hello in five words." }] };

/** Waits for the key's first request and turns green, or names the mistake. */
export function Page({ params }: PageProps) {
  const keys = useQuery("keys", () => api("keys.list"));
  return (
    <Loaded query={keys}>
      {(list) => {
        const key = list.find(({ id }) => id === params.id);
        if (!key)
          return (
            <Empty icon="keys" title="Key not found" action={<LinkButton href="/keys">All keys</LinkButton>}>
              It may belong to someone else.
            </Empty>
          );
        return (
          <>
            {!key.active && <Note tone="bad">This key is revoked: every call with it is refused.</Note>}
            <FirstCall id={key.id} name={key.name} prefix={key.key_prefix} />
          </>
        );
      }}
    </Loaded>
  );
}

/** What the snippets tag their request with, so that it is easily found among all others. */
const refOf = (prefix: string) => `first-call-${prefix}`;

function FirstCall({ id, name, prefix }: { id: string; name: string; prefix: string }) {
  const secret = secretOf(id);
  const [search, setSearch] = useSearch();
  const models = useCallableModels("chat");
  const model = search.get("model") ?? models.data?.[0] ?? "";
  const language = (search.get("language") ?? "curl") as Language;
  const text = snippet(language, {
    origin: SERVICE_URL,
    key: secret ?? `service-${prefix}…`,
    ref: refOf(prefix),
    request: { model, ...REQUEST },
  });
  return (
    <>
      <PageHead title={`First call with ${name}`} actions={<LinkButton href="/keys">All keys</LinkButton>}>
        Run this where your program will run. This page updates automatically.
      </PageHead>
      {secret ? (
        <Section title="The key">
          <div className="stack tight">
            <Code label="The key" text={secret} />
            <Note tone="warn">
              Keep it now: when you leave or reload this page, it cannot be shown again.
            </Note>
          </div>
        </Section>
      ) : (
        <Note>
          <span className="muted">
            The secret was shown when the key was created. Replace the dots with it.
          </span>
        </Note>
      )}
      <Section
        title="The call"
        actions={
          <>
            <Combobox
              label="Model"
              value={model}
              onChange={(value) => setSearch({ model: value })}
              choices={asChoices(withChosen(models.data ?? [], model))}
            />
            <Segments
              label="Language"
              value={language}
              onChange={(value) => setSearch({ language: value })}
              choices={LANGUAGES}
            />
          </>
        }
      >
        <div className="stack tight">
          {models.data?.length === 0 && <NoModels />}
          <Code label="The call" text={text} />
        </div>
      </Section>
      <Watch id={id} prefix={prefix} secret={secret} model={model} />
    </>
  );
}

/** What went wrong with the key's latest request, wherever it came from, or with one that was miscopied from it. */
function useRefusals(
  { keyId, prefix }: { keyId: string; prefix: string },
  onAnswered: () => void,
): RestError | null {
  const [refusal, setRefusal] = useState<RestError | null>(null);
  const answered = useRef(onAnswered);
  answered.current = onAnswered;
  useEffect(() => {
    const aborter = new AbortController();
    const follow = async (channel: string) => {
      for await (const { method, params } of client.events(channel, { signal: aborter.signal })) {
        if (method !== "key.request") continue;
        if (params.ok) answered.current();
        else
          setRefusal(
            new RestError(params.message, {
              status: params.status,
              type: "",
              code: params.code,
              retryAfterSeconds: null,
              requestId: null,
            }),
          );
      }
    };
    for (const channel of [keyId, `key-${prefix}`])
      follow(channel).catch(() => {
        // Left the page, or the service is away; the list of usage is asked for all the same.
      });
    return () => aborter.abort();
  }, [keyId, prefix]);
  return refusal;
}

interface WatchProps {
  id: string;
  prefix: string;
  secret: string | null;
  model: string;
}

function Watch({ id, prefix, secret, model }: WatchProps) {
  const [seen, setSeen] = useState<UsageRecord | null>(null);
  const usage = useQuery("usage watch", () => api("usage.list", { limit: WATCHED_ROWS }), {
    everyMs: WATCH_EVERY_MS,
  });
  useEffect(() => {
    const found = usage.data?.records.find(({ api_key_id }) => api_key_id === prefix);
    if (found) setSeen(found);
  }, [usage.data, prefix]);
  const refusal = useRefusals({ keyId: id, prefix }, usage.reload);
  const attempt = useAction(() =>
    client.rest.chat(
      { model, messages: [{ role: "user", content: REQUEST.messages[0]!.content }] },
      { apiKey: secret ?? "", ref: refOf(prefix) },
    ),
  );
  return (
    <Section
      title="The answer"
      actions={
        secret && (
          <Button
            icon="play"
            busy={attempt.busy}
            disabled={!model}
            onClick={() => void attempt.run().then(() => usage.reload())}
          >
            Send it from here
          </Button>
        )
      }
    >
      {seen ? (
        <Note
          tone="good"
          action={
            <LinkButton href={`/requests?open=${seen.id}`} small>
              See the request
            </LinkButton>
          }
        >
          <strong>The first request arrived.</strong>{" "}
          <span className="muted">
            {seen.model}, {compact(seen.total_tokens)} tokens,{" "}
            {seen.cost === null ? withoutCost(seen.unpriced) : money(seen.cost)},{" "}
            <When time={seen.created_at} />
          </span>
        </Note>
      ) : (attempt.error ?? refusal) ? (
        <Mistake error={attempt.error ?? refusal} />
      ) : (
        <div className="waiting">
          <p role="status">
            <Status tone="plain" icon="waiting">
              Waiting for the first request
            </Status>
          </p>
          <p className="muted small">
            A call that carries no key, or goes to another address, cannot be seen here.
          </p>
        </div>
      )}
    </Section>
  );
}

const REMEDIES: Record<string, string> = {
  "401": "The key was rejected. Has it expired, was it revoked, or copied incompletely?",
  model_not_found: "No backend serves this model. Choose another above, or ask the operator to register one.",
  internal_error: "The model is known, but none of its backends is healthy right now.",
  quota_exceeded: "This month's quota, or the key's monthly budget, is used up; it resets next month.",
  payment_required: "Points and quota, or the key's total budget, are used up, or something is owed.",
  rate_limit_exceeded: "Too many requests in a minute. Wait a moment and send it again.",
  model_not_allowed: "This key, or the group that pays for it, does not allow this model.",
  bad_gateway: "The model server returned an error:",
};

function Mistake({ error }: { error: unknown }) {
  const remedy =
    error instanceof RestError ? (REMEDIES[error.code] ?? REMEDIES[String(error.status)]) : undefined;
  return (
    <Note tone="bad">
      <strong>{remedy ?? "The request failed."}</strong>{" "}
      <span className="muted">{error instanceof Error ? error.message : String(error)}</span>
    </Note>
  );
}
