import fc, { type Arbitrary } from "fast-check";
import {
  type AnswerPlan,
  type BatchStep,
  CACHED,
  type ChatRequest,
  type ChatStep,
  type EmbedStep,
  type Ending,
  type KeyKind,
  type Leave,
  type Member,
  OUTPUT_MEMBERS,
  type Person,
  type Place,
  type Plot,
  PROMPT_FORMS,
  type Prompt,
  REPORTS,
  type Report,
  type RushStep,
  type Spelling,
  type Step,
  TIERS,
  type TierName,
  VIDEO_DIALECTS,
  VIDEO_MODES,
  type VideoStep,
  type VoiceStep,
  WORK_NAMES,
  type WorkName,
  type WorkStep,
} from "./plot.ts";
import { COUNT_NAMES, LIMIT_NAMES } from "./spelling.ts";
import { TEXT_KINDS } from "./tokens.ts";
import { COUNT_NAMES as IMAGE_COUNT_NAMES } from "./upstream/work.ts";

const PEOPLE_MAX = 3;
const INSTANCES_MAX = 3;
const STEPS_MAX = 26;
const BATCH_MAX = 12;
const RUSH_MAX = 12;

/** Picks from a list in which a value may be said to come up more often. */
const oftener = <T>(...choices: readonly (readonly [weight: number, value: T])[]): Arbitrary<T> =>
  fc.oneof(...choices.map(([weight, value]) => ({ weight, arbitrary: fc.constant(value) })));
const range = (min: number, max: number) => fc.integer({ min, max });

// --- members ---

const fineCount = fc.constantFrom("1", "1", "2", "8", "128");
const fineLimit = fc.constantFrom("1", "16", "300", "300", "2000", "100000", "1e3", "10000000");
const badFigure = fc.constantFrom(
  "0",
  "-1",
  "-5",
  "1.5",
  "1e308",
  "10000001",
  '"100000"',
  "null",
  "true",
  "[4096]",
  "{}",
  "-0",
);
const place = oftener<Place>([4, "top"], [3, "extra"], [2, "options"]);
const honestSpelling = oftener<Spelling>([6, "plain"], [1, "escaped"]);
const anySpelling = fc.constantFrom<Spelling>("plain", "escaped", "capital", "upper", "folded");

const member = (
  name: Arbitrary<string>,
  value: Arbitrary<string>,
  spelling: Arbitrary<Spelling>,
): Arbitrary<Member> =>
  fc.record({
    name,
    spelling,
    place,
    value,
    before: fc.option(value, { freq: 6 }),
  });

const limit = member(fc.constantFrom(...LIMIT_NAMES), fineLimit, honestSpelling);
const count = member(fc.constantFrom(...COUNT_NAMES), fineCount, honestSpelling);
/** Another model than the one that is asked for and paid, or a longer prompt. `#` becomes the model's number. */
const smuggled = fc.oneof(
  member(fc.constant("stream_options"), fc.constant('{"include_usage":false}'), anySpelling),
  member(fc.constant("model"), fc.constant('"dear-#"'), anySpelling),
  member(fc.constant("messages"), fc.constant('[{"role":"user","content":"@LONG@"}]'), anySpelling),
  member(fc.constant("prompt"), fc.constant('"@LONG@"'), anySpelling),
);
const wrong = fc.oneof(
  member(fc.constantFrom(...LIMIT_NAMES, ...COUNT_NAMES), badFigure, honestSpelling),
  member(fc.constantFrom(...LIMIT_NAMES), fineLimit, anySpelling),
  member(fc.constantFrom(...COUNT_NAMES), fineCount, anySpelling),
  smuggled,
);
const fineMembers = fc.array(fc.oneof({ weight: 3, arbitrary: limit }, { weight: 1, arbitrary: count }), {
  maxLength: 3,
});
/** Most bodies are valid, or nothing would be served. */
const members = fc.oneof(
  { weight: 5, arbitrary: fineMembers },
  {
    weight: 1,
    arbitrary: fc.tuple(fineMembers, wrong).map(([fine, one]) => [...fine, one]),
  },
);

// --- prompts, answers, moments of leaving ---

