type Labels = Record<string, string>;

const LABEL_SETS_MAX = 2000;
const LATENCY_BUCKETS_SECONDS = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300];

const escapeLabel = (value: string) =>
  value.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
const render = (labels: Labels) => {
  const pairs = Object.entries(labels).map(([key, value]) => `${key}="${escapeLabel(value)}"`);
  return pairs.length ? `{${pairs.join(",")}}` : "";
};

export interface Counter {
  add(amount?: number, labels?: Labels): void;
}

export interface Histogram {
  observe(seconds: number, labels?: Labels): void;
}

interface Series {
  labels: Labels;
  value: number;
}

interface Buckets {
  labels: Labels;
  counts: number[];
  sum: number;
}

interface LabelNode<T> {
  series?: T;
  byNext: Map<string, LabelNode<T>>;
}

/** One series per label set, up to a limit, in case labels take unexpected values. */
function seriesMap<T>(create: (labels: Labels) => T) {
  const series: T[] = [];
  const root: LabelNode<T> = { byNext: new Map() };
  const of = (labels: Labels): T => {
    // Looked up value by value: a joined key would allocate a text for every request.
    let node = root;
    for (const name in labels) {
      let next = node.byNext.get(labels[name]!);
      if (!next) {
        if (series.length >= LABEL_SETS_MAX) return create(labels);
        next = { byNext: new Map() };
        node.byNext.set(labels[name]!, next);
      }
      node = next;
    }
    if (!node.series) {
      node.series = create(labels);
      series.push(node.series);
    }
    return node.series;
  };
  return { series, of };
}

export class Metrics {
  #sections: (() => string)[] = [];

  #section(name: string, help: string, type: string, lines: () => string[]): void {
    this.#sections.push(() => [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`, ...lines()].join("\n"));
  }

  counter(name: string, help: string): Counter {
    const { series, of } = seriesMap<Series>((labels) => ({ labels, value: 0 }));
    this.#section(name, help, "counter", () =>
      series.map(({ labels, value }) => `${name}${render(labels)} ${value}`),
    );
    const unlabelled: Labels = {};
    return {
      add(amount = 1, labels = unlabelled) {
        of(labels).value += amount;
      },
    };
  }

  /** Read at each scrape: one number, or one per label set. A name that ends with `_total` is a counter's. */
  gauge(name: string, help: string, read: () => number | { labels: Labels; value: number }[]): void {
    this.#section(name, help, name.endsWith("_total") ? "counter" : "gauge", () => {
      const value = read();
      const all = typeof value === "number" ? [{ labels: {}, value }] : value;
      return all.map((one) => `${name}${render(one.labels)} ${one.value}`);
    });
  }

  histogram(name: string, help: string, bounds: readonly number[] = LATENCY_BUCKETS_SECONDS): Histogram {
    const { series, of } = seriesMap<Buckets>((labels) => ({
      labels,
      counts: new Array(bounds.length + 1).fill(0),
      sum: 0,
    }));
    this.#section(name, help, "histogram", () =>
      series.flatMap(({ labels, counts, sum }) => {
        let running = 0;
        const lines = bounds.map((bound, i) => {
          running += counts[i]!;
          return `${name}_bucket${render({ ...labels, le: String(bound) })} ${running}`;
        });
        const count = running + counts[bounds.length]!;
        lines.push(`${name}_bucket${render({ ...labels, le: "+Inf" })} ${count}`);
        lines.push(`${name}_sum${render(labels)} ${sum}`, `${name}_count${render(labels)} ${count}`);
        return lines;
      }),
    );
    return {
      observe(seconds, labels = {}) {
        const buckets = of(labels);
        const index = bounds.findIndex((bound) => seconds <= bound);
        buckets.counts[index === -1 ? bounds.length : index]! += 1;
        buckets.sum += seconds;
      },
    };
  }

  text(): string {
    return `${this.#sections.map((section) => section()).join("\n")}\n`;
  }
}
