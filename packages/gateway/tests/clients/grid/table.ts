import { CELLS, type Cell, type Client } from "./client.ts";

const row = (cells: readonly string[]): string => `| ${cells.join(" | ")} |`;

/** The grid as docs/clients.md shows it. */
export function tableOf(clients: readonly Client[]): string {
  const cellOf = ({ lacks, differs }: Client, cell: Cell) => {
    const difference = differs?.[cell];
    return lacks?.[cell] ?? (difference ? `${difference.requests} requests: ${difference.because}` : "✓");
  };
  const rows = clients.map((client) => [
    client.name,
    client.version,
    `\`${client.surface}\``,
    ...CELLS.map((cell) => cellOf(client, cell)),
  ]);
  const head = ["Client", "Version", "Path", ...CELLS];
  return [head, head.map(() => "---"), ...rows].map(row).join("\n");
}