const prompt: Arbitrary<Prompt> = fc.record({
  kind: fc.constantFrom(...TEXT_KINDS),
  tokens: fc.oneof(
    { weight: 6, arbitrary: range(3, 120) },
    { weight: 3, arbitrary: range(200, 2_000) },
    { weight: 1, arbitrary: range(4_000, 16_000) },
  ),
  disguise: oftener<Prompt["disguise"]>(
    [8, "none"],
    [1, "marker"],
    [1, "data-url"],
    [1, "beside-image"],
    [1, "odd-part"],
  ),
  images: oftener([8, 0], [1, 1], [1, 2]),
  tools: fc.oneof({ weight: 6, arbitrary: fc.constant(0) }, { weight: 1, arbitrary: range(50, 800) }),
  prediction: fc.oneof({ weight: 9, arbitrary: fc.constant(0) }, { weight: 1, arbitrary: range(50, 800) }),
});

const reports = (exaggerates: boolean): Arbitrary<Report> =>
  fc.oneof(
    { weight: 3, arbitrary: fc.constant<Report>("honest") },
    { weight: 2, arbitrary: fc.constant<Report>("never") },
    {
      weight: 4,
      arbitrary: fc.constantFrom(...REPORTS.filter((report) => exaggerates || report !== "too-much")),
    },
  );

const PIECES_MAX = 40;
const answerPlan = (exaggerates: boolean): Arbitrary<AnswerPlan> =>
  fc
    .record({
      wants: fc.oneof(range(1, 60), range(100, 700), range(700, 3_000)),
      pieceTokens: range(1, 120),
      text: fc.constantFrom(...TEXT_KINDS),
      member: fc.oneof(fc.constant<"content">("content"), fc.constantFrom(...OUTPUT_MEMBERS)),
      alike: fc.boolean(),
      report: reports(exaggerates),
      cached: fc.constantFrom(...CACHED),
      ending: oftener<Ending>(
        [14, "whole"],
        [2, "no-done"],
        [1, "cut"],
        [1, "error-event"],
        [1, "refuse"],
        [1, "fail"],
      ),
    })
    .map((plan) => ({
      ...plan,
      pieceTokens: Math.max(plan.pieceTokens, Math.ceil(plan.wants / PIECES_MAX)),
    }));

const leave: Arbitrary<Leave> = fc.oneof(
  { weight: 8, arbitrary: fc.constant<Leave>({ at: "never" }) },
  { weight: 1, arbitrary: range(0, 12).map((afterMs): Leave => ({ at: "start", afterMs })) },
  { weight: 2, arbitrary: fc.constant<Leave>({ at: "dispatch" }) },
  { weight: 2, arbitrary: range(1, 30).map((piece): Leave => ({ at: "piece", piece })) },
  { weight: 2, arbitrary: fc.constant<Leave>({ at: "usage" }) },
);

// --- steps ---

const who = range(0, PEOPLE_MAX - 1);
const instance = range(0, INSTANCES_MAX - 1);
const key = oftener<KeyKind>([3, "plain"], [1, "other"], [3, "group"], [2, "fresh"]);

const chatRequest = (exaggerates: boolean): Arbitrary<ChatRequest> =>
  fc.record({
    model: oftener<ChatRequest["model"]>([6, "dear"], [2, "cheap"], [1, "free"]),
    upstream: oftener<ChatRequest["upstream"]>(
      [8, "chat"],
      [2, "ollama"],
      [1, "engine"],
      [3, "messages"],
      [3, "responses"],
      [3, "gemini"],
    ),
    stream: fc.boolean(),
    prompt,
    asText: fc.record({
      form: fc.constantFrom(...PROMPT_FORMS),
      suffix: fc.oneof({ weight: 3, arbitrary: fc.constant(0) }, { weight: 1, arbitrary: range(10, 3_000) }),
    }),
    members,
    conversation: oftener([5, false], [1, true]),
    memory: oftener([3, false], [1, true]),
    plan: answerPlan(exaggerates),
    leave,
  });

const chat = (exaggerates: boolean): Arbitrary<ChatStep> =>
  fc
    .record({
      who,
      instance,
      key,
      via: oftener<ChatStep["via"]>(
        [10, "chat"],
        [1, "cursor"],
        [4, "responses"],
        [4, "messages"],
        [3, "gemini"],
        [4, "completions"],
        [2, "ollama"],
        [1, "generate"],
        [1, "raw"],
        [3, "send"],
        [1, "socket"],
      ),
      request: chatRequest(exaggerates),
    })
    .map(({ request, ...step }) => {
      // Engines and the vendors' own APIs have no text completions.
      const isText = step.via === "completions" || step.via === "raw";
      const upstream = isText && request.upstream !== "ollama" ? "chat" : request.upstream;
      return { do: "chat" as const, ...step, ...request, upstream };
    });

