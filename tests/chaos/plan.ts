import { Random } from "./random.ts";

/** m: two upstreams have it. route: a model route that falls back from one to the other. tiny: a node's engine. */
export type Model = "m" | "route" | "tiny";
/** What the upstream makes of it; a node's engine always answers. */
export type Behaviour = "answers" | "breaks off" | "refuses" | "fails inside" | "goes on for ever";

/** One request, what the upstream does with it and what the client does. */
export interface Plan {
  model: Model;
  stream: boolean;
  /** Points of a group's pool, or a plan without limits. */
  payer: "pool" | "plan";
  behaviour: Behaviour;
  /** Words of the answer, and the time between two of them. */
  words: number;
  gapMs: number;
  /** The client leaves after so many pieces of the answer, at 0 without having seen any; null: never. */
  leavesAfter: number | null;
}

const OPERATIONS_MAX = 1_000_000_007;

/** Calm: upstreams answer, clients stay, and no node is asked, so that every failure is the service's. */
export type Temper = "calm" | "wild";

/** The plan of one operation: a pure function of the run's seed and its number. */
export function planOf(seed: number, op: number, temper: Temper = "wild"): Plan {
  const plan = wildPlan(seed, op);
  if (temper === "wild") return plan;
  const model = plan.model === "tiny" ? "m" : plan.model;
  return { ...plan, model, behaviour: "answers", leavesAfter: null };
}

function wildPlan(seed: number, op: number): Plan {
  const random = new Random((seed * 31 + op * 2_654_435_761) % OPERATIONS_MAX);
  random.next();
  const model = random.weighted<Model>({ m: 7, route: 2, tiny: 1 });
  const stream = random.next() < 0.7;
  const payer = random.pick(["pool", "plan"] as const);
  const leaves = random.next() < 0.15;
  const behaviour = random.weighted<Behaviour>({
    answers: 90,
    "breaks off": 4,
    refuses: 3,
    "fails inside": 3,
    "goes on for ever": 0,
  });
  const words = random.whole(2, 40);
  const gapMs = random.pick([0, 1, 5, 20]);
  const leavesAfter = random.whole(0, stream ? 10 : 0);
  if (!leaves) return { model, stream, payer, behaviour, words, gapMs, leavesAfter: null };
  // Only the client can end it: what goes on after that was left running.
  return { model, stream, payer, behaviour: "goes on for ever", words, gapMs: 5, leavesAfter };
}
