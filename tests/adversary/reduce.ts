import type { ChatRequest, Plot, Step } from "./plot.ts";

/** Whether a plot still shows what was found. */
export type Shows = (plot: Plot) => Promise<boolean>;

const PLAIN = { disguise: "none", images: 0, tools: 0, prediction: 0 } as const;

/** Simpler versions of one request, the boldest first. */
function* simplerRequests<R extends ChatRequest>(request: R): Generator<R> {
  if (request.members.length > 0) yield { ...request, members: [] };
  if (request.members.length > 1)
    for (const dropped of request.members)
      yield { ...request, members: request.members.filter((member) => member !== dropped) };
  if (request.conversation) yield { ...request, conversation: false };
  if (request.memory) yield { ...request, memory: false };
  for (const [name, value] of Object.entries(PLAIN))
    if (request.prompt[name as keyof typeof PLAIN] !== value)
      yield { ...request, prompt: { ...request.prompt, [name]: value } };
  if (request.leave.at !== "never") yield { ...request, leave: { at: "never" } };
}

function* simplerSteps(step: Step): Generator<Step> {
  if (step.do === "chat") yield* simplerRequests(step);
  if (step.do === "rush") {
    for (let times = 1; times < step.times; times *= 2) yield { ...step, times };
    for (const request of simplerRequests(step.request)) yield { ...step, request };
  }
  if (step.do === "voice" && step.responses.length > 1)
    for (const dropped of step.responses)
      yield { ...step, responses: step.responses.filter((response) => response !== dropped) };
  if (step.do !== "batch") return;
  const [first] = step.sends;
  for (let length = 1; length < step.sends.length; length *= 2)
    yield { ...step, sends: step.sends.slice(0, length) };
  // All of a batch are alike, so they are made simpler together.
  for (const simpler of simplerRequests(first!)) yield { ...step, sends: step.sends.map(() => simpler) };
}

/** Simpler versions of a plot, the boldest first: one step alone, half of them, all but one, then what is in them. */
function* simplerPlots(plot: Plot): Generator<Plot> {
  const { steps, people } = plot;
  const withSteps = (kept: Step[]): Plot => ({ ...plot, steps: kept });
  if (steps.length > 1) {
    for (const step of steps) yield { ...withSteps([step]), atOnce: 1 };
    for (let size = Math.ceil(steps.length / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2))
      for (let at = 0; at < steps.length; at += size)
        yield withSteps([...steps.slice(0, at), ...steps.slice(at + size)]);
  }
  if (people.length > 1) for (const person of people) yield { ...plot, people: [person] };
  if (plot.atOnce > 1) yield { ...plot, atOnce: 1 };
  for (const [i, step] of steps.entries())
    for (const simpler of simplerSteps(step)) yield withSteps(steps.with(i, simpler));
}

/** The simplest plot that could be found in time and still shows it; each one is played to see. */
export async function reduce(plot: Plot, shows: Shows, untilMs: number): Promise<Plot> {
  let smallest = plot;
  for (let isDone = false; !isDone; ) {
    isDone = true;
    for (const simpler of simplerPlots(smallest)) {
      if (Date.now() > untilMs) return smallest;
      if (!(await shows(simpler))) continue;
      smallest = simpler;
      isDone = false;
      break;
    }
  }
  return smallest;
}