/** The burst: as many as fit, alike, at one moment. */
const batch = (exaggerates: boolean): Arbitrary<BatchStep> =>
  fc.record({
    do: fc.constant("batch" as const),
    who,
    instance,
    sends: fc
      .tuple(chatRequest(exaggerates), range(2, BATCH_MAX))
      .map(([request, length]) => Array.from({ length }, () => ({ ...request, conversation: false }))),
  });

const rush = (exaggerates: boolean): Arbitrary<RushStep> =>
  fc.record({
    do: fc.constant("rush" as const),
    who,
    key,
    times: range(2, RUSH_MAX),
    request: chatRequest(exaggerates).map((request) => ({ ...request, conversation: false })),
  });

const embed = (exaggerates: boolean): Arbitrary<EmbedStep> =>
  fc.record({
    do: fc.constant("embed" as const),
    who,
    instance,
    key,
    via: oftener<EmbedStep["via"]>([2, "embeddings"], [1, "ollama"]),
    prompt,
    form: fc.constantFrom(...PROMPT_FORMS),
    members: fc
      .array(member(fc.constantFrom("model", "input"), fc.constant('"@LONG@"'), anySpelling), {
        maxLength: 1,
      })
      .map((list) => list.map((one) => (one.name === "model" ? { ...one, value: '"embed-#"' } : one))),
    plan: answerPlan(exaggerates),
    leave,
  });

const voice = (exaggerates: boolean): Arbitrary<VoiceStep> =>
  fc.record({
    do: fc.constant("voice" as const),
    who,
    instance,
    instructions: range(5, 300),
    audioSeconds: oftener([2, 0], [1, 2], [1, 10]),
    responses: fc.array(
      fc.record({
        seconds: range(1, 8),
        report: reports(exaggerates),
        unasked: oftener([3, false], [1, true]),
        leaveAfter: fc.option(range(1, 8), { freq: 3 }),
      }),
      { minLength: 1, maxLength: 4 },
    ),
    byEvent: fc.boolean(),
  });

const side = fc.option(fc.constantFrom(320, 480, 720, 768, 1072, 1080, 1088, 1920, 2160), { freq: 3 });
const video: Arbitrary<VideoStep> = fc.record({
  do: fc.constant("video" as const),
  who,
  instance,
  key: fc.oneof(key, fc.constant<"rpc">("rpc")),
  mode: fc.constantFrom(...VIDEO_MODES),
  dialect: fc.constantFrom(...VIDEO_DIALECTS),
  durationSeconds: fc.option(fc.constantFrom(1, 6, 10, 30), { freq: 3 }),
  width: side,
  height: side,
  extra: fc.dictionary(
    fc.constantFrom(
      "duration",
      "n",
      "model",
      "resolution",
      "size",
      "fps",
      "frames",
      "seed",
      "Duration",
      "RESOLUTION",
      "re\u017folution",
    ),
    fc.constantFrom(
      "1",
      "10",
      "60",
      "240",
      '"1080P"',
      '"2160P"',
      '"1920*1080"',
      '"30"',
      "-1",
      "0.5",
      "null",
      '"clip-minimax-per_second_resolution"',
    ),
    { maxKeys: 2 },
  ),
  reports: fc.boolean(),
  cancelled: oftener([2, false], [1, true]),
});

const AMOUNT_MAX: Record<WorkName, number> = {
  images: 8,
  edits: 4,
  speech: 1_000,
  transcriptions: 30,
  rerank: 250,
  moderations: 20,
};
const sizes = fc.constantFrom('"1024x1024"', '"1792X1024"', '"9999x9999"', '"auto"', "1024", "null");
/** These are forms, which carry what is plain. */
const FORMS: ReadonlySet<WorkName> = new Set(["edits", "transcriptions"]);
const LONG_TEXT = JSON.stringify("word ".repeat(600));
const workMember = (kind: WorkName): Arbitrary<Member> =>
  kind === "images"
    ? fc.oneof(
        member(fc.constantFrom(...IMAGE_COUNT_NAMES), fc.oneof(fineCount, badFigure), anySpelling),
        member(fc.constantFrom("size", "width", "aspect_ratio"), sizes, anySpelling),
      )
    : member(
        fc.constantFrom("model", "input", "documents", "n"),
        fc.constantFrom(LONG_TEXT, "[]", "4"),
        anySpelling,
      );

