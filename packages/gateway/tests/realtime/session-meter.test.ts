import { describe, expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { SessionMeter } from "../../src/rooms/realtime/metering/meter.ts";

type Event = Record<string, unknown>;
type Row = [promptTokens: number, completionTokens: number];

/** 300 bytes a second; ten tokens a second are heard, twenty are said. */
const rates = {
  inputAudioHz: 150,
  outputAudioHz: 150,
  inputAudioTokensPerSecond: 10,
  outputAudioTokensPerSecond: 20,
  audioSecondsMin: 0,
  tokensPerImage: 100,
};
const audio = (seconds: number) => Buffer.alloc(seconds * 300).toString("base64");
const usage = (input_tokens: number, output_tokens: number) => ({ input_tokens, output_tokens });
const words = (count: number) => "word ".repeat(count);

/** A session whose holds and charges are only written down. */
class Bench {
  readonly clock = new ManualClock();
  readonly rows: Row[] = [];
  /** What of the input was sound, row by row. */
  readonly sounds: unknown[] = [];
  readonly sent: Event[] = [];
  openHolds = 0;
  /** Ends the wait of an admission. */
  admitted: Promise<void> = Promise.resolve();
  isBroke = false;
  /** What a response can have written when only one token of output is held. */
  outputTokensMost = 0;
  /** What the model can have written by now. */
  writtenTokens = () => 0;
  readonly meter = new SessionMeter({
    model: "m",
    refId: null,
    rates,
    known: [
      "conversation",
      "input",
      "instructions",
      "input_audio_transcription",
      "turn_detection",
      "speed",
      "tools",
      "tracing",
    ],
    limits: { outputTokensMax: 100, contextTokens: null },
    ids: randomIds,
    clock: this.clock,
    admit: async (_, bound) => {
      await this.admitted;
      if ("perChoice" in bound) this.outputTokensMost = bound.perChoice!(1);
      let isOpen = true;
      this.openHolds++;
      const end = (row?: Row) => {
        if (!isOpen) throw new Error("a hold ended twice");
        isOpen = false;
        this.openHolds--;
        if (row) this.rows.push(row);
        return null;
      };
      return {
        outputTokensHeld: "outputTokensMax" in bound ? bound.outputTokensMax : 0,
        lowered: false,
        grow: async () => isOpen,
        sent() {},
        writtenTokens: () => this.writtenTokens(),
        givenUp() {},
        settle: ({ promptTokens, completionTokens, audioInputTokens }) => {
          this.sounds.push(audioInputTokens);
          return end([promptTokens, completionTokens]);
        },
        release: () => void end(),
      };
    },
    owe: (_, { promptTokens, completionTokens }) => {
      this.rows.push([promptTokens, completionTokens]);
      return null;
    },
    pace: async () => {
      if (this.isBroke) throw new Error("broke");
    },
    suspect() {},
  });

  client(event: Event): Promise<unknown> {
    return this.meter.client(event, (sent) => this.sent.push(sent) > 0);
  }
  ask(response?: Event) {
    return this.client({ type: "response.create", ...(response && { response }) });
  }
  cancel() {
    return this.client({ type: "response.cancel" });
  }
  append(seconds: number) {
    return this.client({ type: "input_audio_buffer.append", audio: audio(seconds) });
  }
  /** The client's own commit, and what the upstream says to it. */
  async commit(seconds: number, item: Event) {
    await this.append(seconds);
    await this.client({ type: "input_audio_buffer.commit" });
    await this.tell("input_audio_buffer.committed", item);
  }
  tell(type: string, members: Event = {}) {
    return this.meter.server({ type, ...members });
  }
  created(id?: string, conversation?: string | null) {
    const told = conversation === undefined ? {} : { conversation_id: conversation };
    return this.tell("response.created", { response: { ...(id && { id }), ...told } });
  }
  says(id: string | undefined, seconds: number) {
    return this.tell("response.output_audio.delta", {
      ...(id && { response_id: id }),
      delta: audio(seconds),
    });
  }
  done(id: string | undefined, figures: Event, { type = "response.done", status = "completed" } = {}) {
    return this.tell(type, { response: { ...(id && { id }), status, usage: figures } });
  }
  transcribed(item: Event, transcript: string, figures?: Event) {
    const type = "conversation.item.input_audio_transcription.completed";
    return this.tell(type, { ...item, transcript, ...(figures && { usage: figures }) });
  }
  /** Voice detection hears what was appended. */
  async speaks(seconds: number, { fromSeconds = 0 } = {}) {
    await this.append(seconds);
    await this.tell("input_audio_buffer.speech_started", { audio_start_ms: fromSeconds * 1_000 });
    const audio_end_ms = (fromSeconds + seconds) * 1_000;
    await this.tell("input_audio_buffer.speech_stopped", { audio_end_ms });
  }
  /** The upstream refuses the event that was sent last. */
  refuses({ named = true } = {}) {
    return this.tell("error", { error: { message: "odd", ...(named && this.lastSent) } });
  }
  get lastSent() {
    return { event_id: this.sent.at(-1)!.event_id };
  }
  left(by: "us" | "upstream" = "us"): Row[] {
    this.meter.close(by);
    expect(this.openHolds).toBe(0);
    return this.rows.toSorted(([one, first], [other, second]) => one - other || first - second);
  }
}

type Case = [name: string, play: (bench: Bench) => unknown, rows: Row[]];
const transcribing = { input_audio_transcription: { model: "t" } };

describe("responses", () => {
  const cancelledThenNext = async (bench: Bench, first?: string, second = first) => {
    await bench.append(1);
    await bench.ask();
    await bench.created(first);
    await bench.says(first, 1);
    await bench.cancel();
    await bench.ask();
    await bench.created(second);
  };
  const cases: Case[] = [
    [
      "a cancelled one that the next one ends, and that is told done later, costs what is told, once",
      async (bench) => {
        await cancelledThenNext(bench, "r1", "r2");
        for (let i = 0; i < 2; i++) await bench.done("r1", usage(50, 60), { status: "cancelled" });
        await bench.done("r2", usage(1, 2));
      },
      [
        [1, 2],
        [10, 20],
        [40, 40],
      ],
    ],
    [
      "a second report charges only what is more",
      async (bench) => {
        await bench.created("r1");
        await bench.done("r1", usage(10, 20), { type: "response.completed" });
        await bench.done("r1", usage(7, 25));
      },
      [
        [0, 5],
        [10, 20],
      ],
    ],
    ...[undefined, "r"].map((id): Case => {
      return [
        `a cancelled one and the next one are two, also where both are named ${id}`,
        async (bench) => {
          await cancelledThenNext(bench, id);
          await bench.done(id, usage(1, 2));
          expect(bench.openHolds).toBe(0);
        },
        [
          [1, 2],
          [10, 20],
        ],
      ];
    }),
    [
      "one whose beginning is told twice is one",
      async (bench) => {
        await bench.append(1);
        await bench.ask();
        for (let i = 0; i < 2; i++) await bench.created("r1");
        await bench.done("r1", usage(10, 20));
      },
      [[10, 20]],
    ],
    [
      "two that begin without an id are two",
      async (bench) => {
        for (let i = 0; i < 2; i++) await bench.ask();
        await bench.created();
        await bench.says(undefined, 1);
        await bench.created();
        await bench.done(undefined, usage(1, 2));
        expect(bench.openHolds).toBe(0);
      },
      [
        [0, 20],
        [1, 2],
      ],
    ],
    [
      "without an id, one that is told completed and then done costs once",
      async (bench) => {
        for (let i = 0; i < 2; i++) {
          if (i) await bench.created();
          await bench.done(undefined, usage(10, 20), { type: "response.completed" });
          await bench.done(undefined, usage(10, 20));
        }
      },
      [
        [10, 20],
        [10, 20],
      ],
    ],
    [
      "without ids or beginnings, each end is of another one",
      async (bench) => {
        for (let i = 0; i < 2; i++) await bench.done(undefined, usage(10, 20));
      },
      [
        [10, 20],
        [10, 20],
      ],
    ],
    [
      "the one beside the conversation is known by what the upstream tells of it",
      async (bench) => {
        await bench.ask({ conversation: "none" });
        await bench.ask();
        await bench.created("r1", "c");
        await bench.says("r1", 1);
        await bench.created("apart", null);
        await bench.cancel();
        await bench.created("r2", "c");
        await bench.done("apart", usage(7, 3));
        await bench.done("r2", usage(1, 2));
      },
      [
        [0, 20],
        [1, 2],
        [7, 3],
      ],
    ],
    [
      "those that the upstream begins once one is refused cost what they read, and what they report",
      async (bench) => {
        await bench.speaks(1);
        bench.isBroke = true;
        for (const id of ["r1", "r2"]) await expect(bench.created(id)).rejects.toThrow("broke");
        expect(await bench.says("r2", 1)).toBe(false);
        await bench.done("r2", usage(12, 3));
      },
      [
        [2, 3],
        [10, 0],
        [10, 0],
      ],
    ],
    [
      "one more than a session may have costs what it read",
      async (bench) => {
        await bench.speaks(1);
        for (let i = 0; i < 16; i++) await bench.created(`r${i}`);
        await expect(bench.created("r16")).rejects.toThrow("more than 16");
      },
      Array.from({ length: 17 }, () => [10, 0]),
    ],
    [
      "one that begins after it was given up counts with what it was asked with",
      async (bench) => {
        await bench.ask({ conversation: "none", instructions: words(100) });
        await bench.tell("error", { error: { message: "odd" } });
        bench.clock.advance(31_000);
        expect(bench.openHolds).toBe(0);
        await bench.created("apart");
        await bench.cancel();
        await bench.created("r1");
        expect(bench.openHolds).toBe(2);
      },
      [[expect.closeTo(107, -1), 0]],
    ],
    [
      "one that was given up is not taken for the next one that is asked for",
      async (bench) => {
        await bench.ask();
        await bench.tell("error", { error: { message: "odd" } });
        bench.clock.advance(31_000);
        await bench.append(1);
        await bench.ask();
        await bench.created("r1");
        await bench.done("r1", usage(1, 2));
        expect(bench.openHolds).toBe(0);
      },
      [[1, 2]],
    ],
    [
      "an error that names none is about the second where the first begins",
      async (bench) => {
        await bench.append(1);
        for (let i = 0; i < 2; i++) await bench.ask();
        await bench.tell("error", { error: { message: "odd" } });
        await bench.created("r1");
        await bench.done("r1", usage(1, 2));
        bench.clock.advance(31_000);
      },
      [[1, 2]],
    ],
    [
      "those that the speaker interrupts, and has cut to what was played, read what is told",
      async (bench) => {
        for (let i = 0; i < 3; i++) {
          await bench.speaks(1, { fromSeconds: i });
          await bench.tell("input_audio_buffer.committed", { item_id: `i${i}` });
          await bench.created(`r${i}`, "c");
          await bench.says(`r${i}`, 60);
          await bench.done(`r${i}`, usage(10 + i * 30, 1_200), { status: "cancelled" });
          await bench.client({ type: "conversation.item.truncate", item_id: `o${i}`, audio_end_ms: 1_000 });
        }
      },
      [
        [10, 1_200],
        [40, 1_200],
        [70, 1_200],
      ],
    ],
    [
      "a cancelled one that is never said to have ended is written no longer",
      async (bench) => {
        const startMs = bench.clock.elapsed();
        bench.writtenTokens = () => (bench.clock.elapsed() - startMs) / 10;
        await bench.append(1);
        await bench.ask();
        await bench.created("r1");
        bench.clock.advance(1_000);
        await bench.cancel();
        bench.clock.advance(1_000);
        await bench.says("r1", 1);
        bench.clock.advance(60_000);
        await bench.ask();
        await bench.created("r2");
        await bench.done("r2", usage(1, 2));
      },
      [
        [1, 2],
        [10, 200],
      ],
    ],
    ...["before it begins", "under no id", "and it is refused"].map((how): Case => {
      return [
        `one that is cancelled ${how} goes on`,
        async (bench) => {
          const startMs = bench.clock.elapsed();
          bench.writtenTokens = () => (bench.clock.elapsed() - startMs) / 10;
          await bench.append(1);
          await bench.ask();
          if (how === "before it begins") await bench.cancel();
          for (let i = 0; i < 2; i++) await bench.created("r1");
          if (how === "under no id") await bench.client({ type: "response.cancel", response_id: "" });
          if (how === "and it is refused") {
            await bench.cancel();
            await bench.tell("error", { error: { message: "odd" } });
          }
          bench.clock.advance(10_000);
        },
        [[10, 1_000]],
      ];
    }),
    [
      "one that is slow to begin is not given up since another event was refused",
      async (bench) => {
        await bench.append(1);
        await bench.ask();
        await bench.client({ type: "session.update", session: { instructions: 5 } });
        await bench.refuses();
        bench.clock.advance(31_000);
        expect(bench.openHolds).toBe(1);
      },
      [[10, 0]],
    ],
    [
      "one that could not be sent costs nothing",
      async (bench) => {
        await bench.append(1);
        expect(await bench.meter.client({ type: "response.create" }, () => false)).toBe(false);
      },
      [],
    ],
  ];
  test.each(cases)("%s", async (_, play, rows) => {
    const bench = new Bench();
    await play(bench);
    expect(bench.left()).toEqual(rows);
  });
});

describe("speech is owed from its end on", () => {
  const cases: Case[] = [
    ["before it is committed", (bench) => bench.speaks(10), [[100, 0]]],
    [
      "also where it is transcribed",
      async (bench) => {
        bench.meter.configure(transcribing);
        await bench.tell("session.updated");
        await bench.speaks(10);
      },
      [
        [100, 0],
        [expect.closeTo(107, -1), 0],
      ],
    ],
    [
      "once, when it is committed and answered",
      async (bench) => {
        await bench.speaks(10);
        await bench.tell("input_audio_buffer.committed", { item_id: "i" });
        await bench.created("r1");
      },
      [[100, 0]],
    ],
    [
      "also where another response that the client asks for begins",
      async (bench) => {
        await bench.speaks(10);
        await bench.tell("input_audio_buffer.committed", { item_id: "i" });
        await bench.ask({ conversation: "none", input: [] });
        await bench.created("apart");
        await bench.done("apart", usage(5, 5));
      },
      [
        [5, 5],
        [100, 0],
      ],
    ],
    [
      "also where a client names another event as the gateway might, or not at all",
      async (bench) => {
        await bench.created("r1");
        await bench.done("r1", usage(0, 5));
        await bench.created("r2");
        await bench.speaks(10);
        for (const event_id of ["input_audio_buffer.speech_stopped", ""])
          await bench.tell("error", { error: { event_id } });
      },
      [
        [0, 5],
        [5, 0],
        [105, 0],
      ],
    ],
    [
      "once, when its answer was taken for one that the client asks for, which the upstream refuses",
      async (bench) => {
        await bench.speaks(10);
        await bench.ask();
        await bench.created("r1");
        await bench.refuses();
        await bench.done("r1", usage(100, 5));
      },
      [[100, 5]],
    ],
  ];
  test.each(cases)("%s", async (_, play, rows) => {
    const bench = new Bench();
    await play(bench);
    expect(bench.left()).toEqual(rows);
  });
  test("not where the upstream hangs up", async () => {
    const bench = new Bench();
    bench.meter.configure(transcribing);
    await bench.speaks(10);
    expect(bench.left("upstream")).toEqual([]);
  });
  test("nor where it hangs up, but for the transcript that it has told", async () => {
    const bench = new Bench();
    bench.meter.configure(transcribing);
    await bench.speaks(10);
    await bench.transcribed({}, "", usage(100, 5));
    expect(bench.left("upstream")).toEqual([[100, 5]]);
  });
});

describe("silence that nobody answers", () => {
  const idle = async (bench: Bench) => {
    await bench.speaks(5);
    await bench.tell("input_audio_buffer.committed", { item_id: "i" });
    await bench.created("r1");
    await bench.done("r1", usage(50, 10));
    for (let i = 0; i < 360; i++) {
      await bench.append(10);
      bench.clock.advance(10_000);
    }
  };
  test("is not read an hour later", async () => {
    const bench = new Bench();
    await idle(bench);
    await bench.ask();
    // What was appended in the last minute might be speech.
    expect(bench.left()).toEqual([
      [50, 10],
      [560, 0],
    ]);
  });
  test("but speech that is being heard may be", async () => {
    const bench = new Bench();
    await idle(bench);
    await bench.tell("input_audio_buffer.speech_started", { audio_start_ms: 5_000 });
    await bench.ask();
    expect(bench.left()).toEqual([
      [50, 10],
      [36_060, 0],
    ]);
  });
  test("is what was silent when the upstream answers it", async () => {
    const bench = new Bench();
    await idle(bench);
    await bench.tell("input_audio_buffer.timeout_triggered", {
      audio_start_ms: 3_600_000,
      audio_end_ms: 3_605_000,
      item_id: "j",
    });
    await bench.tell("input_audio_buffer.committed", { item_id: "j" });
    await bench.created("r2");
    expect(bench.left()).toEqual([
      [50, 10],
      [110, 0],
    ]);
  });
});

describe("audio that nobody has committed", () => {
  const asked = async (bench: Bench) => {
    await bench.append(60);
    await bench.ask();
    await bench.created("r1");
    await bench.done("r1", usage(5, 5));
  };
  const cases: Case[] = [
    ["has no transcript where a response is asked for meanwhile", asked, [[5, 5]]],
    [
      "nor has it later in a session",
      async (bench) => {
        await bench.commit(10, { item_id: "i" });
        await bench.transcribed({ item_id: "i" }, "", usage(100, 6));
        await asked(bench);
      },
      [
        [5, 5],
        [100, 6],
      ],
    ],
    [
      "is transcribed once it is committed",
      async (bench) => {
        await bench.commit(10, { item_id: "i" });
        await asked(bench);
        await bench.commit(1, { item_id: "j" });
      },
      [
        [5, 5],
        [710, 0],
      ],
    ],
    [
      "is transcribed and read once it is committed for the first time",
      async (bench) => {
        await asked(bench);
        await bench.commit(0, { item_id: "i" });
        await bench.ask();
      },
      [
        [5, 5],
        [600, 0],
        [610, 0],
      ],
    ],
    [
      "is neither where it was cleared",
      async (bench) => {
        await asked(bench);
        await bench.client({ type: "input_audio_buffer.clear" });
        await bench.tell("input_audio_buffer.cleared");
        await bench.commit(10, { item_id: "i" });
        await bench.ask();
      },
      [
        [5, 5],
        [100, 0],
        [110, 0],
      ],
    ],
    [
      "is held, and charged where the upstream tells no figures",
      async (bench) => {
        await bench.commit(10, { item_id: "i" });
        await bench.transcribed({ item_id: "i" }, "", usage(100, 6));
        await bench.append(60);
        await bench.ask();
      },
      [
        [100, 6],
        [700, 0],
      ],
    ],
    [
      "is what was transcribed where the upstream tells of no commits",
      async (bench) => {
        await asked(bench);
        await bench.transcribed({}, words(40));
      },
      [
        [5, 5],
        [600, expect.closeTo(45, -1)],
      ],
    ],
  ];
  test.each(cases)("%s", async (_, play, rows) => {
    const bench = new Bench();
    bench.meter.configure(transcribing);
    await bench.tell("session.updated");
    await play(bench);
    expect(bench.left()).toEqual(
      rows.map(([prompt, completion]) => [expect.closeTo(prompt as number, -1.5), completion]),
    );
  });
});

describe("transcripts cost the sum of what those of the items do", () => {
  const items = (ids: (string | undefined)[]) => ids.map((item_id) => (item_id ? { item_id } : {}));
  const cases: Case[] = [
    [
      "what is written after the sound was settled",
      async (bench) => {
        await bench.commit(1_001, { item_id: "i" });
        expect(bench.rows).toEqual([[10_010, 0]]);
        await bench.transcribed({ item_id: "i" }, words(40));
      },
      [
        [0, expect.closeTo(45, -1)],
        [10_010, 0],
      ],
    ],
    [
      "what is told after the estimate was settled replaces it",
      async (bench) => {
        await bench.commit(1_001, { item_id: "i" });
        await bench.transcribed({ item_id: "i" }, "", usage(10_000, 3));
        await bench.commit(2, { item_id: "j" });
      },
      [
        [10, 3],
        [10_010, 0],
      ],
    ],
    [
      "an item that the upstream never told committed",
      async (bench) => {
        await bench.commit(10, { item_id: "i" });
        await bench.transcribed({ item_id: "j" }, "", usage(30, 4));
        await bench.transcribed({ item_id: "i" }, "", usage(100, 6));
      },
      [[130, 10]],
    ],
    ...[
      ["i", "i"],
      [undefined, undefined],
      ["i", "j"],
    ].map((ids): Case => {
      return [
        `two items, named ${ids}`,
        async (bench) => {
          for (const item of items(ids)) await bench.commit(10, item);
          for (const item of items(ids)) await bench.transcribed(item, "", usage(140, 4));
        },
        [[280, 8]],
      ];
    }),
    [
      "what is told of one and heard of another",
      async (bench) => {
        for (const item_id of ["i", "j"]) await bench.commit(10, { item_id });
        await bench.transcribed({ item_id: "i" }, "", usage(100, 500));
        await bench.transcribed({ item_id: "j" }, words(40));
      },
      [[200, expect.closeTo(545, -1)]],
    ],
    [
      "nothing where it failed",
      async (bench) => {
        await bench.commit(10, { item_id: "i" });
        const error = { code: "audio_unintelligible", message: words(40) };
        await bench.tell("conversation.item.input_audio_transcription.failed", { item_id: "i", error });
      },
      [],
    ],
    [
      "what it has read where it failed after it was told",
      async (bench) => {
        await bench.commit(10, { item_id: "i" });
        await bench.transcribed({ item_id: "i" }, "");
        await bench.tell("conversation.item.input_audio_transcription.failed", { item_id: "i" });
      },
      [[100, 0]],
    ],
    [
      "what is told, where more was heard",
      async (bench) => {
        await bench.commit(10, { item_id: "i" });
        await bench.transcribed({ item_id: "i" }, words(40), usage(100, 5));
      },
      [[100, 5]],
    ],
    [
      "nothing where the update that asked for them was refused by its name",
      async (bench) => {
        await bench.tell("session.updated", { session: { input_audio_transcription: null } });
        await bench.client({ type: "session.update", session: transcribing });
        await bench.refuses({ named: true });
        await bench.commit(10, { item_id: "i" });
      },
      [],
    ],
    [
      "also where an update that asks for none is confirmed before the one that asks for them, after an error",
      async (bench) => {
        const none = { input_audio_transcription: null };
        await bench.client({ type: "session.update", session: none });
        await bench.tell("error", { error: { message: "odd" } });
        await bench.client({ type: "session.update", session: transcribing });
        await bench.tell("session.updated", { session: none });
        await bench.append(10);
        await bench.client({ type: "input_audio_buffer.commit" });
      },
      [[100, 0]],
    ],
    [
      "more items than are remembered",
      async (bench) => {
        for (let i = 0; i < 1_100; i++) {
          await bench.append(1);
          await bench.client({ type: "input_audio_buffer.commit" });
          await bench.tell("input_audio_buffer.committed", { item_id: `i${i}` });
        }
      },
      [
        [990, 0],
        [10_010, 0],
      ],
    ],
  ];
  test.each(cases)("%s", async (_, play, rows) => {
    const bench = new Bench();
    bench.meter.configure({ ...transcribing, turn_detection: null });
    await bench.tell("session.updated");
    await play(bench);
    expect(bench.left()).toEqual(rows);
  });
});

describe("a session that is left while something is admitted holds nothing", () => {
  const cases: Case[] = [
    ["asked for and not sent: nothing is owed", (bench) => bench.ask(), []],
    ["begun by the upstream: what it read", (bench) => bench.created("r1"), [[10, 0]]],
    [
      "a commit that is not sent",
      (bench) => {
        bench.meter.configure(transcribing);
        return bench.client({ type: "input_audio_buffer.commit" });
      },
      [],
    ],
  ];
  const turns = Array.from({ length: 12 }, (_, i) => i);
  test.each(cases.flatMap((each) => turns.map((turn) => [...each, turn] as const)))(
    "%s",
    async (_, play, rows, microtasks) => {
      const bench = new Bench();
      await bench.append(1);
      const { promise, resolve } = Promise.withResolvers<void>();
      bench.admitted = promise;
      const played = Promise.resolve(play(bench)).catch(() => {});
      await Bun.sleep(0);
      resolve();
      for (let i = 0; i < microtasks; i++) await null;
      const wasSent = bench.sent.length > 1;
      bench.meter.close("us");
      await played;
      expect(bench.openHolds).toBe(0);
      if (!wasSent) expect(bench.rows).toEqual(rows);
    },
  );
});

describe("what is refused, cancelled, or never sent costs what the upstream did", () => {
  /** A hundred tokens a second. */
  const writing = (bench: Bench) => {
    const startMs = bench.clock.elapsed();
    bench.writtenTokens = () => (bench.clock.elapsed() - startMs) / 10;
  };
  const begun = async (bench: Bench) => {
    writing(bench);
    await bench.append(1);
    await bench.ask();
    await bench.created("r");
    bench.clock.advance(1_000);
  };
  const unsent = (bench: Bench, event: Event) => bench.meter.client(event, () => false);
  const spoken = async (bench: Bench, seconds: number) => {
    await bench.tell("input_audio_buffer.speech_started", { audio_start_ms: 0, item_id: "i" });
    await bench.tell("input_audio_buffer.speech_stopped", { audio_end_ms: seconds * 1_000, item_id: "i" });
    await bench.tell("input_audio_buffer.committed", { item_id: "i" });
  };
  const cases: Case[] = [
    [
      "a cancelling that could not be sent shortens nothing",
      async (bench) => {
        await begun(bench);
        await unsent(bench, { type: "response.cancel" });
        bench.clock.advance(10_000);
      },
      [[10, 1_100]],
    ],
    [
      "audio that could not be sent is not read",
      async (bench) => {
        await unsent(bench, { type: "input_audio_buffer.append", audio: audio(60) });
        await bench.ask();
        await bench.created("r");
      },
      [],
    ],
    [
      "an error about another event undoes no cancelling",
      async (bench) => {
        await begun(bench);
        await bench.cancel();
        await bench.client({ type: "session.update", session: { instructions: "5" } });
        await bench.refuses();
        bench.clock.advance(58_000);
      },
      [[10, 100]],
    ],
    [
      "nor does a second cancelling",
      async (bench) => {
        await begun(bench);
        await bench.cancel();
        bench.clock.advance(59_000);
        await bench.cancel();
      },
      [[10, 100]],
    ],
    [
      "audio that an ask may have read is committed later, and counts once: the ask was refused",
      async (bench) => {
        await bench.append(60);
        await bench.ask();
        await bench.refuses();
        await bench.commit(0, { item_id: "i" });
        await bench.ask();
        await bench.created("r");
      },
      [[600, 0]],
    ],
    [
      "the same, where the response was beside the conversation",
      async (bench) => {
        await bench.append(30);
        await bench.ask({ conversation: "none", input: [] });
        await bench.created("apart", null);
        await bench.done("apart", usage(5, 5));
        await bench.append(30);
        await spoken(bench, 60);
        await bench.created("r", "c");
      },
      [
        [5, 5],
        [600, 0],
      ],
    ],
    [
      "the same, where the response failed without figures",
      async (bench) => {
        await bench.append(60);
        await bench.ask();
        await bench.created("first", "c");
        await bench.done("first", {}, { status: "failed" });
        await bench.commit(0, { item_id: "i" });
        await bench.ask();
        await bench.created("r", "c");
      },
      [[600, 0]],
    ],
    [
      "the same, where a response that had not read it ends later",
      async (bench) => {
        await bench.append(60);
        await bench.ask();
        await bench.created("first", "c");
        await spoken(bench, 60);
        await bench.done("first", usage(5, 5));
        await bench.created("r", "c");
      },
      [
        [5, 5],
        [610, 0],
      ],
    ],
    [
      "what begins after an error without a name reads what is there by then",
      async (bench) => {
        writing(bench);
        await bench.ask();
        await bench.tell("error", { error: { message: "odd" } });
        bench.clock.advance(20_000);
        await bench.commit(100, { item_id: "i" });
        await bench.ask();
        await bench.created("r");
        bench.clock.advance(31_000);
      },
      [[1_000, 5_100]],
    ],
    [
      "a transcript of seconds that no request can have",
      async (bench) => {
        bench.meter.configure({ ...transcribing, turn_detection: null });
        await bench.tell("session.updated");
        await bench.commit(10, { item_id: "i" });
        await bench.transcribed({ item_id: "i" }, "", { seconds: 10_000_000 });
      },
      [[100, 0]],
    ],
  ];
  test.each(cases)("%s", async (_, play, rows) => {
    const bench = new Bench();
    await play(bench);
    expect(bench.left()).toEqual(rows);
  });
});

describe("what the next response reads", () => {
  test("what a response brings is counted once, since it may be long", async () => {
    let count = 0;
    const tools = [{ toJSON: () => words(++count) }];
    const bench = new Bench();
    for (let i = 0; i < 3; i++) await bench.ask({ tools });
    for (const id of ["r0", "r1"]) await bench.created(id, "c");
    bench.left();
    expect(count).toBe(3);
  });

  const item = (count: number) => ({
    type: "conversation.item.create",
    item: { type: "message", content: [{ type: "input_text", text: words(count) }] },
  });
  const next = async (bench: Bench) => {
    await bench.ask();
    await bench.created("next", "c");
  };
  const cases: Case[] = [
    [
      "what was sent after a response that an error without a name seemed to refuse",
      async (bench) => {
        await bench.ask();
        await bench.tell("error", { error: { message: "odd" } });
        await bench.commit(60, { item_id: "i" });
        await bench.created("first", "c");
        await bench.done("first", usage(5, 5));
        await next(bench);
      },
      [
        [5, 5],
        [610, 0],
      ],
    ],
    [
      "the conversation, after a response with instructions of its own",
      async (bench) => {
        bench.meter.configure({ instructions: words(5_000) });
        await bench.tell("session.updated", { session: { instructions: words(5_000) } });
        await bench.client(item(4_000));
        await bench.ask({ instructions: "x" });
        await bench.created("first", "c");
        await bench.done("first", usage(4_001, 5));
        await bench.tell("session.updated", { session: { instructions: "" } });
        await next(bench);
      },
      [
        [4_001, 5],
        [4_006, 0],
      ],
    ],
    [
      "the conversation, after longer instructions were sent while it was answered",
      async (bench) => {
        await bench.client(item(4_000));
        await bench.ask();
        await bench.created("first", "c");
        await bench.client({ type: "session.update", session: { instructions: words(5_000) } });
        await bench.done("first", usage(4_001, 5));
        await bench.tell("session.updated", { session: { instructions: "" } });
        await next(bench);
      },
      [
        [4_001, 5],
        [4_006, 0],
      ],
    ],
    [
      "the same, where an error without a name seemed to refuse it and more was sent",
      async (bench) => {
        bench.meter.configure({ instructions: words(5_000) });
        await bench.tell("session.updated", { session: { instructions: words(5_000) } });
        await bench.client(item(4_000));
        await bench.ask({ instructions: "x" });
        await bench.tell("error", { error: { message: "odd" } });
        await bench.commit(10, { item_id: "i" });
        await bench.created("first", "c");
        await bench.done("first", usage(4_101, 5));
        await bench.tell("session.updated", { session: { instructions: "" } });
        await next(bench);
      },
      [
        [4_101, 5],
        [4_206, 0],
      ],
    ],
    [
      "the session's tools once, beside instructions of its own",
      async (bench) => {
        const tools = [{ type: "function", name: "f", description: words(5_000) }];
        bench.meter.configure({ tools });
        await bench.tell("session.updated", { session: { tools, instructions: "" } });
        for (const id of ["first", "second"]) {
          await bench.ask({ instructions: "x" });
          await bench.created(id, "c");
          await bench.done(id, usage(5_300, 5));
        }
        await bench.tell("session.updated", { session: { tools: [], instructions: "" } });
        await next(bench);
      },
      [
        [89, 0],
        [5_300, 5],
        [5_300, 5],
      ],
    ],
    [
      "its own instructions, also when more was sent after an error without a name",
      async (bench) => {
        await bench.ask({ instructions: words(5_000) });
        await bench.tell("error", { error: { message: "odd" } });
        await bench.commit(1_000, { item_id: "i" });
        await bench.created("next", "c");
      },
      [[15_203, 0]],
    ],
    [
      "early audio once, though its transcript came while it was answered",
      async (bench) => {
        bench.meter.configure(transcribing);
        await bench.tell("session.updated");
        await bench.append(60);
        await bench.ask();
        await bench.created("first", "c");
        await bench.transcribed({ item_id: "i" }, "x", usage(600, 1));
        await bench.done("first", usage(600, 10));
        await next(bench);
      },
      [
        [600, 1],
        [600, 10],
        [610, 0],
      ],
    ],
    ...(["left before it begins", "which ends when it begins", "whose end is told before"] as const).map(
      (when): Case => [
        `what the response before it has said, ${when}`,
        async (bench) => {
          await bench.commit(10, { item_id: "i" });
          await bench.ask();
          await bench.created("first", "c");
          await bench.says("first", 1);
          await bench.cancel();
          await bench.commit(10, { item_id: "j" });
          await bench.ask();
          if (when === "whose end is told before") await bench.done("first", usage(100, 20));
          if (when !== "left before it begins") await bench.created("next", "c");
        },
        [
          [100, 20],
          [220, 0],
        ],
      ],
    ),
    [
      "what one has said that was asked for before it, neither of which has begun",
      async (bench) => {
        bench.writtenTokens = () => 30;
        await bench.commit(10, { item_id: "i" });
        await bench.ask();
        await bench.ask();
      },
      [
        [100, 30],
        [130, 30],
      ],
    ],
    [
      "the conversation, where longer instructions were replaced, and came again",
      async (bench) => {
        await bench.commit(100, { item_id: "i" });
        for (const instructions of [words(5_000), "x"])
          await bench.client({ type: "session.update", session: { instructions } });
        await bench.ask();
        for (const instructions of [words(5_000), "x"])
          await bench.tell("session.updated", { session: { instructions } });
        await bench.created("first", "c");
        await bench.client({ type: "session.update", session: { instructions: words(5_000) } });
        await bench.done("first", usage(1_001, 5));
        await bench.tell("session.updated", { session: { instructions: "" } });
        await next(bench);
      },
      [
        [1_001, 5],
        [1_005, 0],
      ],
    ],
    [
      "the conversation, though longer instructions were sent before a doubted response began",
      async (bench) => {
        await bench.tell("session.created", { session: { instructions: "" } });
        await bench.commit(100, { item_id: "i" });
        await bench.ask();
        await bench.tell("error", { error: { message: "odd" } });
        await bench.client({ type: "session.update", session: { instructions: words(5_000) } });
        await bench.created("first", "c");
        await bench.done("first", usage(1_000, 5));
        await bench.tell("session.updated", { session: { instructions: "" } });
        await next(bench);
      },
      [
        [1_000, 5],
        [1_005, 0],
      ],
    ],
    [
      "what is said while it is admitted",
      async (bench) => {
        await bench.ask();
        await bench.created("first", "c");
        const { promise, resolve } = Promise.withResolvers<void>();
        bench.admitted = promise;
        const asked = bench.ask();
        await bench.done("first", usage(0, 20));
        resolve();
        await asked;
        await bench.created("next", "c");
        await bench.done("next", usage(20, 20));
        await next(bench);
      },
      [
        [0, 20],
        [20, 20],
        [40, 0],
      ],
    ],
    [
      "the numbers of tools, and their empty values",
      async (bench) => {
        const parameters = {
          enum: Array.from({ length: 1_000 }, (_, i) => 100_000 + i),
          items: [[], [], {}],
        };
        await bench.client({ type: "session.update", session: { tools: [{ name: "f", parameters }] } });
        await next(bench);
      },
      [[3_707, 0]],
    ],
    [
      "what was sent after a commit that was refused once it was asked for",
      async (bench) => {
        await bench.append(60);
        await bench.client({ type: "input_audio_buffer.commit" });
        const { event_id } = bench.lastSent;
        await bench.ask();
        await bench.tell("error", { error: { message: "invalid audio", event_id } });
        await bench.created("first", "c");
        await bench.client({ type: "input_audio_buffer.clear" });
        await bench.tell("input_audio_buffer.cleared");
        await bench.client(item(600));
        await bench.done("first", usage(0, 10));
        await next(bench);
      },
      [
        [0, 10],
        [644, 0],
      ],
    ],
    [
      "the conversation, though its settings are fewer tokens than estimated",
      async (bench) => {
        await bench.tell("session.updated", { session: { instructions: "=".repeat(2_000) } });
        await bench.commit(60, { item_id: "i" });
        await bench.ask();
        await bench.created("first", "c");
        await bench.done("first", usage(632, 10));
        await bench.tell("session.updated", { session: { instructions: "" } });
        await next(bench);
      },
      [
        [610, 0],
        [632, 10],
      ],
    ],
    [
      "what was under way when the upstream began a response by itself",
      async (bench) => {
        await bench.speaks(10);
        await bench.tell("input_audio_buffer.committed", { item_id: "i" });
        await bench.client(item(600));
        await bench.created("first", "c");
        await bench.done("first", usage(100, 10));
        await next(bench);
      },
      [
        [100, 10],
        [744, 0],
      ],
    ],
    [
      "what was sent, and what servers of tools told, before a queued one began",
      async (bench) => {
        await bench.ask();
        await bench.client(item(600));
        await bench.tell("conversation.item.done", { item: { type: "mcp_list_tools", tools: [words(600)] } });
        await bench.created("next", "c");
      },
      [[1_267, 0]],
    ],
    [
      "input of its own, and not the conversation",
      async (bench) => {
        await bench.commit(1_000, { item_id: "i" });
        await bench.ask({ conversation: "none", input: [{ type: "message", content: words(100) }] });
        await bench.created("next", null);
      },
      [[115, 0]],
    ],
    [
      "instructions of its own, instead of the session's and only once",
      async (bench) => {
        await bench.tell("session.updated", { session: { instructions: words(5_000) } });
        for (const id of ["first", "second"]) {
          await bench.ask({ instructions: words(4_000) });
          await bench.created(id, "c");
          await bench.done(id, usage(4_000, 5));
        }
        await bench.ask({ instructions: words(4_000) });
        await bench.created("next", "c");
      },
      [
        [4_000, 5],
        [4_000, 5],
        [4_173, 0],
      ],
    ],
    ...([{}, { input: [], instructions: "" }] as const).map(
      (own): Case => [
        `the conversation, where speech was answered before what was asked for with ${JSON.stringify(own)}`,
        async (bench) => {
          await bench.tell("session.updated", { session: { instructions: words(5_000) } });
          await bench.commit(100, { item_id: "i" });
          await bench.append(10);
          await bench.ask(own);
          const { event_id } = bench.lastSent;
          await bench.tell("input_audio_buffer.speech_started", { audio_start_ms: 100_000 });
          await bench.tell("input_audio_buffer.speech_stopped", { audio_end_ms: 110_000 });
          await bench.tell("input_audio_buffer.committed", { item_id: "j" });
          await bench.created("next", "c");
          await bench.tell("error", { error: { message: "already active", event_id } });
        },
        [[6_300, 0]],
      ],
    ),
    [
      "what was typed while it was spoken over an answer, and answered without it",
      async (bench) => {
        await bench.ask();
        await bench.created("first", "c");
        await bench.append(10);
        await bench.client(item(600));
        await bench.done("first", usage(2, 10), { status: "cancelled" });
        await bench.tell("input_audio_buffer.speech_started", { audio_start_ms: 0 });
        await bench.tell("input_audio_buffer.speech_stopped", { audio_end_ms: 10_000 });
        await bench.tell("input_audio_buffer.committed", { item_id: "j" });
        await bench.created("second", "c");
        await bench.done("second", usage(112, 10));
        await next(bench);
      },
      [
        [2, 10],
        [112, 10],
        [756, 0],
      ],
    ],
    [
      "the conversation, after settings that no model reads, which a response takes back for itself",
      async (bench) => {
        await bench.client({ type: "session.update", session: { tracing: { metadata: words(5_000) } } });
        await bench.tell("session.updated", { session: { instructions: "" } });
        await bench.commit(60, { item_id: "i" });
        await bench.ask();
        await bench.created("first", "c");
        await bench.done("first", usage(2_000, 10));
        await bench.ask({ tracing: null });
        await bench.created("next", "c");
      },
      [
        [2_000, 10],
        [5_814, 0],
      ],
    ],
    ...([0, 1] as const).map(
      (before): Case => [
        `what came with it, if it began after speech that nobody answered, and after ${before} others`,
        async (bench) => {
          await bench.tell("session.updated", { session: { instructions: "", tools: [] } });
          await bench.speaks(10);
          await bench.tell("input_audio_buffer.committed", { item_id: "i" });
          for (let i = 0; i < before; i++) {
            await bench.ask();
            await bench.created(`r${i}`, "c");
            await bench.done(`r${i}`, usage(100, 10));
          }
          await bench.ask({ instructions: words(5_000) });
          await bench.created("next", "c");
          bench.clock.advance(31_000);
        },
        before === 0
          ? [[5_303, 0]]
          : [
              [100, 10],
              [5_313, 0],
            ],
      ],
    ),
    [
      "what came with it, if it began after speech that nobody answered, and was cancelled, and no usage told",
      async (bench) => {
        await bench.tell("session.updated", { session: { instructions: "", tools: [] } });
        await bench.speaks(10);
        await bench.tell("input_audio_buffer.committed", { item_id: "i" });
        await bench.ask({ instructions: words(5_000) });
        await bench.created("next", "c");
        await bench.tell("response.done", { response: { id: "next", status: "cancelled" } });
        bench.clock.advance(31_000);
      },
      [[5_303, 0]],
    ],
    [
      "no more than there is, where something was typed before speech that was answered twice",
      async (bench) => {
        await bench.client(item(600));
        for (let i = 0; i < 3; i++) {
          await bench.speaks(10, { fromSeconds: i * 10 });
          await bench.tell("input_audio_buffer.committed", { item_id: `i${i}` });
          await bench.created(`r${i}`, "c");
          if (i < 2) await bench.done(`r${i}`, usage(726 + i * 110, 10));
        }
      },
      [
        [726, 10],
        [836, 10],
        [946, 0],
      ],
    ],
    [
      "the session's settings, where its own are null",
      async (bench) => {
        await bench.tell("session.updated", { session: { instructions: words(5_000) } });
        await bench.ask({ instructions: null });
      },
      [[5_203, 0]],
    ],
    [
      "no instructions that the upstream has refused",
      async (bench) => {
        await bench.tell("session.updated", { session: { instructions: "", tools: [] } });
        await bench.client({ type: "session.update", session: { instructions: words(5_000) } });
        await bench.refuses();
        await next(bench);
      },
      [],
    ],
  ];
  test.each(cases)("%s", async (_, play, rows) => {
    const bench = new Bench();
    await play(bench);
    expect(bench.left()).toEqual(rows);
  });

  test("what was said before, as sound", async () => {
    const bench = new Bench();
    await bench.ask();
    await bench.created("first", "c");
    await bench.says("first", 60);
    await bench.done("first", usage(20, 1_200));
    await next(bench);
    bench.left();
    expect(bench.sounds).toEqual([0, 1_220]);
  });
});

describe("an upstream", () => {
  test("that commits audio by itself makes its transcript, whoever may have read it before", async () => {
    const bench = new Bench();
    bench.meter.configure(transcribing);
    await bench.tell("session.updated", { session: { ...transcribing, turn_detection: null } });
    await bench.append(60);
    await bench.ask();
    await bench.tell("input_audio_buffer.committed", { item_id: "i" });
    await bench.created("r", "c");
    await bench.transcribed({ item_id: "i" }, "");
    await bench.done("r", usage(600, 10));
    expect(bench.left()).toEqual([
      [600, 0],
      [600, 10],
    ]);
  });

  test("that calls a server's tools after a response begins no other one", async () => {
    const bench = new Bench();
    bench.writtenTokens = () => 4_096;
    await bench.ask();
    await bench.created("first", "c");
    await bench.done("first", usage(500, 50));
    for (const state of ["in_progress", "completed", "failed"])
      expect(await bench.tell(`response.mcp_call.${state}`, { item_id: "m", output_index: 0 })).toBe(true);
    expect([bench.meter.isAnswering, bench.openHolds]).toEqual([false, 0]);
    await bench.ask();
    await bench.created("second", "c");
    await bench.done("second", usage(600, 50));
    expect(bench.left()).toEqual([
      [500, 50],
      [600, 50],
    ]);
  });

  test("whose total cannot be true is not believed", async () => {
    const bench = new Bench();
    await bench.ask();
    await bench.created("r", "c");
    await bench.says("r", 1);
    const output_tokens_details = { reasoning_tokens: 9e15 };
    await bench.done("r", { ...usage(10, 5), total_tokens: 9e15 + 15, output_tokens_details });
    expect(bench.left()).toEqual([[10, 5]]);
  });
});

test("a hold that a pace has made small limits nothing, since nobody tells the upstream", async () => {
  const bench = new Bench();
  await bench.ask();
  expect(bench.outputTokensMost).toBe(100);
  bench.left();
});

test("settings that are no numbers, whatever their members, hold nothing", async () => {
  const bench = new Bench();
  const odd = { toString: 1, valueOf: 1 };
  const owns = [
    { speed: odd },
    { audio: { output: { speed: odd } } },
    { output_audio_format: { type: "pcm16", rate: odd } },
  ];
  for (const own of owns) {
    await bench.ask(own).catch(() => {});
    await bench.client({ type: "session.update", session: own }).catch(() => {});
  }
  expect(bench.openHolds).toBe(bench.sent.filter(({ type }) => type === "response.create").length);
  bench.left("upstream");
});
