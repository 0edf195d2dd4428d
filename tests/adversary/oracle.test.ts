import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { charge, FEMTO_PER_POINT } from "../../packages/gateway/src/rooms/ledger/charge.ts";
import type { Books, Row } from "./books.ts";
import { checkPoints, checkQuotas, checkRequests } from "./checks.ts";
import type { ClipJob } from "./clips.ts";
import { type Asked, type Dispatch, Flight, STOPPED } from "./flights.ts";
import { plot } from "./grammar.ts";
import { owedTokens } from "./owed.ts";
import { type AnswerPlan, MODEL_NUMBERS, type WorkStep } from "./plot.ts";
import type { Population } from "./population.ts";
import { fold, forbidden, LIMIT_NAMES, onlyFolds, spelled } from "./spelling.ts";
import { countTokens, markOf, marksIn, PIECES_MAX, TEXT_KINDS, textOf } from "./tokens.ts";
import { readChat, readOllama, readText } from "./upstream/reading.ts";
import { clipUsd } from "./upstream/video.ts";
import { WorkTask } from "./upstream/work.ts";
import { checkWorks } from "./work-checks.ts";
import type { WorkJob } from "./works.ts";

const USER = "u1";
const GROUP = { isDisbanded: false };
const PLAN: AnswerPlan = {
  wants: 1_000,
  pieceTokens: 100,
  text: "prose",
  member: "content",
  alike: false,
  report: "honest",
  cached: "none",
  ending: "whole",
};
const DISPATCH: Dispatch = {
  model: "dear-0",
  promptTokens: 1_000,
  choices: 1,
  limit: null,
  pieces: Array.from({ length: 10 }, () => 100),
  hiddenTokens: 0,
  reported: { prompt: 1_000, completion: 1_000 },
  end: "whole",
};

/** A chat of ten pieces, of which the client saw so many. */
function flightOf({
  seen = 10,
  left = false,
  asked = {},
  ...dispatch
}: Partial<Dispatch> & { seen?: number; left?: boolean; asked?: Partial<Asked> } = {}) {
  const payer = { userId: USER, account: `user:${USER}`, signedIn: false, project: "default" };
  const flight = new Flight(1, 0, payer, {
    surface: "chat",
    model: "dear",
    plan: PLAN,
    leave: { at: "never" },
    promptTokens: 0,
    members: [],
    ...asked,
  });
  flight.arrive({ ...DISPATCH, ...dispatch });
  flight.outcome.status = 200;
  flight.outcome.left = left;
  for (let piece = 0; piece < seen; piece++) flight.outcome.seen.add(piece);
  return flight;
}

const rowOf = (row: Partial<Row> = {}): Row => ({
  id: "r",
  userId: USER,
  signedIn: false,
  project: "default",
  model: "dear-0",
  promptTokens: 1_000,
  completionTokens: 1_000,
  cachedTokens: 0,
  costUsd: 1.1,
  points: 110,
  ...row,
});
const booksOf = (...rows: Row[]): Books => ({ rows, balances: new Map(), debts: new Map() });
const rules = (problems: readonly { rule: string }[]) => problems.map(({ rule }) => rule.split(":")[0]);

