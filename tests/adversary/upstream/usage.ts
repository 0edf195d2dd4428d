import type { Cached, Report } from "../plot.ts";

export interface Figures {
  prompt: unknown;
  completion: unknown;
  /** Of the prompt: read from a cache. Absent: it says nothing of one. */
  cached?: number;
}

/** What an upstream says in each chunk (`running`) and at the end (`final`); null: nothing. */
export interface Reporting {
  running: Figures | null;
  final: Figures | null;
}

const TOO_MUCH = { times: 20, plus: 5_000 };
export const TOKENS_MAX = 10_000_000;
const both = (value: unknown): Figures => ({ prompt: value, completion: value });

/** What an upstream of this temper reports for what it really served. */
export function reporting(report: Report, prompt: number, completion: number): Reporting {
  const honest = { prompt, completion };
  const finally_ = (final: Figures): Reporting => ({ running: null, final });
  switch (report) {
    case "honest":
      return finally_(honest);
    case "never":
      return { running: null, final: null };
    case "running":
      return { running: { prompt, completion: 1 }, final: null };
    case "running-honest":
      return { running: { prompt, completion: 1 }, final: honest };
    case "zero":
      return finally_(both(0));
    case "huge":
      return finally_(both(1e308));
    case "negative":
      return finally_(both(-5));
    case "fraction":
      return finally_(both(1.5));
    case "text":
      return finally_(both("17"));
    case "over":
      return finally_(both(TOKENS_MAX + 1));
    case "half-absurd":
      return finally_({ prompt, completion: -5 });
    case "too-much":
      return finally_({
        prompt: prompt * TOO_MUCH.times + TOO_MUCH.plus,
        completion: completion * TOO_MUCH.times + TOO_MUCH.plus,
      });
  }
}

const MOST = 0.9;
/** The same with what it says of its cache. */
export function withCache(cached: Cached, { running, final }: Reporting): Reporting {
  const told = (figures: Figures | null): Figures | null => {
    if (figures === null || cached === "none" || !isPlausible(figures.prompt)) return figures;
    const { prompt } = figures;
    return { ...figures, cached: cached === "most" ? Math.floor(prompt * MOST) : prompt + 1 };
  };
  return { running: told(running), final: told(final) };
}

/** Whether a reported figure can be one at all. */
export const isPlausible = (figure: unknown): figure is number =>
  typeof figure === "number" && Number.isInteger(figure) && figure >= 0 && figure <= TOKENS_MAX;
