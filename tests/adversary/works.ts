import { PNG, wave } from "@model-gateway/testing/work.ts";
import { canaryText, type Payer } from "./flights.ts";
import type { WorkName, WorkStep } from "./plot.ts";
import { membersAt, objectText } from "./spelling.ts";
import type { Stage } from "./stage.ts";
import { textOf } from "./tokens.ts";
import { WORK_NUMBERS, WorkTask, workModel } from "./upstream/work.ts";

const PATHS: Record<WorkName, string> = {
  images: "/v1/images/generations",
  edits: "/v1/images/edits",
  speech: "/v1/audio/speech",
  transcriptions: "/v1/audio/transcriptions",
  rerank: "/v1/rerank",
  moderations: "/v1/moderations",
};
const ANSWER_WITHIN_MS = 15_000;

/** One piece of work with what both of its ends saw. */
export interface WorkJob {
  step: WorkStep;
  payer: Payer;
  /** In its model's id, unique in the round: the usage row tells whose it is. */
  number: number;
  task: WorkTask;
  /** 0: no answer. */
  status: number;
  left: boolean;
  words: string;
}

const json = JSON.stringify;

/** What is asked for, as the client of good faith would write it. */
function plainFields(step: WorkStep, sign: string): [key: string, value: string][] {
  const { kind, amount, size } = step;
  const many = (each: (index: number) => string) => json(Array.from({ length: amount }, (_, i) => each(i)));
  switch (kind) {
    case "images":
    case "edits":
      return [
        ["prompt", json(`${sign} a lamp by the river`)],
        ["n", String(amount)],
        ...(size === null ? [] : ([["size", json(size)]] as [string, string][])),
      ];
    case "speech":
      return [["input", json(`${sign} ${textOf("prose", amount)}`)]];
    case "transcriptions":
      return [["prompt", json(sign)]];
    case "rerank":
      return [
        ["query", json(sign)],
        ["documents", many((index) => `document ${index}`)],
      ];
    case "moderations":
      return [["input", many(() => sign)]];
  }
}

function bodyOf(step: WorkStep, sign: string, model: string): string | FormData {
  const fields: [string, string][] = [["model", json(model)], ...plainFields(step, sign)];
  const isForm = step.kind === "edits" || step.kind === "transcriptions";
  const extra = membersAt(step.members, "extra");
  if (!isForm)
    return objectText([
      ...fields,
      ...membersAt(step.members, "top"),
      ...(extra.length > 0 ? ([["extra", objectText(extra)]] as [string, string][]) : []),
    ]);
  const form = new FormData();
  for (const [name, value] of fields) form.append(name, String(JSON.parse(value)));
  if (step.kind === "edits") form.append("image", new Blob([new Uint8Array(PNG)]), "a.png");
  else form.append("file", new Blob([new Uint8Array(wave(step.amount))]), "a.wav");
  return form;
}

/** Asks for the work, and stays until it is done or until the moment that its plan names. */
export async function work(
  stage: Stage,
  step: WorkStep,
  { number, canary, payer, key }: { number: number; canary: number; payer: Payer; key: string },
): Promise<WorkJob> {
  const task = new WorkTask(step);
  const model = workModel(WORK_NUMBERS.from + number);
  const job: WorkJob = {
    step,
    payer,
    number: WORK_NUMBERS.from + number,
    task,
    status: 0,
    left: false,
    words: "",
  };
  stage.upstream.works.set(canary, task);
  const abort = new AbortController();
  let isOver = false;
  const leave = () => {
    if (isOver) return;
    job.left = true;
    abort.abort();
  };
  const late = setTimeout(() => {
    job.words = "no answer in time";
    leave();
  }, ANSWER_WITHIN_MS);
  const { leave: plan } = step;
  const early = plan.at === "start" ? setTimeout(leave, plan.afterMs) : undefined;
  if (plan.at === "dispatch") void task.arrived.then(leave);
  const body = bodyOf(step, canaryText(canary), model);
  try {
    const response = await fetch(`${stage.at(step.instance).url}${PATHS[step.kind]}`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${key}`,
        ...(typeof body === "string" && { "content-type": "application/json" }),
      },
      body,
      signal: abort.signal,
      keepalive: false,
    });
    job.status = response.status;
    const text = await response.text();
    if (!response.ok) job.words = text.slice(0, 300);
  } catch (error) {
    if (!job.left) job.words = (error as Error).message;
  } finally {
    isOver = true;
    clearTimeout(late);
    clearTimeout(early);
  }
  return job;
}