describe("what is owed", () => {
  test("a finished answer: the figures that can be true", () => {
    expect(owedTokens(flightOf())).toEqual({ prompt: 1_000, completion: 1_000 });
    expect(owedTokens(flightOf({ reported: { prompt: 7, completion: 0 } }))).toEqual({
      prompt: 7,
      completion: 0,
    });
  });

  test("a finished answer without possible figures: the count, less the allowance", () => {
    const counted = { prompt: 784, completion: 784 };
    expect(owedTokens(flightOf({ reported: null }))).toEqual(counted);
    for (const figure of [1e308, -5, 1.5, "17", 10_000_001])
      expect(owedTokens(flightOf({ reported: { prompt: figure, completion: figure } }))).toEqual(counted);
  });

  test("left in the middle: the prompt and what was delivered, whatever was reported", () => {
    const running = { prompt: 1_000, completion: 1 };
    const flight = flightOf({ seen: 5, left: true, end: "closed", reported: running });
    expect(owedTokens(flight)).toEqual({ prompt: 784, completion: 384 });
  });

  test("stopped by the gateway when the upstream had just ended: the figures or the count, whichever is less", () => {
    const flight = flightOf({ seen: 5 });
    expect(owedTokens(flight)).toEqual({ prompt: 1_000, completion: 1_000 });
    flight.outcome.isStopped = true;
    expect(owedTokens(flight)).toEqual({ prompt: 784, completion: 384 });
    expect('{"delta":{},"finish_reason":"length"}').toMatch(STOPPED);
    expect('{"delta":{"content":"\\"finish_reason\\":\\"length\\""},"finish_reason":"stop"}').not.toMatch(
      STOPPED,
    );
  });

  test("left before any answer: the prompt; failed before any answer: nothing", () => {
    expect(owedTokens(flightOf({ seen: 0, left: true, end: "closed", reported: null })).prompt).toBe(784);
    expect(owedTokens(flightOf({ seen: 0, end: "failed", reported: null }))).toEqual({
      prompt: 0,
      completion: 0,
    });
  });
});

describe("what is found", () => {
  test("nothing where all is in order", () => {
    expect(checkRequests(booksOf(rowOf()), [flightOf()])).toEqual([]);
  });

  test("no row, two rows, too little, too much, another model's price", () => {
    const found = (flight: Flight, ...rows: Row[]) => rules(checkRequests(booksOf(...rows), [flight]));
    expect(found(flightOf())).toEqual(["no row"]);
    expect(found(flightOf(), rowOf(), rowOf({ id: "s" }))).toContain("one row");
    expect(found(flightOf(), rowOf({ completionTokens: 999, costUsd: 1.099 }))).toEqual(["underpaid"]);
    expect(found(flightOf(), rowOf({ completionTokens: 1e9, costUsd: 1e6 + 0.1 }))).toEqual(["overcharged"]);
    expect(found(flightOf(), rowOf({ model: "cheap-0", costUsd: 0.011 }))).toEqual(["underpaid"]);
  });

  test("a key that only folds to a protected one, and a negative limit", () => {
    const member = { spelling: "plain", place: "top", value: "8", before: null } as const;
    const found = (members: Asked["members"]) =>
      rules(checkRequests(booksOf(rowOf()), [flightOf({ asked: { members } })]));
    expect(found([{ ...member, name: "n" }])).toEqual([]);
    expect(found([{ ...member, name: "n", spelling: "upper" }])).toEqual(["forbidden"]);
    expect(found([{ ...member, name: "max_tokens", value: "-1" }])).toEqual(["forbidden"]);
  });

  test("two requests beyond a quota's line, but not one", () => {
    const population = { people: [{ userId: USER, tier: "storm-dollar" }] } as unknown as Population;
    const quota = { points: null, costUsd: 0.9 };
    const plot = { exaggerates: false };
    const found = (...rows: Row[]) => rules(checkQuotas(booksOf(...rows), population, { flights: [], plot }));
    expect(found(rowOf(quota), rowOf(quota))).toEqual([]);
    expect(found(rowOf(quota), rowOf(quota), rowOf(quota))).toContain("quota");
    // A label for each request does not make it three quotas.
    expect(found(...["a", "b", "c"].map((project) => rowOf({ ...quota, project })))).toEqual(["quota"]);
    // One that was held in points, and was estimated to cost more than these, comes beside what the quota holds.
    const beyond = (completionTokens: number) => {
      const rows = [
        rowOf({ ...quota, completionTokens }),
        ...["s", "t"].map((id) => rowOf({ ...quota, id, model: "m" })),
      ];
      return rules(
        checkQuotas(booksOf(...rows), population, { flights: [flightOf({ limit: 1_000 })], plot }),
      );
    };
    expect([beyond(1_001), beyond(1_000)]).toEqual([[], ["quota", "quota"]]);
  });

  test("points that are worth less than the cost, and a negative balance", () => {
    const served = { flights: [flightOf()], works: [], clips: [] };
    expect(rules(checkPoints(booksOf(rowOf({ points: 1 })), served, GROUP))).toEqual(["points"]);
    const books = { ...booksOf(rowOf()), balances: new Map([[`user:${USER}`, -1]]) };
    expect(rules(checkPoints(books, served, GROUP))).toEqual(["negative"]);
  });

  test("not the rounding that a chat and a clip carry for each other", () => {
    const { payer } = flightOf();
    const clips = Array.from({ length: 8 }, (_, i) => ({ payer, jobId: `clip ${i}` }) as ClipJob);
    const flights = clips.map((_, i) => Object.assign(flightOf(), { modelNumber: i }));
    let account = { balance: 100, remainder: 0 };
    /** Four tenths of a point, as the ledger charges them. */
    const row = (change: Partial<Row>): Row => {
      const { points, ...after } = charge(account, { points: 0, femto: 0.4 * FEMTO_PER_POINT });
      account = after;
      return rowOf({ ...change, costUsd: 0.004, points });
    };
    const rows = clips.flatMap(({ jobId }, i) => [
      row({ model: `cheap-${i}` }),
      row({ id: jobId!, model: "clip" }),
    ]);
    const chats = rows.reduce((sum, { model, points }) => sum + (model === "clip" ? 0 : points!), 0);
    expect(chats).toBeLessThan(8 * 0.4 - 1);
    expect(checkPoints(booksOf(...rows), { flights, works: [], clips }, GROUP)).toEqual([]);
    const cheaper = rows.map((each) => ({ ...each, points: each.model === "clip" ? 0 : each.points }));
    expect(rules(checkPoints(booksOf(...cheaper), { flights, works: [], clips }, GROUP))).toEqual(["points"]);
  });
});