const work: Arbitrary<WorkStep> = fc.constantFrom(...WORK_NAMES).chain((kind) =>
  fc.record({
    do: fc.constant("work" as const),
    who,
    instance,
    key,
    kind: fc.constant(kind),
    amount: range(1, AMOUNT_MAX[kind]),
    size: fc.constantFrom("1024x1024", "1024x1024", "1792x1024", null, "auto"),
    members: fc
      .array(workMember(kind), { maxLength: FORMS.has(kind) ? 0 : 2 })
      .map((list) => list.filter(({ place }) => place !== "options")),
    makesLess: oftener([3, false], [1, true]),
    ending: oftener<WorkStep["ending"]>([8, "whole"], [1, "refuse"], [1, "fail"], [1, "cut"]),
    leave: fc.oneof(
      { weight: 5, arbitrary: fc.constant<WorkStep["leave"]>({ at: "never" }) },
      { weight: 1, arbitrary: range(0, 12).map((afterMs): WorkStep["leave"] => ({ at: "start", afterMs })) },
      { weight: 1, arbitrary: fc.constant<WorkStep["leave"]>({ at: "dispatch" }) },
    ),
  }),
);

interface Mood {
  exaggerates: boolean;
  /** Clips take seconds, so only some rounds have any. */
  films: boolean;
  /** The group may be deleted while its pool pays. */
  disbands: boolean;
}

const step = ({ exaggerates, films, disbands }: Mood): Arbitrary<Step> =>
  fc.oneof(
    { weight: 20, arbitrary: chat(exaggerates) },
    { weight: 2, arbitrary: batch(exaggerates) },
    { weight: 2, arbitrary: rush(exaggerates) },
    { weight: 3, arbitrary: embed(exaggerates) },
    { weight: 2, arbitrary: voice(exaggerates) },
    { weight: films ? 4 : 0, arbitrary: video },
    { weight: 4, arbitrary: work },
    { weight: 1, arbitrary: fc.record({ do: fc.constant("topup" as const), points: range(1, 400) }) },
    {
      weight: 2,
      arbitrary: fc.record({ do: fc.constant("allocate" as const), to: who, points: range(1, 400) }),
    },
    {
      weight: 1,
      arbitrary: fc.record({
        do: fc.constant("discount" as const),
        who,
        multiplier: fc.constantFrom(0.000001, 0.5, 0.999999, 1, 3),
      }),
    },
    { weight: 1, arbitrary: fc.record({ do: fc.constant("revoke" as const), who }) },
    { weight: disbands ? 1 : 0, arbitrary: fc.record({ do: fc.constant("disband" as const) }) },
  );

const person: Arbitrary<Person> = fc.record({
  tier: fc.oneof(
    {
      weight: 5,
      arbitrary: fc.constantFrom<TierName>("storm-none", "storm-dollar", "storm-dime", "storm-tokens"),
    },
    { weight: 1, arbitrary: fc.constantFrom(...(Object.keys(TIERS) as TierName[])) },
  ),
  walletPoints: fc.constantFrom(0, 2, 11, 50, 300, 2_000),
});

const mood: Arbitrary<Mood> = fc.record({
  exaggerates: oftener([4, false], [1, true]),
  films: oftener([3, false], [1, true]),
  disbands: oftener([5, false], [1, true]),
});

export const plot: Arbitrary<Plot> = mood.chain((mood) =>
  fc.record({
    exaggerates: fc.constant(mood.exaggerates),
    atOnce: fc.constantFrom(1, 2, 4, 8, 16),
    people: fc.array(person, { minLength: 1, maxLength: PEOPLE_MAX }),
    poolPoints: fc.constantFrom(0, 30, 300, 3_000),
    steps: fc.array(step(mood), { minLength: 1, maxLength: STEPS_MAX, size: "max" }),
  }),
);
