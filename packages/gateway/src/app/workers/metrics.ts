import type { Requests } from "../../bus/contract.ts";
import type { Metrics } from "../../observe/metrics.ts";
import type { WorkerPlace } from "./messages.ts";

const ANSWER_WITHIN_MS = 2_000;
const SECTION_START = "# HELP ";

const labelled = (line: string, worker: number): string =>
  line.replace(/^([a-zA-Z_:][\w:]*)(\{?)/, (_, name: string, open: string) =>
    open ? `${name}{worker="${worker}",` : `${name}{worker="${worker}"}`,
  );

function mergedMetrics(texts: readonly (readonly [worker: number, text: string])[]): string {
  const sections = new Map<string, string[]>();
  for (const [worker, text] of texts) {
    let samples: string[] = [];
    let isKnown = false;
    for (const line of text.split("\n")) {
      if (line.startsWith(SECTION_START)) {
        const name = line.slice(SECTION_START.length).split(" ", 1)[0]!;
        isKnown = sections.has(name);
        samples = sections.get(name) ?? [];
        sections.set(name, samples);
      }
      if (line.startsWith("#")) {
        if (!isKnown) samples.push(line);
      } else if (line !== "") samples.push(labelled(line, worker));
    }
  }
  return `${[...sections.values()].flat().join("\n")}\n`;
}

/** The metrics of all workers: a scrape reaches one of them, which asks the others. */
export function workerMetrics(
  metrics: Metrics,
  requests: Requests,
  { number, count, starts, service }: WorkerPlace,
): () => Promise<string> {
  const topicOf = (worker: number) => `metrics:${service}:${worker}`;
  metrics.gauge("gateway_worker_starts", "How often this worker was started by its supervisor", () => starts);
  requests.serve(topicOf(number), () => metrics.text());
  const ask = async (worker: number): Promise<readonly [number, string]> => {
    if (worker === number) return [worker, metrics.text()];
    const text = await requests.ask(topicOf(worker), "", ANSWER_WITHIN_MS);
    return [worker, text ?? ""];
  };
  return async () => {
    const texts = await Promise.all(Array.from({ length: count }, (_, i) => ask(i + 1)));
    const up = texts.map(([worker, text]) => `gateway_worker_up{worker="${worker}"} ${text === "" ? 0 : 1}`);
    return `${mergedMetrics(texts)}# HELP gateway_worker_up Whether the worker answered this scrape\n# TYPE gateway_worker_up gauge\n${up.join("\n")}\n`;
  };
}