describe("the upstream", () => {
  test("texts have the tokens that they say, in every kind", () => {
    for (const kind of TEXT_KINDS)
      for (const tokens of [1, 2, 17, 100, 1_000]) expect(countTokens(textOf(kind, tokens))).toBe(tokens);
  });

  test("marks are one token, and are found again", () => {
    const mark = { request: MODEL_NUMBERS - 1, piece: PIECES_MAX - 1 };
    expect(countTokens(` ${markOf(mark)}`)).toBe(1);
    expect([...marksIn(`x ${markOf(mark)} y ${markOf({ request: 0, piece: 3 })}`)]).toEqual([
      mark,
      { request: 0, piece: 3 },
    ]);
  });

  test("obeys the largest limit it is sent, in any spelling, and takes nonsense for none", () => {
    expect(readChat({ max_tokens: 1, max_completion_tokens: 50 }).limit).toBe(50);
    expect(readChat({ max_tokens: 5, MAX_TOKENS: 70 }).limit).toBe(70);
    expect(readChat({ options: { num_predict: 9 } }).limit).toBe(9);
    expect(readChat({ max_tokens: -1, n_predict: 5 }).limit).toBeNull();
    expect(readChat({ max_tokens: 1, N: 128, best_of: 3 }).choices).toBe(128);
    expect(readOllama({ max_tokens: 3, options: { num_predict: 8 } }).limit).toBe(8);
  });

  test("writes an answer to each prompt of a text completion", () => {
    expect(readText({ prompt: ["a lamp", "a dog"], n: 3, max_tokens: 9 })).toMatchObject({
      promptTokens: 4,
      choices: 6,
      limit: 9,
    });
    expect(readText({ prompt: [1, 2, 3], suffix: "a lamp" })).toMatchObject({ promptTokens: 5, choices: 1 });
  });

  test("takes the last of several keys that fold to the same name", () => {
    expect(readChat({ model: "cheap-1", Model: "dear-1" }).model).toBe("dear-1");
    for (const name of ["messages", "max_tokens"]) {
      expect(onlyFolds({ name, spelling: "folded" })).toBe(true);
      expect(fold(spelled(name, "folded"))).toBe(name);
    }
    expect(JSON.parse(`{"${spelled("max_tokens", "escaped")}":1}`)).toEqual({ max_tokens: 1 });
  });

  test("prices a clip by its shorter side: the key above it, the largest, or the fallback below all", () => {
    const clip = { mode: "per_second_resolution", seconds: 10, frames: 0, copies: 1 } as const;
    const usd = (shortSide: number) => clipUsd({ ...clip, shortSide });
    expect([320, 480, 720, 768, 1072, 1080, 1088].map(usd)).toEqual([0.5, 1, 2, 5, 5, 5, 5]);
  });
});

