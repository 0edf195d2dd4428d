import { ConnectionError, RestError, RPC_CODE, RpcError } from "@model-gateway/client";
import type { ReactNode } from "react";
import { ago, exactTime } from "../lib/format.ts";
import type { Query } from "../lib/query.ts";
import { Told } from "../lib/told.ts";
import { Button } from "./controls.tsx";
import { Icon, type IconName } from "./icons.tsx";
import { Skeleton } from "./skeleton.tsx";

export type Tone = "good" | "warn" | "bad" | "plain";
const TONE_ICON: Record<Tone, IconName> = { good: "ok", warn: "warning", bad: "error", plain: "info" };

/** A state with its colour, its icon and its word: never colour alone. */
export function Status({ tone, children, icon }: { tone: Tone; children: ReactNode; icon?: IconName }) {
  return (
    <span className={`status ${tone === "plain" ? "muted" : tone}`}>
      <Icon name={icon ?? TONE_ICON[tone]} />
      {children}
    </span>
  );
}

export function Note({
  tone = "plain",
  children,
  action,
}: {
  tone?: Tone;
  children: ReactNode;
  action?: ReactNode;
}) {
  return (
    <div className={`note tone-${tone}`} role={tone === "bad" ? "alert" : "note"}>
      <Icon name={TONE_ICON[tone]} />
      <div className="grow">{children}</div>
      {action}
    </div>
  );
}

interface Explained {
  title: string;
  detail?: string;
  tone: Tone;
  /** Trying again without changing anything can help. */
  retry: boolean;
}

/** "Invalid params: `user_email`: must not be empty" as a person would say it: "User email must not be empty". */
const asSentence = (message: string) =>
  message
    .replace(/^Invalid params: /, "")
    .replace(
      /^`(\w+)s\.(\d+)\.(\w+)`:? /,
      (_, list: string, index: string, field: string) => `${field} of ${list} ${Number(index) + 1} `,
    )
    .replace(/^`([\w.]+)`:? /, (_, field: string) => `${field.replaceAll(/[_.]/g, " ")} `)
    .replace(/^[a-z]+(?= )/, (word) => word[0]!.toUpperCase() + word.slice(1));

/** What went wrong, why, and what to do, for any thrown value. */
export function explain(error: unknown): Explained {
  if (error instanceof ConnectionError)
    return {
      title: "The service cannot be reached",
      detail: "It may be restarting; try again in a moment.",
      tone: "warn",
      retry: true,
    };
  if (error instanceof RpcError) {
    if (error.code === RPC_CODE.methodNotFound)
      return {
        title: "Not available on this server",
        detail: `This server does not offer ${error.method}. A newer version may.`,
        tone: "plain",
        retry: false,
      };
    if (error.code === RPC_CODE.adminRequired)
      return { title: "Only for administrators", detail: error.message, tone: "plain", retry: false };
    return { title: asSentence(error.message), tone: "bad", retry: error.code === RPC_CODE.internal };
  }
  if (error instanceof RestError) {
    if (error.status === 404 && error.code === "not_found" && error.message.startsWith("No such path"))
      return {
        title: "Not available on this server",
        detail: "This server does not have this page's interface. A newer version may.",
        tone: "plain",
        retry: false,
      };
    if (error.status === 401)
      return {
        title: "Your session has ended",
        detail: "Sign in again.",
        tone: "bad",
        retry: false,
      };
    return { title: asSentence(error.message), tone: "bad", retry: error.status >= 500 };
  }
  if (error instanceof Told)
    return { title: error.title, detail: error.message, tone: "bad", retry: error.retry };
  return {
    title: "Something went wrong on this page",
    detail: error instanceof Error ? error.message : String(error),
    tone: "bad",
    retry: true,
  };
}

export function Failure({ error, onRetry }: { error: unknown; onRetry?: () => void }) {
  const { title, detail, tone, retry } = explain(error);
  return (
    <Note
      tone={tone}
      action={
        onRetry &&
        retry && (
          <Button small icon="refresh" onClick={onRetry}>
            Try again
          </Button>
        )
      }
    >
      <strong>{/[.!?]$/.test(title) ? title : `${title}.`}</strong>{" "}
      {detail && <span className="muted">{detail}</span>}
    </Note>
  );
}

export function FormError({ error }: { error: unknown }) {
  return error ? <Failure error={error} /> : null;
}

export function Empty({
  icon,
  title,
  children,
  action,
}: {
  icon: IconName;
  title: string;
  children: ReactNode;
  action?: ReactNode;
}) {
  return (
    <div className="empty">
      <Icon name={icon} />
      <h2>{title}</h2>
      <p>{children}</p>
      {action}
    </div>
  );
}

/** A failed query beside what it already brought. An unreachable service is reported once, in the banner. */
export function QueryFailure({ query: { error, reload } }: { query: Query<unknown> }) {
  if (!error || error instanceof ConnectionError) return null;
  return <Failure error={error} onRetry={reload} />;
}

/** Shows a query's data, or the outline of it, or the failure; a failure beside older data keeps the data. */
export function Loaded<T>({
  query,
  children,
  outline = <Skeleton />,
}: {
  query: Query<T>;
  children(data: T): ReactNode;
  /** What the page looks like while nothing is there yet. */
  outline?: ReactNode;
}) {
  const { data, error } = query;
  if (data === undefined)
    return error && !(error instanceof ConnectionError) ? <QueryFailure query={query} /> : outline;
  return (
    <>
      <QueryFailure query={query} />
      {children(data)}
    </>
  );
}

export function When({ time }: { time: string | number | null | undefined }) {
  if (time == null) return <span className="muted">never</span>;
  return (
    <time dateTime={new Date(time).toISOString()} title={exactTime(time)} className="nowrap">
      {ago(time)}
    </time>
  );
}

export function Meter({
  share,
  label,
  tone,
  tall,
  busy,
}: {
  share: number;
  label: string;
  tone?: Tone;
  tall?: boolean;
  busy?: boolean;
}) {
  const bounded = Math.max(0, Math.min(1, Number.isFinite(share) ? share : 0));
  const classes = ["meter", tone && `tone-${tone}`, tall && "tall", busy && "busy"].filter(Boolean).join(" ");
  return (
    // biome-ignore lint/a11y/useSemanticElements: browsers draw the native meter each in their own way
    <span
      className={classes}
      role="meter"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(bounded * 100)}
    >
      <i style={{ width: `${bounded * 100}%` }} />
    </span>
  );
}