test("the grammar makes every surface, and bodies that must and must not be refused", () => {
  const plots = fc.sample(plot, { seed: 1, numRuns: 200 });
  const steps = plots.flatMap(({ steps }) => steps);
  const kinds = new Set<string>(steps.map((step) => (step.do === "chat" ? step.via : step.do)));
  for (const kind of [
    "chat",
    "responses",
    "messages",
    "completions",
    "ollama",
    "generate",
    "raw",
    "send",
    "batch",
    "rush",
    "embed",
    "voice",
    "video",
    "topup",
    "allocate",
    "discount",
  ])
    expect(kinds).toContain(kind);
  const chats = steps.filter((step) => step.do === "chat");
  const refused = chats.filter(({ members }) => forbidden(members).length > 0).length;
  expect(refused).toBeGreaterThan(chats.length / 20);
  expect(refused).toBeLessThan(chats.length / 3);
  const names = new Set(chats.flatMap(({ members }) => members.map(({ name }) => name)));
  for (const name of LIMIT_NAMES) expect(names).toContain(name);
});

describe("work with a price of its own", () => {
  const step: WorkStep = {
    do: "work",
    who: 0,
    instance: 0,
    key: "plain",
    kind: "images",
    amount: 2,
    size: "1024x1024",
    members: [],
    makesLess: false,
    ending: "whole",
    leave: { at: "never" },
  };
  const jobOf = (change: Partial<WorkJob> & { end?: WorkTask["end"] } = {}): WorkJob => {
    const task = new WorkTask(step);
    task.worthUsd = 0.04;
    task.end = change.end ?? "whole";
    const payer = { userId: USER, account: `user:${USER}`, signedIn: false, project: "default" };
    return { step, payer, number: 1_000, task, status: 200, left: false, words: "", ...change };
  };
  const rules = (job: WorkJob, ...costs: number[]) => {
    const rows = costs.map((costUsd) => ({ userId: USER, model: "work-1000", costUsd }) as Row);
    return checkWorks({ rows, balances: new Map(), debts: new Map() }, [job]).map(({ rule }) => rule);
  };

  test("is paid once, by what was made, and by those who left too", () => {
    expect(rules(jobOf(), 0.04)).toEqual([]);
    expect(rules(jobOf())).toEqual(["no row: images"]);
    expect(rules(jobOf(), 0.02)).toEqual(["underpaid: images"]);
    expect(rules(jobOf(), 0.06)).toEqual(["priced: images"]);
    expect(rules(jobOf(), 0.04, 0.04)).toEqual(["one row: images"]);
    expect(rules(jobOf({ status: 0, left: true }))).toEqual(["no row: images, left"]);
    expect(rules(jobOf({ status: 502, end: "failed" }), 0.04)).toEqual(["paid for nothing: images"]);
    expect(rules(jobOf({ status: 502, end: "failed" }))).toEqual([]);
    expect(rules(jobOf({ status: 401, words: "the key of this request was revoked" }), 0.04)).toEqual([]);
    expect(rules(jobOf({ status: 400, words: "not known" }), 0.04)).toEqual(["paid for nothing: images"]);
  });
});
